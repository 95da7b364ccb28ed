"""Blocks on all cores at a time, in order and with few in memory. zstd and numpy free the interpreter."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")
_MOST = 8  # threads: beyond that the disk is what one waits for


def in_order(work: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
    """`work` of every item, in the order of the items; at most two a thread are under way."""
    threads = min(_MOST, len(os.sched_getaffinity(0)))
    waiting: deque[Future[Made]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="delta") as pool:
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) >= 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
