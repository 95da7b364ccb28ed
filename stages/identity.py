"""The fingerprint of a run: everything that decides its result, as one digest.

Stage, input digests, extra facts (collect's spool range), resolved settings, code, seed. Nothing
mutable that changes a result may live outside it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from stages.registry.canonical import digest

PACKAGES = ("cursorbench", "evals", "stages")
VERSION = "0.1.0"


@cache
def code_version() -> str:
    """`<version>+<12 hex>`: a digest over the program's own files (the command line apart)."""
    root = Path(__file__).resolve().parent.parent
    total = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted(_own_files(str(root / package))):
            total.update(f"{path[len(str(root)) + 1 :]}\0".encode())
            total.update(hashlib.sha256(Path(path).read_bytes()).digest())
    return f"{VERSION}+{total.hexdigest()[:12]}"


def _own_files(folder: str) -> Iterator[str]:
    """All files below, but for what Python has compiled."""
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            if entry.name != "__pycache__":
                yield from _own_files(entry.path)
        elif entry.is_file() and not entry.name.endswith(".pyc"):
            yield entry.path


def fingerprint(
    stage: str, inputs: Mapping[str, str], extra: Mapping[str, Any], config: Mapping[str, Any], seed: int
) -> str:
    """`sha256:...` of a run.

    Args:
        inputs: digest by role.

    Raises:
        UsageError: (exit 2) something in extra or config has no canonical form.
    """
    return digest(
        {
            "stage": stage,
            "inputs": dict(inputs),
            "extra": dict(extra),
            "config": dict(config),
            "code": code_version(),
            "seed": seed,
        },
        what=stage,
    )
