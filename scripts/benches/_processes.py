"""Modules of this package in processes of their own."""

import os
import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[1]
ROOT = SCRIPTS.parent


def module(name: str, *arguments: object, python: Path | None = None) -> list[str]:
    """The command that runs `benches.NAME`, by default with this Python; to be run in `environment()`."""
    return [str(python or sys.executable), "-m", f"benches.{name}", *map(str, arguments)]


def environment() -> dict[str, str]:
    """This process's, with this package and the product in Python's path."""
    path = [str(SCRIPTS), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
