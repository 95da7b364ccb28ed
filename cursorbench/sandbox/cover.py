"""Folders that stand empty in a sandbox, whatever the machine has there: the packages of its interpreters.

Not here: which folders those are for a task (`cursorbench/tasks/environment.py`).
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from cursorbench.sandbox.protocol import Environment


def packages(prefix: Path) -> list[str]:
    """Where an interpreter keeps what was installed for it, none in a virtual environment.

    With what stands below its own folder: environments of pyenv-virtualenv and conda, conda's downloads.
    """
    top = prefix.resolve()
    found = [path for below in ("", "envs/*/") for path in top.glob(f"{below}lib*/python3*/*-packages")]
    if (top / "conda-meta").is_dir():
        found += top.glob("pkgs")
    return sorted(str(path.relative_to(top)) for path in found if path.resolve() == path)


def to_cover(environment: Environment, *, system: bool) -> list[str]:
    """Those of `environment.covered` that would be there; `system`: with the machine's own /usr."""
    found = []
    for place in dict.fromkeys(environment.covered):
        inside = max((one for one in environment.mounts if _below(place, one)), key=len, default="")
        if not inside and not (system and _below(place, "/usr")):
            continue
        host = environment.mounts[inside].resolve() if inside else Path("/usr")
        host /= PurePosixPath(place).relative_to(inside or "/usr")
        if host.is_dir() and host.resolve() == host:  # a link is covered where it leads
            found.append(place)
    return found


def _below(place: str, folder: str) -> bool:
    return PurePosixPath(place).is_relative_to(folder)
