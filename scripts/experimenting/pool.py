"""Chains side by side, one to a core, each worker with an engine of its own that stays up.

A worker dies with this process, however that dies; what was going on then goes on with the next start.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from experimenting.chain import Chain, Say, Start
from experimenting.learn import LoadingEngine
from experimenting.results import Run
from experimenting.setup import Setup
from experimenting.thirdhack import settled
from stages import locks
from stages.engine.lifetime import die_with_parent

if TYPE_CHECKING:
    from stages.workspace import Workspace

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def folder_of(setup: Setup, work: Path) -> Path:
    """Where a chain lies."""
    return work / "chains" / f"{setup.name}-{setup.seed}"


def say(text: str) -> None:
    """A line for whoever waits."""
    print(text, file=sys.stderr, flush=True)


def run_all(setups: Sequence[Setup], work: Path, workers: int) -> None:
    """Run what is not complete. Raises what a chain raised; the others are then ended."""
    work.mkdir(parents=True, exist_ok=True)
    with locks.hold(work / "lock", what=f"the experiments in {work}", hint=locks.RUN_AGAIN):
        waiting = [setup for setup in setups if not _chain(setup, work, _none, say).complete]
        if not waiting:
            return
        for left in work.glob("engine-*"):  # of workers that were killed
            shutil.rmtree(left)
        context = multiprocessing.get_context("spawn")
        os.environ.update(dict.fromkeys(THREADS, "1"))
        with context.Pool(min(workers, len(waiting)), _begin, (os.getpid(), str(work))) as pool:
            for group in ([s for s in waiting if not s.base], [s for s in waiting if s.base]):
                for told in pool.imap_unordered(_run, group, chunksize=1):
                    say(told)


def _chain(setup: Setup, work: Path, start: Start, told: Say) -> Chain:
    """One that begins with another's checkpoint ends as soon as it is known what came of it."""
    folder = folder_of(setup, work)
    if not setup.base:
        return Chain(setup, folder, start, told)
    base = folder.parent / setup.base
    return Chain(setup, folder, start, told, lambda: settled(Run(setup, folder), base))


def _none(workspace: Workspace, folder: Path) -> LoadingEngine:
    raise AssertionError("a finished chain starts no engine")


@dataclass
class _Worker:
    work: Path
    engine: LoadingEngine | None = None


_worker: _Worker | None = None


def _begin(parent: int, work: str) -> None:
    global _worker  # noqa: PLW0603  of a worker process
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _worker = _Worker(Path(work))


def _run(setup: Setup) -> str:
    assert _worker is not None
    chain = _chain(setup, _worker.work, _start, say)
    _worker.engine = chain.run(_worker.engine)
    return f"{setup.name} seed {setup.seed}: done"


def _start(workspace: Workspace, folder: Path) -> LoadingEngine:
    """An engine that outlives the chain: begun with a copy, since the chain's own folder goes."""
    from stages.eval.run import start_engine

    assert _worker is not None
    first = _worker.work / f"engine-{os.getpid()}"
    shutil.rmtree(first, ignore_errors=True)
    shutil.copytree(folder, first)
    engine: LoadingEngine = start_engine(workspace, first)
    return engine
