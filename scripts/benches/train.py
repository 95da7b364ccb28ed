"""How fast `rtrl train` trains, beside a plain Hugging Face loop, the bare passes and TRL; what its loss
takes of memory; and whether killed runs end with the weights of an undisturbed one.

All contenders train the same 19 million parameter model on the same batch (`_train_batch.py`), in turn
within one run, on two threads; those whose matrix products share them (padded, TRL) with the faster of
one and two threads, for on a busy machine two stand still. Ours is the update of `rtrl train`:
packing, passes, guards, clipping, AdamW and the micro-checkpoint on disk; scoring before it is shown
apart. Tokens are those of the sequences, padding not counted.

TRL (PyPI) is installed into build/bench-trl on the first run, with this environment's torch.
RTRL_BENCH_RUNS, RTRL_BENCH_SEQUENCES, RTRL_BENCH_THREADS, RTRL_BENCH_KILLS change the sizes.
"""

from __future__ import annotations

import importlib.metadata
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _train_batch import MODEL, VOCABULARY, save, sequences
from _train_kills import kill_figures
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
PEER_HOME = ROOT / "build" / "bench-trl"
PEER = "trl>=1.16,<2"
RUNS = int(os.environ.get("RTRL_BENCH_RUNS", "3"))
SEQUENCES = int(os.environ.get("RTRL_BENCH_SEQUENCES", "32"))
THREADS = int(os.environ.get("RTRL_BENCH_THREADS", "2"))
MICRO = 8  # sequences of a padded micro-batch, what TRL does by default
LOSS_TOKENS = LOSS_VOCABULARY = 32768

Sequences = list[tuple[NDArray[np.int32], int]]


def say(text: str) -> None:
    """One line for whoever waits."""
    print(text, file=sys.stderr, flush=True)


def figures() -> list[dict[str, Any]]:
    """Everything in docs about the trainer's speed, memory and resumption."""
    found = [*speed_figures(), loss_figure()]
    return [*found, *kill_figures(say)]


def speed_figures() -> list[dict[str, Any]]:
    """tokens/s of all contenders, in turn, and the ratios of ours to theirs within each run."""
    import torch

    python = install_peer()
    batch = sequences(SEQUENCES)
    tokens = sum(len(ids) for ids, _ in batch)
    torch.set_num_threads(THREADS)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write_model(home / "model")
        save(home / "batch.npz", batch)
        with Peer(python, home) as peer:
            contenders: dict[str, Callable[[], float]] = {
                "ours": Ours(batch, home).update,
                "score": Ours(batch, home).score,
                "bare": Bare(batch, home).run,
                "padded": faster("padded", Padded(batch, home).run),
                "trl": faster("trl", peer.step),
            }
            seconds: dict[str, list[float]] = {name: [] for name in contenders}
            for run in range(RUNS + 1):  # the first warms up
                order = list(contenders) if run % 2 else list(reversed(contenders))
                for name in order:
                    took = contenders[name]()
                    say(f"run {run} of {RUNS}: {name} {tokens / took:.0f} tokens/s")
                    if run:
                        seconds[name].append(took)
    return ratios({name: [tokens / took for took in each] for name, each in seconds.items()})


def faster(name: str, work: Callable[[int], float]) -> Callable[[], float]:
    """`work` with as many threads as it is faster with."""
    took = {threads: work(threads) for threads in sorted({1, THREADS})}
    best = min(took, key=lambda threads: took[threads])
    say(f"{name}: seconds by threads {took}, measured with {best}")
    return lambda: work(best)


def ratios(rates: dict[str, list[float]]) -> list[dict[str, Any]]:
    """The figures with a bar, and those that explain them."""
    told = (
        ("train.vs_padded", "plain padded Hugging Face loop", "padded", ">= 1.3"),
        ("train.vs_bare", "bare packed forward and backward of the same model", "bare", ">= 0.9"),
        ("train.vs_trl", "TRL's GRPO trainer on the same batch", "trl", ">= 1.5"),
    )
    found = [
        figure(name, f"tokens/s over: {what}", over(rates["ours"], rates[key]), "ratio", bar, rates["ours"],
               rates[key])
        for name, what, key, bar in told
    ]  # fmt: skip
    whole = [1 / (1 / a + 1 / b) for a, b in zip(rates["ours"], rates["score"], strict=True)]
    what = "the same with scoring by the parent, which a padded loop does not do, counted in"
    scored = over(whole, rates["padded"])
    return [*found, figure("train.scored_vs_padded", what, scored, "ratio", "", whole, rates["padded"])]


def over(ours: list[float], theirs: list[float]) -> list[float]:
    """The ratio of each run."""
    return [a / b for a, b in zip(ours, theirs, strict=True)]


def figure(
    name: str, what: str, values: list[float], unit: str, bar: str, ours: list[float], theirs: list[float]
) -> dict[str, Any]:
    """The median over the runs, with their spread."""
    return {
        "id": name,
        "what": what,
        "value": round(statistics.median(values), 3),
        "unit": unit,
        "bar": bar,
        "ours": round(statistics.median(ours), 1),
        "theirs": round(statistics.median(theirs), 1),
        "runs": len(values),
        "spread": [round(min(values), 3), round(max(values), 3)],
    }


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
        data = TokenData(logged, logged, None, coefficient, float(self.batch.tokens))
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
        script = str(Path(__file__).with_name("_train_trl.py"))
        self._log = (home / "trl.log").open("w+b")
        self._process = subprocess.Popen(
            [
                str(python),
                script,
                str(home / "batch.npz"),
                str(home / "model"),
                str(home / "out"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "PYTHONPATH": "", "HF_HUB_OFFLINE": "1", "OMP_WAIT_POLICY": "PASSIVE"},
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
        say("installing TRL into build/bench-trl")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(PEER_HOME)], check=True)
        torch = f"torch=={importlib.metadata.version('torch')}"
        subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", torch, PEER], check=True, stdout=sys.stderr
        )
    return python


def loss_figure() -> dict[str, Any]:
    """Peak memory of the loss over that of whole logits, each in a process of its own."""
    script = str(Path(__file__).with_name("_loss_memory.py"))
    peaks, values = {}, {}
    for way in ("blocks", "naive"):
        say(f"memory of the loss: {way}")
        command = [sys.executable, script, way, str(LOSS_TOKENS), str(LOSS_VOCABULARY)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        peak, *values[way] = map(float, done.stdout.split())
        peaks[way] = peak / 2**30
    if not np.allclose(values["blocks"], values["naive"], rtol=1e-5):
        raise RuntimeError(f"the two ways differ: {values}")
    return {
        "id": "train.loss_memory",
        "what": f"peak memory of the loss over whole logits, {LOSS_TOKENS} tokens, {LOSS_VOCABULARY} words",
        "value": round(peaks["blocks"] / peaks["naive"], 3),
        "unit": "ratio",
        "bar": "<= 0.25",
        "ours": round(peaks["blocks"], 2),
        "theirs": round(peaks["naive"], 2),
        "runs": 1,
    }
