"""The measurements of scripts/gpu_check.sh, one per call; see there. Prints one JSON document.

    train   tokens/s, model FLOP utilisation and memory of the update of `rtrl train`
    agree   forward logprobs of bfloat16 on the device against float32 on the CPU, prefixes shared

Utilisation counts 6 FLOPs a parameter and token (the embedding table not counted, the head only where
it computes) and causal attention, 6 L H D T a token; what activation checkpointing computes again does
not count (PaLM, Chowdhery et al. 2022, appendix B).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

VOCABULARY = 65536
SIZES: dict[str, dict[str, int]] = {  # dense, Qwen2's architecture
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4},
    "1b": {
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 22,
        "num_attention_heads": 16,
    },
    "4b": {
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 20,
    },
}
KV_HEADS = 4
PEAKS = {"H200": 989.0, "H100": 989.0, "A100": 312.0, "B200": 2250.0, "L40S": 362.0}  # dense bf16 TFLOP/s
AGREE_MEAN, AGREE_P99 = 0.05, 0.4  # nats, the tolerance of the on-policy proof for bfloat16
ANSWER = 0.25  # share of a sequence that is trained on


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("train", "agree"))
    parser.add_argument("--size", choices=sorted(SIZES), default="1b")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--length", type=int, default=16384, help="tokens of a sequence")
    parser.add_argument("--tokens", type=int, default=65536, help="tokens of a micro-batch")
    parser.add_argument("--steps", type=int, default=4, help="optimizer steps, the first not measured")
    parser.add_argument("--compile", action="store_true", help="torch.compile the layers")
    parser.add_argument("--keep-activations", action="store_true", help="no activation checkpointing")
    return parser.parse_args()


def make_model(size: str, *, compiled: bool = False) -> Any:
    """A random model on the CPU in float32, with packed attention."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from stages.train import attention

    vocabulary = 512 if size == "tiny" else VOCABULARY
    config = Qwen2Config(
        vocab_size=vocabulary, num_key_value_heads=KV_HEADS, max_position_embeddings=131072,
        tie_word_embeddings=False, **SIZES[size],
    )  # fmt: skip
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(config).eval()
    model.set_attn_implementation(attention.register(compiled=compiled))
    return model


def make_batch(count: int, length: int, vocabulary: int, shared: int = 0) -> Any:
    """`count` sequences whose last quarter is trained on; the first `shared` tokens are the same in all."""
    from stages.records import Sampling
    from stages.sequences import GenerationInfo
    from stages.tokens import ExperienceEpisode
    from stages.train.batch import Batch, Row

    rng = np.random.default_rng(0)
    batch, first = Batch(samplers=["parent"]), 0
    beginning = rng.integers(0, vocabulary, shared)
    for number in range(count):
        ids = np.concatenate([beginning, rng.integers(0, vocabulary, length - shared)]).astype(np.int32)
        prompt = length - max(1, int(length * ANSWER))
        zeros = np.zeros(length - prompt, np.int64)
        batch.episodes.append(ExperienceEpisode(f"e{number}", f"u{number}", "k", "", 1.0, True, "", ""))
        info = GenerationInfo(f"g{number}", prompt, length, Sampling())
        logged = np.full(length - prompt, -np.log(vocabulary), np.float32)
        targets = np.arange(prompt, length)
        batch.rows.append(Row(number, ids, targets, logged, zeros, zeros, (info,), first))
        first += length - prompt
    return batch


@contextmanager
def group_of_one() -> Iterator[None]:
    """The process group that a sharded model wants, as a run with one GPU makes it."""
    import torch.distributed as dist

    backend = "cpu:gloo,cuda:nccl" if dist.is_nccl_available() else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def placed(model: Any, options: argparse.Namespace) -> Any:
    """On the device, layers prepared, computing in bfloat16 over float32 masters."""
    import torch

    from stages.train import shard
    from stages.train.config import TrainConfig
    from stages.train.models import prepare

    wanted = "off" if options.keep_activations else "on"
    model = model.to(options.device)
    prepare(model, TrainConfig(activation_checkpointing=wanted, compile=options.compile))
    return shard.shard(model, torch.bfloat16)


def measure_training(options: argparse.Namespace) -> dict[str, Any]:
    """tokens/s, utilisation, peak memory of optimizer steps over one micro-batch each."""
    import torch

    from stages.progress import Silent
    from stages.runlog import NoLog
    from stages.train.attention import path_for
    from stages.train.config import TrainConfig
    from stages.train.moments import NEW
    from stages.train.update import TokenData, run_update

    model = make_model(options.size, compiled=options.compile)
    parameters = sum(each.numel() for each in model.parameters())
    vocabulary, layers = model.config.vocab_size, model.config.num_hidden_layers
    width = model.config.hidden_size
    count = max(1, options.tokens // options.length)
    batch = make_batch(count * options.steps, options.length, vocabulary)
    config = TrainConfig(
        optimizer_steps=options.steps,
        micro_batch_tokens=options.tokens,
        kl_stop=0,
        ess_stop=0,
        micro_checkpoints=0,
    )
    data = TokenData(
        batch.logged, batch.logged, batch.logged, np.ones(batch.tokens, np.float32), float(batch.tokens)
    )
    with group_of_one(), tempfile.TemporaryDirectory() as scratch:
        model = placed(model, options)
        updated = run_update(
            model, batch, data, config, moments=NEW, threads=1, seed=0, digest="check",
            scratch=Path(scratch), log=NoLog(), progress=Silent(),
        )  # fmt: skip
    rates = [step["tokens_per_s"] for step in updated.steps[1:]]
    head = vocabulary * width
    flops = 6 * (parameters - 2 * head) + 6 * head * ANSWER + 6 * layers * width * options.length
    return {
        "parameters": parameters,
        "attention": path_for(options.device, torch.bfloat16),
        "tokens_per_s": round(statistics.median(rates), 1),
        "spread": [round(min(rates), 1), round(max(rates), 1)],
        "tflops": round(statistics.median(rates) * flops / 1e12, 2),
        "mfu": _utilisation(statistics.median(rates) * flops / 1e12, options.device),
        "peak_memory_gib": _peak_gib(options.device),
    }


def _utilisation(tflops: float, device: str) -> float | None:
    import torch

    if device != "cuda":
        return None
    name = torch.cuda.get_device_name()
    peak = float(os.environ.get("RTRL_GPU_PEAK", "0")) or next(
        (v for k, v in PEAKS.items() if k in name), 0.0
    )
    return round(tflops / peak, 3) if peak else None


def _peak_gib(device: str) -> float | None:
    import torch

    return round(torch.cuda.max_memory_allocated() / 2**30, 2) if device == "cuda" else None


def measure_agreement(options: argparse.Namespace) -> dict[str, Any]:
    """|logp - logp| of the same tokens, bfloat16 on the device against float32 on the CPU."""
    from stages.train.forward import Budget, score

    model = make_model(options.size)
    batch = make_batch(3, options.length, model.config.vocab_size, shared=options.length // 2)
    budget = Budget(options.tokens, 256)
    expected, _ = score(model, batch.rows, batch.tokens, budget)
    with group_of_one():
        found, _ = score(placed(model, options), batch.rows, batch.tokens, budget)
    size = np.abs(found.astype(np.float64) - expected)
    mean, p99 = float(size.mean()), float(np.quantile(size, 0.99))
    return {
        "compared": len(size),
        "mean": mean,
        "p99": p99,
        "largest": float(size.max()),
        "agree": bool(mean <= AGREE_MEAN and p99 <= AGREE_P99),
    }


def main() -> int:
    """Measure and print."""
    import torch

    options = parse()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("gpu_check: torch sees no CUDA device here; --dry needs none", file=sys.stderr)
        return 1
    began = time.monotonic()
    measured = measure_training(options) if options.what == "train" else measure_agreement(options)
    device = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    about = {"device": device, "torch": torch.__version__, **vars(options)}
    print(json.dumps(about | measured | {"seconds": round(time.monotonic() - began, 1)}))
    return 0 if measured.get("agree", True) else 1


if __name__ == "__main__":
    sys.exit(main())
