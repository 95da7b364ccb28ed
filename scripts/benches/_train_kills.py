"""Training runs that are killed and gone on with, against one that is left alone.

Half of the kills at fault points (before and after each write, fsync and rename of a micro-checkpoint
and of the scores), half at random moments. The same command goes on after each; whenever one comes to
its end, what it published must be bit for bit what the undisturbed run published.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from killsweeps.bases import ENVIRONMENT, Bases
from killsweeps.processes import TIMEOUT_S, Ended, Process, run

KILLS = int(os.environ.get("RTRL_BENCH_KILLS", "50"))
COMMAND = ("train", "--json", "--quiet", "--force")
STEPS = {"RTRL_TRAIN__OPTIMIZER_STEPS": "12"}
POINTS = [
    *(f"train.step.{where}:{n}" for where in ("write.before", "fsync.before", "rename.before", "rename.after")
      for n in (1, 2, 3)),
    *(f"train.scores.{where}" for where in ("write.before", "fsync.before", "rename.before", "rename.after")),
    "train.run.after",
]  # fmt: skip


def kill_figures(say: Callable[[str], None]) -> list[dict[str, Any]]:
    """The figure of `bench.py train` on kills."""
    os.environ.update(ENVIRONMENT | STEPS)
    with tempfile.TemporaryDirectory() as folder:
        bases = Bases(Path(folder) / "bases", seed=0)
        bases.copy("distilled", Path(folder) / "w")
        workspace = Path(folder) / "w"
        began = time.monotonic()
        expected = published(run(workspace, *COMMAND))
        length = time.monotonic() - began
        say(f"an undisturbed run takes {length:.1f} s")
        kills, finished, wrong = sweep(workspace, expected, length, say)
    return [
        {
            "id": "train.kill_mismatches",
            "what": "runs whose published weights and line state differ from an undisturbed run's, after "
            f"{kills} SIGKILLs in {finished} runs",
            "value": wrong,
            "unit": "runs",
            "bar": "== 0",
            "runs": finished,
            "kills": kills,
        }
    ]


def sweep(
    workspace: Path, expected: tuple[str, str], length: float, say: Callable[[str], None]
) -> tuple[int, int, int]:
    """(kills that hit, runs that came to their end, those of them that published something else)."""
    chooser = random.Random(0)
    kills = finished = wrong = turn = 0
    while kills < KILLS or not finished:
        turn += 1
        ended = attempt(workspace, turn, chooser, length) if kills < KILLS else run(workspace, *COMMAND)
        if ended.killed:
            kills += 1
            say(f"kill {kills} of {KILLS} after {ended.seconds:.1f} s")
            continue
        finished += 1
        wrong += published(ended) != expected
        say(f"run {finished} came to its end: {'as undisturbed' if not wrong else f'{wrong} DIFFER'}")
    if published(run(workspace, *COMMAND)) != expected:
        wrong += 1
    return kills, finished + 1, wrong


def attempt(workspace: Path, turn: int, chooser: random.Random, length: float) -> Ended:
    """One command with a kill aimed at it, which may miss."""
    if turn % 2:
        return run(workspace, *COMMAND, env={"RTRL_FAULT": chooser.choice(POINTS)})
    process = Process(workspace, COMMAND)
    time.sleep(chooser.uniform(0.3, 1.0) * length)
    process.kill()
    return process.ended(TIMEOUT_S)


def published(ended: Ended) -> tuple[str, str]:
    """Digests of checkpoint and line state. Raises RuntimeError when a run did not succeed."""
    if ended.code != 0:
        raise RuntimeError(str(ended))
    outputs = ended.document["outputs"]
    return outputs["checkpoint"]["digest"], outputs["line_state"]["digest"]
