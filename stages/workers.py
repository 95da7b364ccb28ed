"""The same function over many things, in processes side by side, results in order.

For stages whose work falls into independent pieces. Not for: a cluster (`stages/distill/shards.py`).
"""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from stages.engine.lifetime import die_with_parent
from stages.errors import DependencyDownError

T = TypeVar("T")
R = TypeVar("R")


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


def in_order(function: Callable[[T], R], items: Iterable[T], workers: int) -> Iterator[R]:
    """`function` of each item, in the items' order. With one worker, or none, it happens here.

    Processes are spawned, not forked: threads of this process must not be copied.

    Raises:
        DependencyDownError: (exit 13) a worker died.
    """
    if workers <= 1:
        yield from map(function, items)
        return
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin,
        initargs=(os.getpid(),),
    )
    try:
        yield from begun_ahead(items, lambda item: pool.submit(function, item).result, 2 * workers)
    except BrokenProcessPool as error:
        raise DependencyDownError("a worker process died", hint="is there enough memory?") from error
    except BaseException:
        # the deadline, Ctrl-C, one item's error: nobody wants the others, and one that hangs would be waited
        # for without end, by `shutdown` and again when the program ends
        for process in list((pool._processes or {}).values()):
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(parent: int) -> None:
    """What a worker does first. What it makes are records by the million, none of them in a circle: looked
    for at Python's usual pace, garbage took a fifth of `distill`."""
    die_with_parent(parent)
    gc.set_threshold(50_000, 20, 100)


def begun_ahead(items: Iterable[T], begin: Callable[[T], Callable[[], R]], ahead: int) -> Iterator[R]:
    """Results in order, with so many begun ahead of the one that is waited for."""
    waiting: deque[Callable[[], R]] = deque()
    for item in items:
        waiting.append(begin(item))
        if len(waiting) > ahead:
            yield waiting.popleft()()
    while waiting:
        yield waiting.popleft()()
