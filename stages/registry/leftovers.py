"""What is beside the artifacts, and nobody needs after a time: folders of runs that came to no result, runs'
logs, a judge's votes. There would be more of them for ever. Not for: what a process that died left half made
(`sweep.py`), artifacts (`gc.py`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from stages.registry.runs import OPEN, scratch_of

if TYPE_CHECKING:
    from pathlib import Path

    from stages.registry.store import Store

SCRATCH_DAYS = 7.0
LOG_DAYS = 90.0  # since a run wrote in its log
VOTES_DAYS = 90.0  # since a distill looked at them
VOTES = "votes"  # the store's folder of them


def remove_leftovers(store: Store) -> None:
    """Remove what is that old, but for what belongs to runs that are going on."""
    running = store.runs(None, OPEN, limit=10_000)
    taken_up = {scratch_of(store, run.fingerprint, run.id) for run in running}
    written = {store.dir / "logs" / f"{run.id}.jsonl" for run in running}
    _remove(set((store.dir / "scratch").iterdir()) - taken_up, SCRATCH_DAYS, shutil.rmtree)
    _remove(set((store.dir / "logs").glob("*.jsonl")) - written, LOG_DAYS, os.unlink)
    _remove((store.dir / VOTES).glob("*/*.json"), VOTES_DAYS, os.unlink)


def _remove(paths: Iterable[Path], days: float, remove: Callable[[Path], object]) -> None:
    """Those last written so long ago."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # another gc, or whoever made it, removes it too
            if time.time() - path.stat().st_mtime > days * 86400:
                remove(path)
