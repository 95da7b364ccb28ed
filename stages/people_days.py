"""What `rtrl simulate` knows of a workspace: where its gateway is, and which days its people have lived.

Simulated people never repeat a day: the next `rtrl simulate` goes on with the next one. Not for: what
they do in it (`evals/population/`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cursorbench.files import write_whole
from stages.errors import DependencyDownError, InputMissingError, IntegrityError
from stages.gateway.key_file import DEFAULT_KEY
from stages.target.endpoint import running_endpoint
from stages.workspace import Workspace

FILE = "simulated_days.json"


@dataclass(frozen=True)
class Place:
    """A gateway and a key to it; `run_dir` is where days are noted, None without a workspace."""

    url: str
    key: str
    run_dir: Path | None


def place(folder: Path | None, url: str | None, key_file: Path | None) -> Place:
    """The gateway named, else the one the workspace serves.

    Raises:
        StoreError: there is no workspace, and not both `url` and `key_file` are given.
        DependencyDownError: (exit 13) nothing is being served.
        InputMissingError: (exit 5) no key file.
    """
    if url is not None and key_file is not None:
        return Place(url, _key(key_file), None)
    workspace = Workspace.find(folder)
    if url is None:
        endpoint = running_endpoint(workspace.run_dir)
        if endpoint is None:
            raise DependencyDownError(
                f"nothing is being served in {workspace.root}", hint="start `rtrl serve --detach` first"
            )
        url = endpoint.url
    return Place(url, _key(key_file or workspace.keys_dir / DEFAULT_KEY), workspace.run_dir)


def _key(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except FileNotFoundError as error:
        raise InputMissingError(f"there is no API key at {path}", hint="name one with --key-file") from error


def _days(run_dir: Path) -> dict[str, int]:
    path = run_dir / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, int])
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise IntegrityError(
            f"{path} is no table of days: {error}", hint="remove it, and name --day yourself"
        ) from error


def next_day(run_dir: Path | None, split: str, seed: int) -> int:
    """The first day these people have not lived yet."""
    return 0 if run_dir is None else _days(run_dir).get(f"{split}-{seed}", -1) + 1


def lived(run_dir: Path | None, split: str, seed: int, day: int) -> None:
    """Note that a day is over."""
    if run_dir is None:
        return
    days = _days(run_dir)
    name = f"{split}-{seed}"
    days[name] = max(day, days.get(name, -1))
    write_whole(run_dir / FILE, (json.dumps(days, sort_keys=True) + "\n").encode())
