"""A LoRA adapter beside a checkpoint's merged weights, as `rtrl train` publishes it, and whether it can be
served from there: which base it is of, and what an engine must be able to do.

    W' = W + scale B A          A [rank, in], B [out, rank]

Reads the folder `adapter/` (PEFT's layout); needs no torch. Not here: loading it (`adapter_control.py`),
whether the merged weights are base and adapter (`adapter_file.py`).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from stages.engine.config import EngineConfig
from stages.engine.options import in_one_process
from stages.errors import IntegrityError

FOLDER = "adapter"
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# What PEFT can do more, and its value when it does not: vLLM would serve something else, or nothing.
PLAIN: dict[str, Any] = {
    "use_dora": False,
    "use_rslora": False,
    "bias": "none",
    "modules_to_save": None,
    "rank_pattern": {},
    "alpha_pattern": {},
    "trainable_token_indices": None,
}


class Adapter(NamedTuple):
    """What there is to know of an adapter without its values.

    Attributes:
        base: digest of the checkpoint that it is of.
        modules: the last part of its layers' names.
        key: sha256 of its files, which stands for its values.
        odd: what it has that makes it more than A and B; "" for nothing.
    """

    folder: Path
    base: str
    rank: int
    scale: float
    modules: frozenset[str]
    key: str
    odd: str

    @property
    def name(self) -> str:
        """What an engine calls it. Other values, another name: vLLM's prefix cache goes by it."""
        return f"adapter-{self.key[:24]}"


class Ability(NamedTuple):
    """What an engine can do with adapters.

    Attributes:
        modules: the last part of the names of layers that it puts adapters on.
        rank: the largest.
    """

    modules: frozenset[str]
    rank: int


def adapter_of(checkpoint_dir: Path) -> Adapter | None:
    """The adapter that the checkpoint was merged from; None without one. Raises IntegrityError (12)."""
    folder = checkpoint_dir / FOLDER
    if not folder.is_dir():
        return None
    try:
        written = (folder / CONFIG).read_bytes()
        config = json.loads(written)
        with (folder / WEIGHTS).open("rb") as file:
            values = hashlib.file_digest(file, "sha256").digest()
        rank, targets = int(config["r"]), config["target_modules"]
        odd = next((name for name, plain in PLAIN.items() if (config.get(name) or plain) != plain), "")
        return Adapter(
            folder=folder,
            base=str(config["base_model_name_or_path"]),
            rank=rank,
            scale=float(config["lora_alpha"]) / rank,
            modules=frozenset(map(str, [targets] if isinstance(targets, str) else targets)),
            key=hashlib.sha256(written + values).hexdigest(),
            odd=odd,
        )
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise IntegrityError(f"{folder} is damaged: {error}", hint="run `rtrl verify --full`") from error


def unable(config: EngineConfig) -> str:
    """Why an engine with these settings has no adapters beside its weights; "" when it has."""
    if not config.lora_rank:
        return "engine.lora_rank is 0"
    if config.program != "vllm":
        return "the stub has no adapters"
    if not in_one_process(config):
        return "the model is spread over processes"
    return ""


def unfit(adapter: Adapter, ability: Ability) -> str:
    """Why an engine cannot serve this adapter; "" when it can."""
    if adapter.odd:
        return f"its adapter has {adapter.odd}"
    if adapter.rank > ability.rank:
        return f"its adapter has rank {adapter.rank}, the engine takes {ability.rank} (engine.lora_rank)"
    if more := sorted(adapter.modules - ability.modules):
        return f"its adapter is on {', '.join(more)}, where the engine has none"
    return ""
