"""Edits told by the part they replaced: it may begin and end within a line."""

from __future__ import annotations

import pytest

from stages.distill.signals.edit_persistence import edit_persistence
from stages.distill.signals.edits import edits_of
from stages.records import Event
from tests.stages.distill.events import HOUR, event

CALL = "link = connect(host, timeout={}, retries={})\n"


def kept(now: str, *parts: tuple[str, str], undone: bool = False) -> float | None:
    """The share that is left of an episode's edits of one file, told by parts."""
    events: list[Event] = [
        event("edit_applied", 1 + n, path="a.py", before=before, after=after, part=True)
        for n, (before, after) in enumerate(parts)
    ]
    events += [event("edit_reverted", 60, path="a.py")] if undone else []
    events.append(event("edit_survival", HOUR + 10, path="a.py", horizon_s=3600, now=now))
    horizon = 3_600_000
    return edit_persistence(events, horizon, edits_of(events, 0, horizon))


TIMEOUT, RETRIES = ("timeout=30", "timeout=60"), ("retries=3", "retries=5")


@pytest.mark.parametrize(
    ("now", "share"),
    [
        (CALL.format(60, 3), 1.0),  # one line added, one deleted
        (CALL.format(60, 3).replace("\n", "\r\n"), 1.0),
        (CALL.format(30, 3), 0.0),  # put back by hand
        (CALL.format(90, 3), 0.5),  # changed again: what was deleted still is
        ("", 0.5),
        (CALL.format(60, 3) + CALL.format(30, 3), 1.0),  # it stood there twice
    ],
)
def test_a_part_within_a_line_is_the_change_of_its_line(now: str, share: float) -> None:
    assert kept(now, TIMEOUT) == share


def test_of_whole_lines_nothing_changes() -> None:
    whole = ("    return total\n", "    return total + tax\n")
    assert kept("def f():\n    return total + tax\n", whole) == 1.0
    assert kept("def f():\n        return total + tax\n", whole) == 1.0
    assert kept("def f():\n    return total\n", whole) == 0.0
    assert kept("def f():\n    return total_of(x)\n", whole) == 0.5, "another name is not what was replaced"


def test_a_part_of_several_lines() -> None:
    part = ("alpha(one,\n    two)", "alpha(one,\n    two, three_more)")
    assert kept("x = alpha(one,\n    two, three_more) or 1\n", part) == 1.0
    assert kept("x = alpha(one,\n    two) or 1\n", part) == 0.0


def test_what_was_only_taken_out_or_only_put_in() -> None:
    assert kept("log(x)\n", (", verbose=True", "")) == 1.0
    assert kept("log(x, verbose=True)\n", (", verbose=True", "")) == 0.0
    assert kept("run(a, check=True)\n", ("", ", check=True")) == 1.0
    assert kept("run(a)\n", ("", ", check=True")) == 0.0


def test_a_part_that_is_a_piece_of_what_it_replaced() -> None:
    cut = ("total + tax + shipping", "total + tax")
    assert kept("pay = round(total + tax)\n", cut) == 1.0
    assert kept("pay = round(total + tax + shipping)\n", cut) == 0.0
    longer = cut[::-1]
    assert kept("pay = round(total + tax + shipping)\n", longer) == 1.0
    assert kept("pay = round(total + tax)\n", longer) == 0.0


def test_several_parts_of_one_line() -> None:
    assert kept(CALL.format(60, 5), TIMEOUT, RETRIES) == 1.0
    assert kept(CALL.format(30, 3), TIMEOUT, RETRIES) == 0.0
    assert kept(CALL.format(30, 5), TIMEOUT, RETRIES) == 0.5
    again = "timeout=60", "timeout=90"
    assert kept(CALL.format(90, 3), TIMEOUT, again) == 1.0
    assert kept(CALL.format(30, 3), TIMEOUT, again) == 0.0


def test_a_part_within_a_line_that_an_edit_of_the_same_request_put_in() -> None:
    line = ("pass_by = None\n", CALL.format(30, 3))
    assert kept(CALL.format(60, 3), line, TIMEOUT) == 1.0


def test_a_few_letters_that_stand_in_many_places_are_not_known() -> None:
    assert kept("a = [1, 2]\nb = (1, 2)\n", ("3", "2")) is None
    assert kept("a = [1, 2]\nb = (1, 4)\n", ("3", "2")) == 1.0, "they stand in one"
    assert kept("a = [1, 5]\n", ("3", "2")) == 0.0, "they are gone"


def test_a_part_may_end_in_the_middle_of_a_word() -> None:
    minus, plus = "return total - discount_of(x)\n", "return total + discount_of(x)\n"
    cut = ("total - discount", "total + discount")
    assert kept(plus, cut) == 1.0
    assert kept(minus, cut) == 0.0, "put back by hand"
    assert kept("xs = [31, 23]\n" * 200 + "a = [2]\n", ("3", "2")) == 1.0, "short ones are whole words"


def test_a_part_that_was_undone_is_lost() -> None:
    assert kept(CALL.format(60, 3), TIMEOUT, undone=True) == 0.0
