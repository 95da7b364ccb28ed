"""How fast `rtrl train` trains, beside a plain Hugging Face loop, the bare passes and TRL; what its loss
takes of memory; and whether killed runs end with the weights of an undisturbed one.

All contenders train the same 19 million parameter model on the same batch (`_train_batch.py`), in turn
within one run, on two threads; those whose matrix products share them (padded, TRL) with the faster of
one and two threads, for on a busy machine two stand still. The bare passes are nearest to ours, within
what the machine's speed moves from one minute to the next: the two alone take turns, three times as often.
Ours is the update of `rtrl train`: packing, passes, guards, clipping, AdamW and the micro-checkpoint on
disk; scoring before it is shown apart. Tokens are those of the sequences, padding not counted.

TRL (PyPI) is installed into build/bench-trl on the first run, with this environment's torch.
RTRL_BENCH_RUNS, RTRL_BENCH_SEQUENCES, RTRL_BENCH_THREADS, RTRL_BENCH_KILLS change the sizes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benches._processes import ROOT, environment, module
from benches._train_batch import save, sequences
from benches._train_contenders import THREADS, Bare, Ours, Padded, Peer, install_peer, write_model
from benches._train_kills import kill_figures

RUNS = int(os.environ.get("RTRL_BENCH_RUNS", "3"))
CLOSE = 3  # times as many runs where a ratio lies near its bar
SEQUENCES = int(os.environ.get("RTRL_BENCH_SEQUENCES", "48"))
Floats = NDArray[np.float64]
LOSS_TOKENS = LOSS_VOCABULARY = 32768


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
            ours = Ours(batch, home)
            near = in_turn({"ours": ours.update, "bare": Bare(batch, home).run}, CLOSE * RUNS)
            far = in_turn(
                {
                    "ours": ours.update,
                    "score": ours.score,
                    "padded": faster("padded", Padded(batch, home).run),
                    "trl": faster("trl", peer.step),
                },
                RUNS,
            )
    return ratios(*({name: tokens / took for name, took in each.items()} for each in (near, far)))


def in_turn(contenders: dict[str, Callable[[], float]], runs: int) -> dict[str, Floats]:
    """Seconds [runs] of each contender."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for run in range(runs + 1):  # the first warms up
        for name in list(contenders) if run % 2 else list(reversed(contenders)):
            took = contenders[name]()
            say(f"run {run} of {runs}: {name} {took:.2f} s")
            if run:
                seconds[name].append(took)
    return {name: np.array(each) for name, each in seconds.items()}


def faster(name: str, work: Callable[[int], float]) -> Callable[[], float]:
    """`work` with as many threads as it is faster with."""
    took = {threads: work(threads) for threads in sorted({1, THREADS})}
    best = min(took, key=lambda threads: took[threads])
    say(f"{name}: seconds by threads {took}, measured with {best}")
    return lambda: work(best)


def ratios(near: dict[str, Floats], far: dict[str, Floats]) -> list[dict[str, Any]]:
    """The figures with a bar, and those that explain them, from tokens/s [runs] of contenders in turn."""
    told = (
        ("train.vs_padded", "plain padded Hugging Face loop", far, "padded", ">= 1.3"),
        ("train.vs_bare", "bare packed forward and backward of the same model", near, "bare", ">= 0.9"),
        ("train.vs_trl", "TRL's GRPO trainer on the same batch", far, "trl", ">= 1.5"),
    )
    found = [
        figure(name, f"tokens/s over: {what}", rates["ours"], rates[key], bar)
        for name, what, rates, key, bar in told
    ]
    whole = 1 / (1 / far["ours"] + 1 / far["score"])
    what = "the same with scoring by the parent, which a padded loop does not do, counted in"
    return [*found, figure("train.scored_vs_padded", what, whole, far["padded"], "")]


def figure(name: str, what: str, ours: Floats, theirs: Floats, bar: str) -> dict[str, Any]:
    """The median of the runs' ratios, with their spread."""
    values = ours / theirs
    return {
        "id": name,
        "what": what,
        "value": round(float(np.median(values)), 3),
        "unit": "ratio",
        "bar": bar,
        "ours": round(float(np.median(ours)), 1),
        "theirs": round(float(np.median(theirs)), 1),
        "runs": len(values),
        "spread": [round(float(values.min()), 3), round(float(values.max()), 3)],
    }


def loss_figure() -> dict[str, Any]:
    """Peak memory of the loss over that of whole logits, each in a process of its own."""
    peaks, values = {}, {}
    for way in ("blocks", "naive"):
        say(f"memory of the loss: {way}")
        command = module("_loss_memory", way, LOSS_TOKENS, LOSS_VOCABULARY)
        done = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment()
        )
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
