"""Tasks of one's own for lm-eval, by their content: another one is another eval.

The folder's files, and files and folders of this machine that its tasks take their documents from
(`dataset_path`, `data_dir` and `data_files`) or their settings (`include`), wherever they are. Not here: what
is in them (`evals/suites/lm_eval_task.py`), documents from elsewhere.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cursorbench.files import sha256_of
from stages.errors import UsageError


def digests(folder: Path) -> dict[str, str]:
    """`sha256` by path: below the folder by the path there, else as it is named.

    Raises:
        UsageError: (exit 2) there is no such folder.
    """
    if not folder.is_dir():
        raise UsageError(
            f"eval.lm_eval_include: {folder} is no folder", hint="a path below the workspace, or absolute"
        )
    own = {path.relative_to(folder).as_posix(): path for path in _files(folder)}
    told = [path for path in own.values() if path.suffix in (".yaml", ".yml")]
    places = [place for path in told for place in (*_places(_settings(path)), *_included(path, set()))]
    inside = (folder, folder.resolve())
    named = {
        str(file) for place in places for file in _files(place) if not any(map(file.is_relative_to, inside))
    }
    every = own | {name: Path(name) for name in named}
    return {name: sha256_of(path) for name, path in sorted(every.items())}


def _files(place: Path) -> list[Path]:
    """A file, or all files below a folder but for what Python has compiled."""
    if place.is_file():
        return [place]
    return [path for path in sorted(place.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]


def _settings(path: Path, *, whole: bool = True) -> Mapping[str, Any]:
    """A task's settings, its programs by name alone; {} where they cannot be read: lm-eval says so itself.

    `whole`: with those of files that it includes.
    """
    from lm_eval.tasks._yaml_loader import load_yaml

    try:
        return dict(load_yaml(path, resolve_func=False, recursive=whole))
    except Exception:  # noqa: BLE001 - whatever a reader of YAML raises
        return {}


def _included(path: Path, seen: set[Path]) -> Iterator[Path]:
    """The files that a task's file includes, and the programs beside these, which their functions are of."""
    for name in _texts(_settings(path, whole=False).get("include")):
        place = (path.resolve().parent / name).resolve()
        if place not in seen and place.is_file():
            seen.add(place)
            yield from (place, *place.parent.glob("*.py"), *_included(place, seen))


def _places(task: Mapping[str, Any]) -> Iterator[Path]:
    """What is there of what a task's settings name: as `datasets` looks it up, from the current folder on.

    A group may have tasks of its own in its list.
    """
    listed = task.get("task")
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict):
            yield from _places(each)
    given = task.get("dataset_kwargs")
    known: Mapping[str, Any] = given if isinstance(given, dict) else {}
    folders = [text for text in (task.get("dataset_path"), known.get("data_dir")) if isinstance(text, str)]
    for text in [*folders, *_texts(known.get("data_files"))]:
        for name in [text, *(f"{folder}/{text}" for folder in folders)]:
            yield from map(Path, sorted(glob.glob(name, recursive=True)))  # noqa: PTH207


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
