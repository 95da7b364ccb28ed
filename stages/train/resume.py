"""Micro-checkpoints: a killed run goes on from its last optimizer step, with the same result.

Two files in the run's scratch folder (kept between attempts with the same fingerprint, removed on
success), each replaced by write, fsync, rename:

    scores.safetensors   logprobs of the batch's tokens under parent and anchor
    step.safetensors     weights and Adam moments after a step, what was logged so far in its metadata

Both carry the digest of the batch; of another batch they are ignored. Float32 throughout: what is
read back is bit for bit what was written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from stages import faults
from stages.modelio import disk_errors

SCORES = "scores.safetensors"
STEP = "step.safetensors"


def save(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Replace `path` atomically and durably. `about` is small JSON kept in the file's metadata."""
    from safetensors.torch import save_file

    name = path.name.partition(".")[0]
    temporary = path.with_name(f".{path.name}.tmp")
    faults.point(f"train.{name}.write.before")
    values = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
    with disk_errors():
        save_file(values, temporary, metadata={"about": json.dumps(about, sort_keys=True)})
    faults.point(f"train.{name}.fsync.before")
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    faults.point(f"train.{name}.rename.before")
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    faults.point(f"train.{name}.rename.after")


def load(path: Path, batch: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """(tensors, about) of a file that was saved for this batch digest; None when there is none.

    A file that cannot be read is none: it only saves time.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            about: dict[str, Any] = json.loads((file.metadata() or {})["about"])
            if about.get("batch") != batch:
                return None
            return {name: file.get_tensor(name) for name in file.keys()}, about  # noqa: SIM118
    except (OSError, SafetensorError, KeyError, ValueError):
        return None
