"""A task's environment, opened: what a sandbox of it is made from.

The working copy is checked out from the task's bundle, the virtual environment is built from its lock,
both once into a cache that sandboxes only read. Inside, `python` is `/venv/bin/python`, the working tree
stands where the task says (`/work`), noisy logs at `/context`. What else is installed for the machine's
interpreters is covered. Not here: the sandbox.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import sys
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

from cursorbench.errors import IntegrityError, SandboxError
from cursorbench.sandbox.cover import packages
from cursorbench.sandbox.protocol import Environment, Limits
from cursorbench.tasks import bundle, scripts, venv
from cursorbench.tasks.cache import made_once
from cursorbench.tasks.container import CONTEXT, python_variables
from cursorbench.tasks.folder import walk, within
from cursorbench.tasks.scripts import VENV
from cursorbench.tasks.settings import Invalid
from cursorbench.tasks.task import Kind, Task

PATH = f"{VENV}/bin:/usr/local/bin:/usr/bin:/bin"


def open(task: Task, kept: Path) -> Environment:
    """What a sandbox of the task is made from; the first time takes as long as a clone and a pip install.

    Args:
        task: of any kind.
        kept: the cache, a folder of the machine, shared by suites and processes; made when it is not there.

    Raises:
        SandboxError: (exit 13) the task needs a container engine and there is none.
        IntegrityError: (exit 12) bundle or lock is not what it claims to be.
        InputMissingError, DependencyDownError: as `venv.build`.
    """
    spec = task.environment
    require_here(task)
    mounts: dict[str, Path] = {}
    covered: list[str] = []
    if spec.kind == "python":
        built, python = venv.build(task.lock, spec.python, kept, scripts.of_overlay(task.overlay))
        mounts[VENV] = built
        prefix = python.prefix
        covered = _others(prefix)
    else:
        prefix = Path(sys.base_prefix)
        mounts[VENV] = Path(sys.prefix)
    if not prefix.is_relative_to("/usr"):
        mounts[str(prefix)] = prefix  # links and home of the virtual environment lead there
    if task.logs.is_dir():
        mounts[CONTEXT] = task.logs.resolve()
    return Environment(
        root=_tree(task, kept),
        mounts=mounts,
        variables={"PATH": PATH} | python_variables(task),
        image=spec.image,
        workdir=spec.workdir,
        covered=covered,
    )


def _others(prefix: Path) -> list[str]:
    """Packages of the task's interpreter and of this machine's own, none of which its lock names.

    A release of what the task is about would be its solution, whether or not Python imports it from there.
    """
    folders = (prefix, Path("/usr"), Path("/usr/local"))
    return sorted({f"{folder}/{path}" for folder in folders for path in packages(folder)})


def require_here(task: Task) -> None:
    """Raise SandboxError (exit 13) when a task's environment can never be made on this machine."""
    if task.environment.kind == "docker":
        raise SandboxError(
            f"{task.name} needs Docker: it came with an image of its own",
            hint="run it with Harbor, or leave it out",
        )


@cache
def of_machine(kind: Kind, python: str) -> str:
    """What an environment takes from this machine and no task's digest knows: results are comparable where
    this is equal, too. The interpreter's exact version; of the host's environment all that is installed.

    Raises:
        InputMissingError: (exit 5) there is no such Python.
    """
    if kind == "python":
        return f"python {venv.interpreter(python).version} on {sys.platform} {platform.machine()}"
    if kind == "docker":
        return "docker"
    known = sorted({f"{one.name}=={one.version}" for one in distributions()})
    told = "\n".join([sys.version, sys.platform, platform.machine(), *known])
    return f"host {hashlib.sha256(told.encode()).hexdigest()}"


def limits(task: Task) -> Limits:
    """What a sandbox of the task may use, as its settings say; the sandbox's own where they are silent."""
    spec, usual = task.environment, Limits()
    return Limits(
        memory=spec.memory_mb << 20 if spec.memory_mb else usual.memory,
        disk=spec.storage_mb << 20 if spec.storage_mb else usual.disk,
        wall_s=task.verifier_timeout_s,
        cpu_s=max(usual.cpu_s, task.verifier_timeout_s),
    )


def _tree(task: Task, kept: Path) -> Path:
    """The working copy as a sandbox starts with it: another suite's only where all of it is equal."""
    overlay: dict[str, Path] = {}
    try:
        overlay = {str(path.relative_to(task.overlay)): path for path in walk(task.overlay)}
    except Invalid as error:
        raise IntegrityError(f"{task.overlay}: {error}") from error
    cut = bundle.beside(task.bundle)
    known = hashlib.sha256()
    for part in (task.bundle.read_bytes(), cut.read_bytes() if cut.exists() else b""):
        known.update(b"%d\0" % len(part) + part)
    for name, path in overlay.items():
        part = path.read_bytes()
        known.update(f"{name}\0{path.stat().st_mode & 0o111}\0{len(part)}\0".encode() + part)

    def make(folder: Path) -> None:
        bundle.checkout(task.bundle, folder, tree=task.environment.tree, ignored=list(overlay))
        for name, path in overlay.items():
            place = within(folder, name)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)

    return made_once(kept, "trees", known.hexdigest()[:32], make)
