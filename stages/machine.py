"""What this machine has and lacks for running rtrl: the checks behind `rtrl doctor`.

Looks, installs nothing, and imports no heavy module (it asks whether it could be). The sandbox's escape
battery is run when this machine has not passed it since it started.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sqlite3
import sys
from dataclasses import dataclass
from pathlib import Path

from cursorbench.sandbox import open_backend
from stages.errors import DependencyDownError, classified

NEEDED = ("torch", "transformers", "vllm", "lm_eval", "pyarrow", "safetensors", "sqlmodel", "uvicorn")
BREAKS_VLLM = ("torchvision", "torchaudio", "torchcodec")
LOW_DISK = 5e9  # bytes: a few checkpoints of a small model and the environment
LOW_MEMORY = 4e9  # bytes: the engine alone takes 2.6 GiB


@dataclass(frozen=True)
class Check:
    """One thing looked at. `level` says how bad a failure is."""

    name: str
    ok: bool
    detail: str
    hint: str = ""
    level: str = "error"  # "warning": something works less well


def check_machine(folder: Path) -> list[Check]:
    """Python, packages, tools, disk and memory, for a workspace at `folder`."""
    found = [
        Check("python", sys.version_info >= (3, 11), platform.python_version(), "rtrl needs Python 3.11"),
        Check(
            "sqlite", sqlite3.sqlite_version_info >= (3, 35), sqlite3.sqlite_version, "SQLite 3.35 or newer"
        ),
        *map(_package, NEEDED),
        *_cpu_builds(),
    ]
    found.append(_sandbox())
    strace = shutil.which("strace")
    found.append(Check("strace", strace is not None, strace or "missing", "needed by a test", "warning"))
    free = shutil.disk_usage(folder).free
    found.append(Check("disk", free > LOW_DISK, f"{free / 1e9:.1f} GB free", "make room", "warning"))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found.append(
        Check("memory", memory > LOW_MEMORY, f"{memory / 1e9:.1f} GB", "the engine needs 3 GB", "warning")
    )
    found.append(Check("processors", True, str(len(os.sched_getaffinity(0)))))
    return found


def _sandbox() -> Check:
    """Whether model-written commands can run here, and how they are held: `rtrl bench` needs it."""
    try:
        with classified():
            backend = open_backend()
            held = backend.describe()
    except DependencyDownError as error:
        return Check("sandbox", False, error.message, error.hint, "warning")
    return Check("sandbox", True, f"{backend.name}, trees: {held['trees']}, limits: {held['limits']}")


def _package(name: str) -> Check:
    if importlib.util.find_spec(name) is None:
        return Check(name, False, "not installed", "run scripts/setup")
    for distribution in (name, name.replace("_", "-"), f"{name}-cpu"):
        try:
            return Check(name, True, importlib.metadata.version(distribution))
        except importlib.metadata.PackageNotFoundError:
            continue
    return Check(name, True, "installed")


def _cpu_builds() -> list[Check]:
    """torchvision and friends come as CUDA builds and break `import vllm` beside a CPU torch."""
    try:
        on_cpu = "+cpu" in importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return []
    there = [name for name in BREAKS_VLLM if importlib.util.find_spec(name) is not None]
    if not on_cpu:
        return []
    return [
        Check(
            "no CUDA builds beside a CPU torch",
            not there,
            ", ".join(there) or "none",
            f"pip uninstall {' '.join(there)}: they break `import vllm`",
        )
    ]
