"""Workers that die, hang and raise cost their item, not the run."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from typing import Any

import pytest

from cursorbench.errors import UsageError
from evals.trials import workers
from evals.trials.workers import Lost, Raised


class OddError(Exception):
    """Cannot be copied from process to process."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)
        self.two = two


def work(item: str) -> str:
    kind, _, number = item.partition(":")
    if kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "hang":
        time.sleep(600)
    elif kind == "raise":
        raise UsageError("no", hint="so")
    elif kind == "odd":
        raise OddError("one", "two")
    return f"done {number}"


def test_every_item_has_its_end() -> None:
    items = ["ok:0", "die:1", "ok:2", "raise:3", "odd:4", "hang:5", "ok:6", "ok:7"]
    found = dict(workers.run(work, items, 2, 3.0))
    assert {number for number, result in found.items() if result == f"done {number}"} == {0, 2, 6, 7}
    assert found[1] == Lost("died")
    assert found[5] == Lost("hung")
    third, fourth = found[3], found[4]
    assert isinstance(third, Raised)
    assert isinstance(third.error, UsageError)
    assert third.error.hint == "so"
    assert isinstance(fourth, Raised)
    assert "one" in str(fourth.error)
    assert "OddError" in fourth.trace


def test_a_free_worker_takes_the_next_item() -> None:
    items = ["hang:0", *(f"ok:{number}" for number in range(1, 6))]
    began = time.monotonic()
    found = []
    running = workers.run(work, items, 2, 600.0)
    for number, _ in running:
        found.append(number)
        if len(found) == 5:
            break
    running.close()  # type: ignore[attr-defined]  # a generator: the workers end
    assert sorted(found) == [1, 2, 3, 4, 5]
    assert time.monotonic() - began < 250


def test_nothing_to_do_starts_nothing() -> None:
    assert list(workers.run(work, [], 4, 1.0)) == []


def test_workers_that_nobody_knows() -> None:
    with pytest.raises(UsageError):
        list(workers.run(work, ["ok:1"], 1, 1.0, "threads"))  # type: ignore[arg-type]


def plain(item: int) -> int:
    if item == 2:
        raise UsageError("no")
    return item * item


@pytest.mark.slow
def test_the_same_on_ray() -> None:
    pytest.importorskip("ray")
    found = dict(workers.run(plain, [1, 2, 3, 4], 2, 250.0, "ray"))
    raised = found.pop(1)
    assert found == {0: 1, 2: 9, 3: 16}
    assert isinstance(raised, Raised)


def test_the_start_of_a_process_is_none_of_its_items_time() -> None:
    """On a busy machine importing took longer than an item may, and the item was "hung"."""
    pool: Any = workers._Processes(work, ["ok:0"], 1, 5.0)
    worker = workers._Worker(multiprocessing.Process(), multiprocessing.Pipe()[0], 0, time.monotonic() - 60)
    assert not pool._overdue(worker)
    worker.ready = True
    assert pool._overdue(worker)
