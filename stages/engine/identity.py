"""What an engine's weights can be replaced under: the architecture, the tokenizer, the template.

Not here: the update itself (`update.py`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from stages.engine.remembered import remembered
from stages.errors import IntegrityError

# Keys of config.json that say nothing about how the model computes or reads text.
VOLATILE_KEYS = frozenset({"_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache"})
SAME_FILES = ("tokenizer.json", "chat_template.jinja")


class UpdateImpossibleError(IntegrityError):
    """The checkpoint differs in more than its weights: this engine cannot take it in place."""

    kind = "update_impossible"


class Identity(NamedTuple):
    """What weights cannot change of a checkpoint: its architecture, and the bytes of its SAME_FILES."""

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

    A weight update replaces tensors only; the engine goes on with the tokenizer it started with.
    """
    found = identity_of(checkpoint_dir)
    pairs = zip(SAME_FILES, started_with.files, found.files, strict=True)
    different = [name for name, old, new in pairs if old != new]
    if started_with.architecture != found.architecture:
        different.insert(0, "config.json")
    if different:
        raise UpdateImpossibleError(
            f"{different[0]} of {checkpoint_dir} is not the running engine's",
            hint="stop `rtrl serve`, run the command with --offline, start `rtrl serve` again",
        )


def _architecture(directory: Path) -> dict[str, Any]:
    path = directory / "config.json"
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise IntegrityError(f"{path} cannot be read: {error}", hint="run `rtrl verify --full`") from error
    return {key: value for key, value in config.items() if key not in VOLATILE_KEYS}
