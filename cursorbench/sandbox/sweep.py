"""What a keeper that was killed has left: processes that bubblewrap had only begun, groups, folders.

Mounts and a sandbox's files need no sweeping, they live in the keeper's namespace. Every next keeper of the
same user sweeps what belongs to keepers that are no more.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from pathlib import Path

from cursorbench.sandbox.boxes import MARK
from cursorbench.sandbox.groups import Groups
from cursorbench.sandbox.stage import started

FOLDER = "rtrl-sandbox-"  # temporary folders of a caller, `rtrl-sandbox-<pid>-...`


def sweep(groups: Groups) -> int:
    """End processes and remove groups that are left over. Returns how many things that were."""
    count = 0
    for pid, keeper in _marked():
        if not is_alive(keeper):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                count += 1
    for keeper, group in groups.left_over():
        if not is_alive(keeper):
            group.remove()
            count += 1
    return count


def sweep_folders(place: Path | None = None) -> int:
    """Remove callers' temporary folders that are left over: before a keeper has a /tmp of its own.

    Returns how many that were.
    """
    count = 0
    for folder in (place or Path(tempfile.gettempdir())).glob(f"{FOLDER}*"):
        text = folder.name.removeprefix(FOLDER).partition("-")[0]
        if text.isdigit() and not Path(f"/proc/{text}").exists():
            with contextlib.suppress(FileNotFoundError):  # another keeper sweeps too
                if folder.lstat().st_uid == os.getuid():
                    shutil.rmtree(folder, ignore_errors=True)
                    count += 1
    return count


def is_alive(keeper: str) -> bool:
    """Whether the keeper `pid-start` still runs."""
    pid, _, start = keeper.partition("-")
    return pid.isdigit() and start.isdigit() and started(int(pid)) == int(start)


def _marked() -> list[tuple[int, str]]:
    """Processes with a keeper's mark as their last argument."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with contextlib.suppress(OSError):
                last = (place / "cmdline").read_bytes().rstrip(b"\0").rpartition(b"\0")[2]
                if last.startswith(MARK.encode()):
                    found.append((int(place.name), last.decode("utf-8", "replace").removeprefix(MARK)))
    return found
