"""Work in processes side by side: whoever waits for it can be told to stop."""

from __future__ import annotations

import multiprocessing
import time

import pytest

from stages.cycle.deadline import Deadline
from stages.cycle_config import CycleConfig
from stages.errors import LateError
from stages.workers import in_order


def doubled(number: int) -> int:
    return 2 * number


def hangs_at_three(number: int) -> int:
    if number == 3:
        time.sleep(600)
    return number


def fails_at_two(number: int) -> int:
    if number == 2:
        raise ValueError("two")
    if number > 2:
        time.sleep(600)
    return number


def test_results_come_in_order() -> None:
    assert list(in_order(doubled, range(9), 2)) == [2 * n for n in range(9)]


def test_a_deadline_ends_what_waits_for_a_process_that_hangs() -> None:
    """It was waited for until somebody killed it, with the cycle's lock held, and SIGTERM waited too."""

    deadline = Deadline(4.0, CycleConfig().shares | {"collect": 0.0, "distill": 1.0})
    began = time.monotonic()
    with pytest.raises(LateError, match="distill was stopped"), deadline.limit("distill"):
        list(in_order(hangs_at_three, range(4), 2))
    assert time.monotonic() - began < 300, "the one that hangs is not waited for"
    assert not multiprocessing.active_children()


def test_an_error_of_one_is_told_without_waiting_for_the_others() -> None:
    with pytest.raises(ValueError, match="two"):
        list(in_order(fails_at_two, range(6), 2))
    assert not multiprocessing.active_children()
