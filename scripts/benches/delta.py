"""Deltas of trained checkpoints to their parents: bytes and seconds, and that they rebuild bit by bit.

A model of the program's own architecture, from a configuration, is pretrained a little on text-like data
(weights and Adam's moments as of a model in training, not as initialised). From there 1, 8 and 64 AdamW
steps at three learning rates, exported in float32 and bfloat16. Beside them the worst case: a child of
random bits, which nothing makes smaller.

All through the product: the delta is chosen and written as by `rtrl train`, published into a store, and
rebuilt as for any reader. Seconds are of this machine: writing (read both, encode, write, rebuild once to be
sure) and rebuilding (read, decode, hash, write, fsync).
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from stages.stage import Artifact

STEPS = (1, 8, 64)
RATES = (1e-6, 1e-5, 1e-4)
DTYPES = ("float32", "bfloat16")
PRETRAINING = 30  # steps, at 1e-3
MODEL = {
    "vocab_size": 4096,
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
BATCH = (4, 48)  # sequences, tokens
NAME = "model.safetensors"


@dataclass(frozen=True)
class Measured:
    """One setting: bytes published and of the whole file, seconds, and whether it came back."""

    dtype: str
    steps: int
    rate: float
    published: int
    whole: int
    write_s: float
    rebuild_s: float
    exact: bool


class Trainer:
    """A model in training. `batch` makes next-token data with something to learn in it."""

    def __init__(self) -> None:
        import torch
        from transformers import Qwen2Config, Qwen2ForCausalLM

        torch.manual_seed(0)
        self.model: PreTrainedModel = Qwen2ForCausalLM(Qwen2Config(**MODEL))
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0
        )
        self._generator = torch.Generator().manual_seed(1)

    def train(self, steps: int, rate: float) -> None:
        """`steps` AdamW steps, gradients clipped to norm 1 as in `rtrl train`."""
        import torch

        for group in self.optimizer.param_groups:
            group["lr"] = rate
        for _ in range(steps):
            start = torch.randint(MODEL["vocab_size"], (BATCH[0], 1), generator=self._generator)
            ids = (start + torch.arange(BATCH[1]) ** 2) % MODEL["vocab_size"]
            noise = torch.rand(ids.shape, generator=self._generator) < 0.1
            ids = torch.where(noise, torch.randint_like(ids, MODEL["vocab_size"]), ids)
            self.model(input_ids=ids, labels=ids).loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()

    def state(self) -> Any:
        """Weights and moments, to come back to."""
        import copy

        return copy.deepcopy((self.model.state_dict(), self.optimizer.state_dict()))

    def restore(self, state: Any) -> None:
        """Go back to `state`."""
        import copy

        weights, moments = copy.deepcopy(state)
        self.model.load_state_dict(weights)
        self.optimizer.load_state_dict(moments)

    def save(self, folder: Path, dtype: str) -> Path:
        """The weights as a checkpoint's file."""
        import torch
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        weights = {
            name: value.to(getattr(torch, dtype)).contiguous()
            for name, value in self.model.state_dict().items()
        }
        save_file(weights, folder / NAME, metadata={"format": "pt"})
        return folder / NAME


class Family:
    """A store in which children are published as `rtrl train` publishes them."""

    def __init__(self, folder: Path) -> None:
        from stages.registry.store import Store
        from stages.workspace import Workspace

        self.store = Store.open(Workspace.create(folder / "workspace", "").store_dir)

    def publish(self, folder: Path, base: str | None = None) -> Artifact:
        """A checkpoint of the files in `folder`."""
        from stages.stage import Output

        outputs = {"checkpoint": (Output("checkpoint", {}, base), folder)}
        return self.store.publish_external(outputs, line="auto")["checkpoint"]

    def measure(self, parent: Artifact, child: Path, dtype: str, steps: int, rate: float) -> Measured:
        """Publish the child of `parent`, have it rebuilt, compare every byte."""
        from stages.train.delta import as_delta

        original = child.read_bytes()
        published = as_delta(child.parent, parent, self.store, longest=1)
        checkpoint = self.publish(child.parent, published.base)
        began = time.perf_counter()
        exact = (self.store.checkpoint_folder(checkpoint) / NAME).read_bytes() == original
        seconds = time.perf_counter() - began
        shutil.rmtree(child.parent)
        return Measured(
            dtype, steps, rate, published.bytes, published.whole_bytes, published.seconds, seconds, exact
        )


def trained(folder: Path) -> list[Measured]:
    """All settings, each from the same pretrained parent."""
    family, trainer = Family(folder), Trainer()
    trainer.train(PRETRAINING, 1e-3)
    start = trainer.state()
    parents = {d: family.publish(trainer.save(folder / "parent" / d, d).parent) for d in DTYPES}
    found = []
    for rate in RATES:
        trainer.restore(start)
        for before, steps in zip((0, *STEPS), STEPS, strict=False):
            trainer.train(steps - before, rate)
            for dtype in DTYPES:
                child = trainer.save(folder / "child", dtype)
                found.append(family.measure(parents[dtype], child, dtype, steps, rate))
    return found


def random_child(folder: Path) -> Measured:
    """The worst case: weights of which every bit is random, in parent and child."""
    import numpy as np
    from safetensors.numpy import save_file

    rng, family = np.random.default_rng(0), Family(folder)
    for name in ("parent", "child"):
        (folder / name).mkdir(parents=True)
        bits = np.frombuffer(rng.bytes(1 << 23), np.uint32).reshape(1024, -1)
        save_file({"w": bits}, folder / name / NAME)
    parent = family.publish(folder / "parent")
    return family.measure(parent, folder / "child" / NAME, "random", 0, 0.0)


def figures() -> list[dict[str, Any]]:
    """The two figures with a bar, then bytes over the whole file and seconds of each setting."""
    with tempfile.TemporaryDirectory() as name:
        found = trained(Path(name) / "trained")
        worst = random_child(Path(name) / "random")
    every = [*found, worst]
    shares = [one.published / one.whole for one in every]
    rows = [
        {
            "id": "delta.worst_over_full",
            "what": "bytes published over the whole file, worst of all settings and of random bits",
            "value": max(shares),
            "unit": "ratio",
            "bar": "<= 1.01",
            "ours": every[shares.index(max(shares))].published,
            "theirs": every[shares.index(max(shares))].whole,
            "runs": len(every),
            "spread": [min(shares), max(shares)],
        },
        {
            "id": "delta.rebuild_errors",
            "what": "rebuilt files that differ in any byte",
            "value": sum(not one.exact for one in every),
            "unit": "files",
            "bar": "== 0",
            "runs": len(every),
        },
    ]
    return rows + [_setting(one) for one in found] + _speeds(found)


def _setting(one: Measured) -> dict[str, Any]:
    return {
        "id": f"delta.{one.dtype}_{one.rate:.0e}_{one.steps}".replace("e-0", "e-"),
        "what": f"delta over the whole file: {one.dtype}, learning rate {one.rate:g}, {one.steps} steps; "
        f"written in {one.write_s:.2f} s, rebuilt in {one.rebuild_s:.2f} s",
        "value": one.published / one.whole,
        "unit": "ratio",
        "bar": None,
        "ours": one.published,
        "theirs": one.whole,
        "write_s": one.write_s,
        "rebuild_s": one.rebuild_s,
    }


def _speeds(found: list[Measured]) -> list[dict[str, Any]]:
    rows = []
    for dtype in DTYPES:
        for what in ("write", "rebuild"):
            speeds = [one.whole / getattr(one, f"{what}_s") / 1e6 for one in found if one.dtype == dtype]
            rows.append(
                {
                    "id": f"delta.{what}_mb_s_{dtype}",
                    "what": f"whole file over the seconds to {what} it, {dtype}",
                    "value": statistics.median(speeds),
                    "unit": "MB/s",
                    "bar": None,
                    "runs": len(speeds),
                    "spread": [min(speeds), max(speeds)],
                }
            )
    return rows
