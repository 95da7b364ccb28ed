"""The fingerprint of a run: everything that decides its result, as one digest.

Stage, input digests, extra facts (collect's spool range), resolved settings, code, seed. Nothing
mutable that changes a result may live outside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
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
        for path in sorted((root / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
                total.update(f"{path.relative_to(root).as_posix()}\0".encode())
                total.update(hashlib.sha256(path.read_bytes()).digest())
    return f"{VERSION}+{total.hexdigest()[:12]}"


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
