"""Who `bench.py train` compares: our update, the bare passes, a plain padded loop, TRL in its own process.

Each takes one optimizer step (the bare passes none) over the same batch and says how many seconds it took.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benches._processes import ROOT, SCRIPTS, module
from benches._train_batch import MODEL, VOCABULARY

PEER_HOME = ROOT / "build" / "bench-trl"
PEER = "trl>=1.16,<2"
THREADS = int(os.environ.get("RTRL_BENCH_THREADS", "2"))
MICRO = 8  # sequences of a padded micro-batch, what TRL does by default

Sequences = list[tuple[NDArray[np.int32], int]]


def write_model(folder: Path) -> None:
    """The model that all load, and a tokenizer, which TRL wants to see."""
    import torch
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    Qwen2ForCausalLM(Qwen2Config(**MODEL)).save_pretrained(folder)
    words = {f"w{n}" if n else "w": n for n in range(VOCABULARY)}
    plain = Tokenizer(models.WordLevel(words, unk_token="w"))
    PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="w1", pad_token="w2").save_pretrained(folder)


class Ours:
    """The update of `rtrl train`, from a batch in memory to the micro-checkpoint on disk."""

    def __init__(self, batch: Sequences, home: Path) -> None:
        from stages import modelio
        from stages.records import Sampling
        from stages.sequences import GenerationInfo
        from stages.tokens import ExperienceEpisode
        from stages.train import attention
        from stages.train.batch import Batch, Row
        from stages.train.config import TrainConfig
        from stages.train.forward import Budget

        self.model = modelio.load_model(home / "model", attention=attention.register())
        self.config = TrainConfig(optimizer_steps=1, ess_stop=0, kl_stop=0)
        self.budget = Budget(
            self.config.micro_batch_tokens, self.config.logits_mib, THREADS, self.config.model_copies
        )
        self.home = home
        self.batch = Batch(samplers=["parent"])
        first = 0
        for number, (ids, prompt) in enumerate(batch):
            count = len(ids) - prompt
            self.batch.episodes.append(
                ExperienceEpisode(f"e{number}", f"u{number}", "k", "", number / len(batch), True, "", "")
            )
            zeros = np.zeros(count, np.int64)
            info = GenerationInfo(f"g{number}", prompt, len(ids), Sampling())
            logged = np.full(count, -np.log(VOCABULARY), np.float32)
            targets = np.arange(prompt, len(ids))
            self.batch.rows.append(Row(number, ids, targets, logged, zeros, zeros, (info,), first))
            first += count

    def update(self) -> float:
        """Seconds of one optimizer step over the batch."""
        import torch

        from stages.progress import Silent
        from stages.runlog import NoLog
        from stages.train.moments import NEW
        from stages.train.parallel import copies_for
        from stages.train.update import TokenData, run_update

        coefficient = np.linspace(-1, 1, self.batch.tokens, dtype=np.float32)
        logged = self.batch.logged
        data = TokenData(logged, logged, logged, coefficient, float(self.batch.tokens))
        torch.set_num_threads(THREADS // copies_for(self.model, THREADS, self.config.model_copies))
        with tempfile.TemporaryDirectory(dir=self.home) as scratch:
            began = time.perf_counter()
            run_update(
                self.model, self.batch, data, self.config,
                moments=NEW, threads=THREADS, seed=0, digest="bench", scratch=Path(scratch), log=NoLog(),
                progress=Silent(),
            )  # fmt: skip
            return time.perf_counter() - began

    def score(self) -> float:
        """Seconds of scoring the batch, as the on-policy proof does before the update."""
        import torch

        from stages.train.forward import score

        torch.set_num_threads(1)
        began = time.perf_counter()
        score(self.model, self.batch.rows, self.batch.tokens, self.budget)
        return time.perf_counter() - began


class Bare(Ours):
    """Forward and backward over the same packs on as many threads, cross-entropy, and nothing else."""

    def run(self) -> float:
        """Seconds of the passes."""
        import torch
        from torch.nn.functional import cross_entropy

        from stages.train.forward import assemble, plan
        from stages.train.logprobs import hidden_states
        from stages.train.parallel import placed

        micro = [assemble(rows) for rows in plan(self.batch.rows, self.budget)]

        def one(model: Any, chosen: Any, _: float) -> None:
            hidden = hidden_states(model, chosen.pack).index_select(0, chosen.predictors)
            cross_entropy(model.lm_head(hidden), chosen.targets, reduction="sum").backward()

        torch.set_num_threads(1)
        with placed(self.model, THREADS, self.config.model_copies) as workers:
            workers.zero_gradients()
            began = time.perf_counter()
            workers.map(one, micro, lambda chosen: chosen.pack.tokens)
            workers.add_gradients()
            return time.perf_counter() - began


class Padded:
    """What one writes first: micro-batches of 8, padded to the longest, labels, AdamW."""

    def __init__(self, batch: Sequences, home: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        self.batch = batch
        self.model = AutoModelForCausalLM.from_pretrained(home / "model", dtype=torch.float32)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-6)

    def run(self, threads: int) -> float:
        """Seconds of one optimizer step over the batch."""
        import torch

        torch.set_num_threads(threads)
        began = time.perf_counter()
        self.optimizer.zero_grad()
        for first in range(0, len(self.batch), MICRO):
            chosen = self.batch[first : first + MICRO]
            width = max(len(ids) for ids, _ in chosen)
            ids = torch.zeros(len(chosen), width, dtype=torch.long)
            mask = torch.zeros_like(ids)
            labels = torch.full_like(ids, -100)
            for row, (sequence, prompt) in enumerate(chosen):
                values = torch.from_numpy(sequence.astype(np.int64))
                ids[row, : len(values)], mask[row, : len(values)] = values, 1
                labels[row, prompt : len(values)] = values[prompt:]
            self.model(input_ids=ids, attention_mask=mask, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return time.perf_counter() - began


class Peer:
    """TRL in a process of its own, which works only when it is asked to."""

    def __init__(self, python: Path, home: Path) -> None:
        self._log = (home / "trl.log").open("w+b")
        self._process = subprocess.Popen(
            module("_train_trl", home / "batch.npz", home / "model", home / "out", python=python),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": str(SCRIPTS),
                "HF_HUB_OFFLINE": "1",
                "OMP_WAIT_POLICY": "PASSIVE",
            },
        )

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    def step(self, threads: int) -> float:
        """Seconds of one optimizer step over the batch."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{threads}\n")
        self._process.stdin.flush()
        if not (line := self._process.stdout.readline()):
            self._log.seek(0)
            raise RuntimeError(f"TRL ended:\n{self._log.read().decode(errors='replace')[-2000:]}")
        return float(line)


def install_peer() -> Path:
    """The Python of TRL's own environment; made on the first run, with the torch that is here."""
    python = PEER_HOME / "bin" / "python"
    if not (PEER_HOME / "lib").exists() or not list(PEER_HOME.glob("lib/*/site-packages/trl")):
        print("installing TRL into build/bench-trl", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(PEER_HOME)], check=True)
        torch = f"torch=={importlib.metadata.version('torch')}"
        subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", torch, PEER], check=True, stdout=sys.stderr
        )
    return python
