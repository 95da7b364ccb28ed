"""Edits told as diffs measure what the same edits told as whole texts do."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.distill.signals import edit_persistence as signal
from stages.distill.signals.edits import edits_of
from stages.records import Event
from tests.stages.distill.events import AFTER, HOUR, applied, event, survived


def edit_persistence(events: Sequence[Event], answered_at: int, horizon_ms: int) -> float | None:
    return signal.edit_persistence(events, horizon_ms, edits_of(events, answered_at, horizon_ms))


def diff_of(before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="")
    return "\n".join(lines)


def told(texts: Sequence[str], as_diffs: bool) -> list[Event]:
    """The edits from each text to the next, one generation each."""
    sides = list(itertools.pairwise(texts))
    return [
        event("edit_applied", n, generation=f"g{n}", path="a.py", diff=diff_of(before, after))
        if as_diffs
        else applied(n, before=before, after=after, generation=f"g{n}")
        for n, (before, after) in enumerate(sides)
    ]


FILE = "".join(f"value_{i} = compute({i})\n" for i in range(20))
FIRST = FILE.replace("value_2 = compute(2)", "value_2 = calculate(2)")
SECOND = FIRST.replace("value_17 = compute(17)", "value_17 = calculate(17)")
ONLY_SECOND = FILE.replace("value_17 = compute(17)", "value_17 = calculate(17)")


@pytest.mark.parametrize("as_diffs", [False, True])
@pytest.mark.parametrize(
    ("now", "value"), [(SECOND, 1.0), (FILE, 0.0), (FIRST, 0.5), (ONLY_SECOND, 0.5), ("", 0.5)]
)
def test_two_edits_of_one_file_as_texts_and_as_diffs(now: str, value: float, as_diffs: bool) -> None:
    """Two lines replaced: 4 units. An empty file has both deletions and neither addition."""
    events = told([FILE, FIRST, SECOND], as_diffs)
    assert edit_persistence([*events, survived(now)], 0, HOUR) == value
    one = event("edit_rejected", 5, generation="g1", path="a.py")
    assert edit_persistence([*events, survived(FIRST), one], 0, HOUR) == 2 / 4
    assert edit_persistence([*events, survived(FILE), one], 0, HOUR) == 0.0
    first = event("edit_rejected", 5, generation="g0", path="a.py")  # and the second one stands
    assert edit_persistence([*events, survived(ONLY_SECOND), first], 0, HOUR) == 2 / 4


@pytest.mark.parametrize("as_diffs", [False, True])
def test_a_later_diff_supersedes_the_lines_it_takes_away(as_diffs: bool) -> None:
    better = FIRST.replace("value_2 = calculate(2)", "value_2 = exactly(2)")
    events = told([FILE, FIRST, better], as_diffs)  # one line replaced in the end: 2 units
    assert edit_persistence([*events, survived(better)], 0, HOUR) == 1.0
    assert edit_persistence([*events, survived(FIRST)], 0, HOUR) == 1 / 2
    assert edit_persistence([*events, survived(FILE)], 0, HOUR) == 0.0
    second = event("edit_reverted", 5, generation="g1", path="a.py")  # and FIRST is there again
    assert edit_persistence([*events, survived(FIRST), second], 0, HOUR) == 2 / 4
    both = event("edit_reverted", 5, generation="g9", path="a.py")  # 2 units lost, not 4, beside 2 kept
    other = [applied(path="b.py"), survived(AFTER, path="b.py")]
    assert edit_persistence([*events, *other, survived(FILE), both], 0, HOUR) == 2 / 4
    # what stands was not superseded by what is undone: 2 units kept and 2 lost, beside 2 kept
    assert edit_persistence([*events, *other, survived(FIRST), second], 0, HOUR) == 4 / 6


@pytest.mark.parametrize("as_diffs", [False, True])
def test_a_diff_taken_back_by_the_agent_changed_nothing(as_diffs: bool) -> None:
    events = [*told([FILE, FIRST, FILE], as_diffs), survived(FILE)]
    assert edit_persistence(events, 0, HOUR) is None
    assert not edits_of(events, 0, HOUR).changes


lines = st.lists(st.sampled_from([f"value_{i} = compute({i})" for i in range(9)]), unique=True)


@given(st.lists(lines.map(sorted).map("\n".join), min_size=2, max_size=5), lines.map("\n".join))
def test_diffs_tell_what_texts_tell(texts: list[str], now: str) -> None:
    """Of lines that occur once and never move, whichever edits came in between."""
    texts_, diffs = ([*told(texts, as_diffs), survived(now)] for as_diffs in (False, True))
    assert edit_persistence(diffs, 0, HOUR) == edit_persistence(texts_, 0, HOUR)


@pytest.mark.parametrize("as_diffs", [False, True])
def test_what_the_user_does_between_two_edits_is_the_users(as_diffs: bool) -> None:
    """She writes another line in the place of the agent's while it goes on elsewhere: of its first edit the
    deletion is left, and nobody's is what she wrote."""
    hers = FIRST.replace("value_2 = calculate(2)", "value_2 = exactly(2)\nvalue_2 += correction(2)")
    last = hers.replace("value_17 = compute(17)", "value_17 = calculate(17)")
    first, second = told([FILE, FIRST], as_diffs), told([hers, hers, last], as_diffs)[1:]
    assert edit_persistence([*first, *second, survived(last)], 0, HOUR) == 3 / 4
    assert edit_persistence([*first, *second, survived(hers)], 0, HOUR) == 1 / 4


def test_an_edit_told_twice_or_each_from_the_first_text_is_one() -> None:
    """By two generations, or by a client whose `before` is always what the file was at first."""
    again = [*told([FILE, FIRST], False), applied(3, before=FILE, after=FIRST, generation="g7")]
    assert edit_persistence([*again, survived(FIRST)], 0, HOUR) == 1.0
    whole = [*told([FILE, FIRST], False), applied(3, before=FILE, after=SECOND, generation="g7")]
    assert edit_persistence([*whole, survived(SECOND)], 0, HOUR) == 1.0
    assert edit_persistence([*whole, survived(FIRST)], 0, HOUR) == 1 / 2


def test_an_edit_that_begins_with_any_text_the_file_has_had_goes_on() -> None:
    """The last of several told twice, or all but the first, or a client whose `before` is behind by one."""
    third = SECOND + "value_20 = calculate(20)\n"
    steps = told([FILE, FIRST, SECOND, third], False)
    last = applied(4, before=SECOND, after=third, generation="g7")
    middle = applied(4, before=FIRST, after=SECOND, generation="g7")
    behind = applied(4, before=FIRST, after=third, generation="g7")
    for more in ([*steps, last], [*steps, middle, last], [*steps[:2], behind]):
        assert edit_persistence([*more, survived(third)], 0, HOUR) == 1.0
        assert len(edits_of(more, 0, HOUR).changes["a.py"]) == 1
