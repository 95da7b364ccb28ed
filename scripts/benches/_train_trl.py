"""TRL's GRPO trainer on a given batch, in TRL's own environment: `_train_trl.py BATCH MODEL OUT`.

A line on stdin, a number of threads, lets it take one optimizer step; a line on stdout says how many
seconds that took. What it trains on is put in the place of what it would have generated, so that only
training is measured: prompts padded on the left, answers on the right, to the longest of a micro-batch.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch

from benches._train_batch import load

MICRO = 8
Tensors = dict[str, torch.Tensor]


def main() -> None:
    """Steps of GRPO over the given batch, each when a line on stdin says with how many threads."""
    batch, folder, out = load(Path(sys.argv[1])), sys.argv[2], sys.argv[3]
    told = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    micro = [padded(batch[first : first + MICRO]) for first in range(0, len(batch), MICRO)]
    trainer(folder, out, micro, told).train()


def trainer(folder: str, out: str, micro: list[Tensors], told: TextIO) -> Any:
    """TRL's, that takes its batches from `micro` and tells the seconds of each step."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    class Given(GRPOTrainer):  # type: ignore[misc]  # of another environment
        def _prepare_inputs(self, generation_batch: object) -> Tensors:
            found: Tensors = micro[self._step % len(micro)]
            return found

    config = GRPOConfig(
        output_dir=out,
        per_device_train_batch_size=MICRO,
        gradient_accumulation_steps=len(micro),
        num_generations=MICRO,
        max_steps=1000,
        learning_rate=1e-6,
        beta=0.0,
        bf16=False,
        use_cpu=True,
        gradient_checkpointing=False,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    return Given(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=config,
        train_dataset=Dataset.from_list([{"prompt": "w"}] * (MICRO * len(micro))),
        processing_class=PreTrainedTokenizerFast.from_pretrained(folder),
        callbacks=[clock(told)],
    )


def clock(told: TextIO) -> Any:
    """A callback that waits for stdin before each step, and tells how long the step took."""
    from transformers import TrainerCallback

    class Clock(TrainerCallback):  # type: ignore[misc]  # of another environment
        began = 0.0

        def on_step_begin(self, args: object, state: object, control: object, **_: object) -> None:
            if not (line := sys.stdin.readline()):
                sys.exit(0)
            torch.set_num_threads(int(line))
            self.began = time.perf_counter()

        def on_step_end(self, args: object, state: object, control: object, **_: object) -> None:
            print(time.perf_counter() - self.began, file=told)

    return Clock()


def padded(chosen: list[tuple[np.ndarray, int]]) -> Tensors:
    prompts = [ids[:prompt] for ids, prompt in chosen]
    answers = [ids[prompt:] for ids, prompt in chosen]
    sides = {}
    for name, parts, left in (("prompt", prompts, True), ("completion", answers, False)):
        width = max(map(len, parts))
        ids = np.zeros((len(parts), width), np.int64)
        mask = np.zeros_like(ids)
        for row, part in enumerate(parts):
            where = slice(width - len(part), width) if left else slice(0, len(part))
            ids[row, where], mask[row, where] = part, 1
        sides[f"{name}_ids"], sides[f"{name}_mask"] = torch.from_numpy(ids), torch.from_numpy(mask)
    advantages = torch.linspace(-1, 1, len(chosen))
    return sides | {"advantages": advantages, "num_items_in_batch": sides["completion_mask"].sum()}


if __name__ == "__main__":
    main()
