"""What a checkpoint line remembers besides weights: the files of a `line_state` artifact.

    state.json             baselines, latency medians, stabiliser, monitor histories, where the masters are
    masters.safetensors    float32 master weights; absent when the checkpoint itself is float32. With an
                           adapter: of its base, absent when the base checkpoint has them
    adapter.safetensors    float32 LoRA adapter and the digest of its base, when one is trained
    optimizer.safetensors  Adam's moments; optional
    consumed.parquet       the episodes trained on in this ancestry, see `consumed.py`

Written by `init`, `distill` (which changes the small state and carries the files) and `train`.
Not here: what the numbers mean. `latency`, `stabiliser` and `monitors` belong to the stages that fill them.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from cursorbench.files import write_whole
from stages.consumed import CONSUMED_FILE
from stages.errors import IntegrityError

SCHEMA: Final = "rtrl-line-state/1"
STATE_FILE = "state.json"
Masters = Literal["checkpoint", "masters.safetensors", "adapter.safetensors"]
MASTERS_FILE: Final = "masters.safetensors"
ADAPTER_FILE: Final = "adapter.safetensors"
OPTIMIZER_FILE = "optimizer.safetensors"
CARRIED_FILES = (MASTERS_FILE, ADAPTER_FILE, OPTIMIZER_FILE, CONSUMED_FILE)


class Baseline(msgspec.Struct, frozen=True):
    """A running mean of reward and the (decayed) number of episodes it stands on."""

    value: float
    weight: float


class LineState(msgspec.Struct, kw_only=True):
    """`state.json`. `baselines` is keyed by the reward (`rewarded.py`), then stratum; "*" is the whole line.

    `line` is whose windows are in `stabiliser` and `monitors`; "" before the first, and in old ones.
    From the generation `consumed_from` on all episodes that were trained on are listed; 0: all there were.
    """

    schema: Literal["rtrl-line-state/1"] = SCHEMA
    baselines: dict[str, dict[str, Baseline]] = {}
    latency: dict[str, Any] = {}
    stabiliser: dict[str, Any] = {}
    monitors: dict[str, Any] = {}
    line: str = ""
    masters: Masters = "checkpoint"
    consumed_from: int = 0

    @classmethod
    def load(cls, folder: Path) -> LineState:
        """Read `folder/state.json`. Raises IntegrityError when it is missing, torn or of another schema."""
        path = folder / STATE_FILE
        try:
            state = msgspec.json.decode(path.read_bytes(), type=cls)
        except FileNotFoundError as error:
            raise IntegrityError(f"{folder} holds no {STATE_FILE}", hint="rtrl verify --full") from error
        except ValueError as error:
            raise IntegrityError(
                f"{path} is not a line state of schema {SCHEMA}: {error}", hint="rtrl verify --full"
            ) from error
        if state.masters != "checkpoint" and not (folder / state.masters).is_file():
            raise IntegrityError(f"{path} names {state.masters}, which is missing", hint="rtrl verify --full")
        return state

    def save(self, folder: Path, *, carry: Path | None = None) -> None:
        """Write `folder/state.json` atomically; with `carry`, take over that state's other files unchanged.

        Carried files are hard links where the file system allows it (artifacts are immutable), else copies.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if carry is not None:
            for name in CARRIED_FILES:
                if (carry / name).is_file():
                    _link_or_copy(carry / name, folder / name)
        content = msgspec.json.format(msgspec.json.encode(self, order="deterministic"), indent=1)
        write_whole(folder / STATE_FILE, content + b"\n")


def _link_or_copy(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        shutil.copyfile(source, target)
