"""What vLLM really does with LoRA adapters on this machine, against the merged weights in float32.

    python scripts/adapters.py [--dtype float32|bfloat16] [--answers N] [--json]

The seed model is the base, two random adapters on all its linear layers are the policies. Printed are

    off      |logged - policy| of sampled tokens, nats: what the on-policy proof of `rtrl train` sees, of
             answers by base and adapter and by merged weights, with the proof's tolerance beside them
    mixed    the same for requests without an adapter that share their batches with adapters' requests,
             with the engine's last slot empty (as `rtrl serve` keeps it) and filled
    cached   tokens of a prompt that come from the prefix cache: asked again by the same name, and by another
    speed    tokens/s by base and adapter over tokens/s by merged weights

vLLM in process; about a minute on two free cores. Not for: what a swap costs (`bench.py deploy`).
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

RANK, STEP, SLOTS, TOKENS, PROMPT = 16, 0.02, 3, 64, 16


def make(root: Path) -> tuple[Path, list[Path]]:
    """The base in float32, and two merged children with their adapters beside them."""
    from stages import modelio
    from stages.init import seed_folder
    from stages.train.fake_child import write_lora_child

    base = root / "base"
    modelio.save_checkpoint(
        modelio.load_model(seed_folder()), base, companions=seed_folder(), dtype="float32"
    )
    children = [
        write_lora_child(base, root / f"child-{seed}", base="sha256:base", rank=RANK, step=STEP, seed=seed)
        for seed in (1, 2)
    ]
    return base, children


class Bench:
    """One engine with room for adapters."""

    def __init__(self, base: Path, dtype: str) -> None:
        from vllm import LLM

        self.llm = LLM(
            model=str(base),
            dtype=dtype,
            max_model_len=512,
            max_num_seqs=32,
            enforce_eager=True,
            distributed_executor_backend="uni",
            worker_extension_cls="stages.engine.worker.WorkerExtension",
            logprobs_mode="processed_logprobs",
            generation_config="vllm",
            disable_log_stats=True,
            enable_lora=True,
            max_loras=SLOTS,
            max_cpu_loras=SLOTS,
            max_lora_rank=RANK,
        )
        random = np.random.default_rng(0)
        self.prompt = [int(each) for each in random.integers(5, 300, PROMPT)]

    def answers(
        self, count: int, adapters: list[Any]
    ) -> tuple[list[list[tuple[list[int], list[float]]]], float]:
        """By adapter (None: without), `count` answers: ids and logged logprobs; and tokens/s of all."""
        from vllm import SamplingParams

        sampling = SamplingParams(temperature=1.0, max_tokens=TOKENS, ignore_eos=True, logprobs=0)
        asked = [each for each in adapters for _ in range(count)]
        asked = [asked[i] for i in np.random.default_rng(1).permutation(len(asked))]
        began = time.monotonic()
        prompts = [{"prompt_token_ids": self.prompt}] * len(asked)
        outputs = self.llm.generate(prompts, sampling, lora_request=asked, use_tqdm=False)
        speed = len(asked) * TOKENS / (time.monotonic() - began)
        found: list[list[tuple[list[int], list[float]]]] = [[] for _ in adapters]
        for adapter, output in zip(asked, outputs, strict=True):
            best = output.outputs[0]
            logged = [entry[t].logprob for t, entry in zip(best.token_ids, best.logprobs, strict=True)]
            found[adapters.index(adapter)].append((list(best.token_ids), logged))
        return found, speed

    def cached(self, adapters: list[Any]) -> list[int]:
        """Tokens of one long prompt out of the prefix cache, asked for by each in turn."""
        from vllm import SamplingParams

        prompt = [{"prompt_token_ids": (self.prompt * 20)[:300]}]
        sampling = SamplingParams(max_tokens=1)
        ask = self.llm.generate
        return [ask(prompt, sampling, lora_request=a, use_tqdm=False)[0].num_cached_tokens for a in adapters]


def off(folder: Path, prompt: list[int], answers: list[tuple[list[int], list[float]]]) -> dict[str, float]:
    """Mean, 99th percentile, largest |logged - policy| of answers; the policy is `folder` in float32."""
    import torch

    from stages import modelio

    model, found = modelio.load_model(folder), []
    for ids, logged in answers:
        with torch.no_grad():
            logits = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1].float()
        policy = torch.log_softmax(logits, -1).gather(1, torch.tensor(ids)[:, None])[:, 0].numpy()
        found.append(np.abs(policy - np.array(logged)))
    all_ = np.concatenate(found)
    return {"mean": float(all_.mean()), "p99": float(np.quantile(all_, 0.99)), "max": float(all_.max())}


def measure(root: Path, dtype: str, count: int) -> dict[str, Any]:
    """All figures."""
    from vllm.lora.request import LoRARequest

    from stages.train.proof import TOLERANCES

    base, (one, two) = make(root)
    bench = Bench(base, dtype)
    names = [LoRARequest(f"a{i}", i, str(each / "adapter")) for i, each in enumerate((one, two), 1)]
    tolerance = TOLERANCES[dtype]
    figures: dict[str, Any] = {"dtype": dtype, "tolerance": {"mean": tolerance.mean, "p99": tolerance.p99}}
    bench.answers(2, [names[0]])  # what is made on first use is made now
    (alone,), by_adapter = bench.answers(count, [names[0]])
    figures["off_adapter"] = off(one, bench.prompt, alone)
    (_, plain), _ = bench.answers(count, [names[0], None])
    figures["mixed_last_slot_empty"] = off(base, bench.prompt, plain)
    figures["cached"] = dict(
        zip(("first", "again", "other"), bench.cached([names[0]] * 2 + names[1:]), strict=True)
    )
    third = LoRARequest("a3", 3, str(two / "adapter"))
    (_, _, _, plain), _ = bench.answers(count, [*names, third, None])
    figures["mixed_last_slot_filled"] = off(base, bench.prompt, plain)
    bench.llm.collective_rpc("rtrl_load", kwargs={"path": str(one)})
    bench.llm.reset_prefix_cache()
    (merged,), by_merged = bench.answers(count, [None])
    figures["off_merged"] = off(one, bench.prompt, merged)
    figures["speed"] = {"adapter": by_adapter, "merged": by_merged, "ratio": by_adapter / by_merged}
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--answers", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    from stages.engine.config import EngineConfig
    from stages.engine.process import environment

    os.environ.update(environment(EngineConfig()) | {"OMP_NUM_THREADS": "1"})
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), arguments.dtype, arguments.answers)
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:24}", value)


if __name__ == "__main__":
    main()
