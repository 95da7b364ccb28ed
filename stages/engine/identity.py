"""What an engine's weights can be replaced under: the architecture, the tokenizer, the template.

Not here: the update itself (`update.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from stages.engine.remembered import remembered
from stages.errors import IntegrityError
from stages.model_config import as_read

# Keys of config.json that say nothing about how the model computes or reads text.
VOLATILE_KEYS = frozenset({"_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache"})
SAME_FILES = ("tokenizer.json", "chat_template.jinja")


class UpdateImpossibleError(IntegrityError):
    """The checkpoint differs in more than its weights: this engine cannot take it in place."""

    kind = "update_impossible"


class Identity(NamedTuple):
    """What weights cannot change of a checkpoint: its architecture, and the bytes of its SAME_FILES.

    `architecture` is as it is written; `require_same_model` knows what says the same in other words.
    """

    architecture: dict[str, Any]
    files: tuple[bytes | None, ...]


@remembered
def identity_of(checkpoint_dir: Path) -> Identity:
    """Read while the folder is there: one that was rebuilt is removed in time. Raises IntegrityError (12)."""
    paths = [checkpoint_dir / name for name in SAME_FILES]
    files = tuple(_bytes(path) for path in paths)
    return Identity(_architecture(checkpoint_dir), files)


def different_files(started_with: Path, checkpoint_dir: Path) -> list[str]:
    """Which of SAME_FILES are not those of the folder that an engine reads text with; [] if it is gone."""
    if not started_with.is_dir():
        return []
    pairs = [(name, started_with / name, checkpoint_dir / name) for name in SAME_FILES]
    return [name for name, old, new in pairs if _bytes(old) != _bytes(new)]


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def require_same_model(started_with: Identity, checkpoint_dir: Path) -> None:
    """Raise UpdateImpossibleError unless architecture, tokenizer and template are the started ones.

    A weight update replaces tensors only; the engine goes on with the tokenizer it started with. The first
    pair of configurations that are written differently takes seconds: transformers is imported.
    """
    found = identity_of(checkpoint_dir)
    pairs = zip(SAME_FILES, started_with.files, found.files, strict=True)
    different = [name for name, old, new in pairs if old != new]
    if not _same(started_with.architecture, found.architecture):
        different.insert(0, "config.json")
    if different:
        raise UpdateImpossibleError(
            f"{different[0]} of {checkpoint_dir} is not the running engine's",
            hint="stop `rtrl serve`, run the command with --offline, start `rtrl serve` again",
        )


def _architecture(directory: Path) -> dict[str, Any]:
    path = directory / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise IntegrityError(f"{path} cannot be read: {error}", hint="run `rtrl verify --full`") from error
    return _lasting(config)


def _lasting(config: Mapping[str, Any]) -> dict[str, Any]:
    """Without VOLATILE_KEYS, also where models within the model have their own."""
    return {
        key: _lasting(value) if isinstance(value, dict) and "model_type" in value else value
        for key, value in config.items()
        if key not in VOLATILE_KEYS
    }


def _same(one: Mapping[str, Any], two: Mapping[str, Any]) -> bool:
    """Whether two configurations are of one model: written alike, or read alike by transformers."""
    if one == two:
        return True
    if "model_type" not in one or one["model_type"] != two.get("model_type"):
        return False
    ours, theirs = (_read(json.dumps(each, sort_keys=True)) for each in (one, two))
    return ours is not None and ours == theirs


@lru_cache(maxsize=16)
def _read(written: str) -> dict[str, Any] | None:
    """What transformers makes of a configuration; None where it makes nothing."""
    try:
        return _lasting(as_read(json.loads(written)))
    except ValueError:
        return None
