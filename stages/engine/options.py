"""vLLM's arguments for what not every engine has: a drafting head, adapters beside the weights, more than
one process."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

from stages.delta.layout import read_layout
from stages.engine.config import EngineConfig
from stages.engine.extra_args import name_of
from stages.errors import UsageError

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM has room for
# The adapter that is served, the one before, and one that is tried; the last stays empty (`adapter_held.py`).
SLOTS = 4
RUNTIME = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}  # its routes ask for the engine's key, as all do
NOT_LINEAR = frozenset({"embed_tokens", "lm_head"})  # a train run's adapters are on neither
# Arguments that say themselves over which processes the model is spread.
SPREADING = frozenset(
    {
        "--distributed-executor-backend",
        *("--tensor-parallel-size", "-tp"),
        *("--pipeline-parallel-size", "-pp"),
        *("--data-parallel-size", "-dp"),
        *("--data-parallel-size-local", "-dpl"),
        *("--decode-context-parallel-size", "-dcp"),
        *("--prefill-context-parallel-size", "-pcp"),
        *("--nnodes", "-n"),
    }
)
# Arguments that say how tokens are drafted.
DRAFTING = ("--speculative-config", "--spec-method", "--spec-model", "--spec-tokens")


def in_one_process(config: EngineConfig) -> bool:
    """Whether the engine core runs the model itself; it does unless `extra_args` spread the model.

    On CPUs vLLM would otherwise use a worker process of its own, and core and worker wait for each other
    in a loop of `sched_yield`: on two cores they starve everybody else for as long as they decode. It
    does so (vllm 0.32, `platforms/cpu.py`) even when asked for one process, unless
    VLLM_ENABLE_V1_MULTIPROCESSING is 0, which the server heeds nowhere else. On one GPU it is the default.
    vLLM takes `_` for `-` in the names of options, so both count.
    """
    return not any(name_of(argument) in SPREADING for argument in config.extra_args)


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


def require_drafts_hold(config: EngineConfig) -> None:
    """Raise UsageError where drafting would change what is sampled.

    vLLM 0.32 on CPUs hands no temperature, top-k or top-p to the tokens that were drafted: its
    `_expand_kernel_impl` (`utils/cpu_triton_utils.py`) fills a copy, and what memory held is taken for them.
    Greedy answers alone are right.
    """
    if config.program == "vllm" and config.drafts and "+cpu" in importlib.metadata.version("torch"):
        raise UsageError(
            "vLLM on CPUs samples drafted answers wrongly",
            hint="set engine.draft_tokens = 0, and take speculative decoding out of engine.extra_args",
        )


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
