"""vLLM's arguments for what not every engine has: a drafting head, adapters beside the weights."""

from __future__ import annotations

import json
from pathlib import Path

from stages.delta.layout import read_layout
from stages.engine.config import EngineConfig

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM has room for
# The adapter that is served, the one before, and one that is tried; the last stays empty (`adapter_held.py`).
SLOTS = 4
RUNTIME = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}  # its routes ask for the engine's key, as all do
NOT_LINEAR = frozenset({"embed_tokens", "lm_head"})  # a train run's adapters are on neither


def drafting(checkpoint_dir: Path, config: EngineConfig) -> list[str]:
    """Speculative decoding with the head in `mtp/`. vLLM's drafter reads its depth from the model's own
    configuration, where Qwen2's has none."""
    draft = checkpoint_dir / "mtp"
    if not config.draft_tokens or not draft.is_dir():
        return []
    speculative = {"method": "mtp", "model": str(draft), "num_speculative_tokens": config.draft_tokens}
    return [
        *("--speculative-config", json.dumps(speculative)),
        *("--hf-overrides", json.dumps({"num_nextn_predict_layers": 1})),
    ]


def adapters(checkpoint_dir: Path, config: EngineConfig) -> list[str]:
    """Room for adapters on the linear layers of the checkpoint; none for a model that has no such layers."""
    layers = linear_layers(checkpoint_dir) if config.lora_rank else []
    if not layers:
        return []
    rank = next(each for each in RANKS if each >= config.lora_rank)
    return [
        "--enable-lora",
        *("--max-loras", str(SLOTS), "--max-cpu-loras", str(SLOTS)),
        *("--max-lora-rank", str(rank)),
        *("--lora-target-modules", *layers),
    ]


def linear_layers(checkpoint_dir: Path) -> list[str]:
    """The last part of the names of matrices that are neither embedding nor head; [] with experts, whose
    adapters are another matter."""
    found = set()
    for path in sorted(checkpoint_dir.glob("*.safetensors")):
        head = json.loads(read_layout(path).head[8:])
        for name, about in head.items():
            layer, _, kind = name.rpartition(".")
            if kind == "weight" and len(about["shape"]) == 2:
                found.add(layer)
    if any(".experts" in layer for layer in found):
        return []
    return sorted({layer.rpartition(".")[2] for layer in found} - NOT_LINEAR)
