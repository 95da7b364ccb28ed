"""The same function over many items, in processes or on Ray; each free worker takes the next item.

Results come as they are ready, with their item's number. A worker that dies, or that holds an item far
beyond its time and is killed, costs that item (`Lost`), not the run: another worker takes its place. What
the function raises comes as `Raised`. Not for: results in order (`stages/workers.py`).
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, Literal, TypeVar

from cursorbench.errors import UsageError
from evals.cluster import ray_cluster

T = TypeVar("T")
R = TypeVar("R")
Engine = Literal["processes", "ray"]
_STOP_S = 5.0
_START_S = 600.0  # for a process to import the function


@dataclass(frozen=True)
class Lost:
    """An item without a result."""

    why: Literal["died", "hung"]


@dataclass(frozen=True)
class Raised:
    """What the function raised, with its traceback as text."""

    error: BaseException
    trace: str


def run(
    function: Callable[[T], R],
    items: Sequence[T],
    jobs: int,
    limit_s: float,
    engine: Engine = "processes",
) -> Iterator[tuple[int, R | Lost | Raised]]:
    """Results as they are ready.

    Args:
        function: of a module, so that a process can import it; items and results are pickled.
        jobs: workers at once, at least one; on Ray, trials at once.
        limit_s: seconds after which an item's worker is killed; that a process has to start is not counted.

    Raises:
        InputMissingError: (exit 5) Ray is not installed.
    """
    if engine == "processes":
        return _Processes(function, items, jobs, limit_s).run()
    if engine == "ray":
        return _on_ray(function, items, jobs, limit_s)
    raise UsageError(f"no workers are called {engine!r}", hint="processes or ray")


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    item: int = -1
    since: float = 0.0
    ready: bool = False


class _Processes(Generic[T, R]):
    """Workers of this machine: spawned, since threads of this process must not be copied."""

    def __init__(self, function: Callable[[T], R], items: Sequence[T], jobs: int, limit_s: float) -> None:
        self._function, self._items, self._limit_s = function, items, limit_s
        self._jobs = max(1, min(jobs, len(items)))
        self._next = 0
        self._workers: list[_Worker] = []

    def run(self) -> Iterator[tuple[int, R | Lost | Raised]]:
        try:
            while self._next < len(self._items) or any(one.item >= 0 for one in self._workers):
                self._hire()
                ready = wait([one.pipe for one in self._workers], timeout=1.0)
                for worker in [one for one in self._workers if one.pipe in ready]:
                    yield from self._take(worker)
                for worker in [one for one in self._workers if self._overdue(one)]:
                    if worker.pipe.poll():  # in time, and this process stood still
                        continue
                    item = worker.item
                    self._dismiss(worker)
                    yield item, Lost("hung")
        finally:
            for worker in list(self._workers):
                self._dismiss(worker)

    def _hire(self) -> None:
        """Workers for what is left, and an item for each that has none."""
        context = multiprocessing.get_context("spawn")
        busy = sum(one.item >= 0 for one in self._workers)
        while len(self._workers) < min(self._jobs, busy + len(self._items) - self._next):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, self._function, os.getpid()), daemon=True)
            process.start()
            theirs.close()
            self._workers.append(_Worker(process, ours))
        for worker in self._workers:
            if worker.item < 0 and self._next < len(self._items):
                self._give(worker)

    def _give(self, worker: _Worker) -> None:
        worker.item, worker.since = self._next, time.monotonic()
        self._next += 1
        try:
            worker.pipe.send(self._items[worker.item])
        except OSError:
            return  # it died: its end of the pipe says so

    def _take(self, worker: _Worker) -> Iterator[tuple[int, R | Lost | Raised]]:
        item = worker.item
        try:
            result = worker.pipe.recv()
        except (EOFError, OSError):
            self._dismiss(worker)
            if item >= 0:
                yield item, Lost("died")
            return
        if not worker.ready:
            worker.ready, worker.since = True, time.monotonic()
            return
        worker.item = -1
        yield item, result

    def _overdue(self, worker: _Worker) -> bool:
        limit_s = self._limit_s if worker.ready else _START_S
        return worker.item >= 0 and time.monotonic() - worker.since > limit_s

    def _dismiss(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.pipe.close()
        if worker.item < 0:
            worker.process.join(_STOP_S)  # its pipe is closed, so it ends
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.process.close()


def _serve(pipe: Connection, function: Callable[[Any], Any], parent: int) -> None:
    """A worker's life: items in, results out, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    _die_with(parent)
    pipe.send("ready")
    while True:
        try:
            item = pipe.recv()
        except (EOFError, OSError):
            return
        pipe.send(_called(function, item))


def _called(function: Callable[[T], R], item: T) -> R | Raised:
    try:
        return function(item)
    except Exception as error:  # noqa: BLE001  it is the caller's, who is in another process
        trace = traceback.format_exc()
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # noqa: BLE001  whatever its class makes of being copied
            error = RuntimeError(f"{type(error).__name__}: {error}")
        return Raised(error, trace)


def _die_with(parent: int) -> None:
    """SIGKILL for this process when its parent dies, however that dies."""
    from cursorbench.sandbox.syscalls import PR_SET_PDEATHSIG, prctl

    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGTERM)


def _on_ray(
    function: Callable[[T], R], items: Sequence[T], jobs: int, limit_s: float
) -> Iterator[tuple[int, R | Lost | Raised]]:
    """The same on a Ray cluster that sees the same folders."""
    with ray_cluster(jobs) as ray:
        remote = ray.remote(max_retries=0)(_called)
        waiting = iter(range(len(items)))
        open_: dict[Any, tuple[int, float]] = {}
        while True:
            while len(open_) < jobs and (number := next(waiting, None)) is not None:
                open_[remote.remote(function, items[number])] = (number, time.monotonic())
            if not open_:
                return
            ready, _ = ray.wait(list(open_), num_returns=1, timeout=1.0)
            for ref in ready:
                number, _ = open_.pop(ref)
                try:
                    yield number, ray.get(ref)
                except ray.exceptions.RayError:
                    yield number, Lost("died")
            for ref in [ref for ref, (_, since) in open_.items() if time.monotonic() - since > limit_s]:
                number, _ = open_.pop(ref)
                ray.cancel(ref, force=True)
                yield number, Lost("hung")
