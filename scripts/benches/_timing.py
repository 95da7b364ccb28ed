"""Timing whole processes, for the benches."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path


def rtrl() -> list[str]:
    """The installed program of this environment."""
    script = Path(sys.executable).parent / "rtrl"
    return [str(script)] if script.exists() else [sys.executable, "-m", "rtrl_cli.main"]


def seconds(command: Sequence[str]) -> float:
    """Wall-clock seconds of one run of a command, which must succeed."""
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started
