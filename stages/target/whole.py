"""Files of `run/`, read by others at any time: the old one or a whole new one, also after a power cut."""

from __future__ import annotations

import os
from pathlib import Path

from stages import faults


def write_whole(path: Path, content: bytes, point: str) -> None:
    """Write the file, readable by its owner only. `point`: of the rename, see `faults`."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    faults.point(f"{point}.before")
    partial.rename(path)
    faults.point(f"{point}.after")
