"""The tool calls of one message, executed side by side, as far as that changes nothing.

Whatever edits files is run alone in its place: what stands before it is finished, what comes after
sees its result. Everything else between two edits runs in parallel. So the results are those of one
call after the other, and edits of one file build on each other in the order they were written; only
two commands that write files themselves may meet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import TypeVar

WORKERS = 8  # calls at a time

T = TypeVar("T")
Job = tuple[bool, Callable[[], T]]  # whether it is run alone; what it does. Raises nothing but bugs


def run(jobs: Sequence[Job[T]]) -> list[T]:
    """All jobs' results, in their order. A job that raises does so after the others are done."""
    results: list[T] = []
    for alone, group in groupby(jobs, key=lambda job: job[0]):
        work = [job[1] for job in group]
        if alone or len(work) == 1:
            results += [one() for one in work]
            continue
        with ThreadPoolExecutor(min(WORKERS, len(work)), thread_name_prefix="tool") as pool:
            results += [future.result() for future in [pool.submit(one) for one in work]]
    return results
