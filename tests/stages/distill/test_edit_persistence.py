"""The signal by hand: which change, which measurement, what a revert means; any order of events."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.distill.signals.edit_persistence import edit_persistence
from stages.distill.signals.edit_rejected import edit_rejected
from stages.records import Event
from tests.stages.distill.events import HOUR, event

BEFORE = "def area(w, h):\n    return w + h\n"
AFTER = "def area(w, h):\n    return w * h\n"


def applied(at: int = 0, path: str = "a.py", before: str = BEFORE, after: str = AFTER) -> Event:
    return event("edit_applied", at, path=path, before=before, after=after)


def survived(now: str, horizon_s: float = 3600, path: str = "a.py", **more: str) -> Event:
    return event("edit_survival", int(1000 * horizon_s), path=path, horizon_s=horizon_s, now=now, **more)


def test_unknown_until_measured() -> None:
    assert edit_persistence([], 0, HOUR) is None
    assert edit_persistence([applied()], 0, HOUR) is None
    assert edit_persistence([applied(), survived(AFTER, 600)], 0, HOUR) is None


@pytest.mark.parametrize(
    ("now", "value"),
    [(AFTER, 1.0), (BEFORE, 0.0), (BEFORE.replace("w + h", "h * w"), 0.5), ("", 0.5)],
)
def test_measured_at_the_horizon(now: str, value: float) -> None:
    assert edit_persistence([applied(), survived(now)], 0, HOUR) == value


def test_the_first_measurement_after_the_horizon_counts() -> None:
    events = [applied(), survived(BEFORE, 7000), survived(AFTER, 3600), survived(BEFORE, 60)]
    assert edit_persistence(events, 0, HOUR) == 1.0


def test_a_day_later_is_for_reports() -> None:
    assert edit_persistence([applied(), survived(AFTER, 86_400)], 0, HOUR) is None


def test_a_rewrite_in_the_same_episode_supersedes() -> None:
    wrong = BEFORE.replace("w + h", "w - h")
    events = [applied(0, after=wrong), applied(1, before=wrong, after=AFTER), survived(AFTER)]
    assert edit_persistence(events, 0, HOUR) == 1.0


def test_an_edit_taken_back_by_the_agent_changed_nothing() -> None:
    events = [applied(0), applied(1, before=AFTER, after=BEFORE), survived(BEFORE)]
    assert edit_persistence(events, 0, HOUR) is None


def test_files_are_weighed_by_their_lines() -> None:
    more = "".join(f"value_{i} = compute({i})\n" for i in range(6))
    events = [
        applied(),  # one line replaced: 2 units, lost
        applied(path="b.py", before="", after=more),  # 6 lines, kept
        survived(BEFORE),
        survived(more, path="b.py"),
    ]
    assert edit_persistence(events, 0, HOUR) == 6 / 8


def test_only_the_measured_file_tells() -> None:
    assert edit_persistence([applied(), applied(path="b.py"), survived(AFTER)], 0, HOUR) == 1.0


def test_a_revert_loses_that_file_at_once() -> None:
    assert edit_persistence([applied(), event("edit_reverted", 5, path="a.py")], 0, HOUR) == 0.0
    both = [
        applied(),
        applied(path="b.py"),
        survived(AFTER, path="b.py"),
        event("edit_reverted", 5, path="a.py"),
    ]
    assert edit_persistence(both, 0, HOUR) == 0.5
    assert edit_persistence([*both, event("edit_reverted", 6)], 0, HOUR) == 0.0


def test_an_edit_after_the_revert_is_judged_by_itself() -> None:
    events = [applied(0), event("edit_reverted", 5, path="a.py"), applied(9), survived(AFTER)]
    assert edit_persistence(events, 0, HOUR) == 1.0


def test_counts_instead_of_texts() -> None:
    counts = {"added": 8, "added_kept": 6, "deleted": 2, "deleted_kept": 9}  # more kept than there was: all
    survival = event("edit_survival", HOUR, path="a.py", horizon_s=3600, **counts)
    assert edit_persistence([survival], 0, HOUR) == 0.8


def test_a_survival_that_brings_its_own_texts() -> None:
    assert edit_persistence([survived(AFTER, before=BEFORE, after=AFTER)], 0, HOUR) == 1.0
    assert edit_persistence([survived(AFTER)], 0, HOUR) is None


def test_a_diff_instead_of_texts() -> None:
    diff = "@@ -1,2 +1,2 @@\n def area(w, h):\n-    return w + h\n+    return w * h\n"
    assert edit_persistence([event("edit_applied", path="a.py", diff=diff), survived(AFTER)], 0, HOUR) == 1.0
    assert edit_persistence([event("edit_applied", path="a.py", diff=diff), survived(BEFORE)], 0, HOUR) == 0.0


def test_a_refusal_says_that_nothing_was_kept() -> None:
    """What an editor with accept and reject sends, and nothing else."""
    assert edit_persistence([event("edit_rejected", 5, reason="no")], 0, HOUR) == 0.0
    assert edit_persistence([event("edit_rejected", 5, path="a.py")], 0, HOUR) == 0.0
    assert edit_persistence([applied(), event("edit_rejected", 5, path="a.py")], 0, HOUR) == 0.0
    assert edit_persistence([applied(), event("edit_rejected", 5)], 0, HOUR) == 0.0
    assert edit_persistence([event("edit_reverted", 5, path="a.py")], 0, HOUR) == 0.0


def test_a_refused_file_counts_beside_a_kept_one() -> None:
    kept = [applied(), survived(AFTER)]  # one line replaced: 2 units
    assert edit_persistence([*kept, event("edit_rejected", 5, path="b.py")], 0, HOUR) == 2 / 3
    both = [*kept, applied(path="b.py"), event("edit_rejected", 5, path="b.py")]
    assert edit_persistence(both, 0, HOUR) == 2 / 4


def test_an_edit_after_the_refusal_is_judged_by_itself() -> None:
    events = [event("edit_rejected", 5, path="a.py"), applied(9), survived(AFTER)]
    assert edit_persistence(events, 0, HOUR) == 1.0
    assert edit_persistence(events[:2], 0, HOUR) is None
    assert edit_rejected(events, 0, HOUR) == 1.0


def test_what_was_measured_and_refused_is_lost() -> None:
    counts = {"added": 8, "added_kept": 6, "deleted": 2, "deleted_kept": 2}
    survival = event("edit_survival", HOUR, path="a.py", horizon_s=3600, **counts)
    assert edit_persistence([survival, event("edit_rejected", 5)], 0, HOUR) == 0.0


@pytest.mark.parametrize("kind", ["edit_rejected", "edit_reverted"])
@pytest.mark.parametrize("named", [{}, {"path": "a.py"}])
def test_what_is_undone_after_the_horizon_changes_nothing(kind: str, named: dict[str, str]) -> None:
    kept = [applied(7), survived(AFTER)]
    in_time, late = event(kind, 7 + HOUR, **named), event(kind, 8 + HOUR, **named)
    assert (edit_persistence([*kept, in_time], 0, HOUR), edit_rejected([*kept, in_time], 0, HOUR)) == (
        0.0,
        1.0,
    )
    assert (edit_persistence([*kept, late], 0, HOUR), edit_rejected([*kept, late], 0, HOUR)) == (1.0, 0.0)
    assert edit_persistence([*kept, late], 0, 2 * HOUR) == 0.0, "a spec with a longer horizon"
    never_applied = [event(kind, 9 + HOUR, **named)]
    assert (edit_persistence(never_applied, 9, HOUR), edit_persistence(never_applied, 8, HOUR)) == (0.0, None)
    assert (edit_rejected(never_applied, 9, HOUR), edit_rejected(never_applied, 8, HOUR)) == (1.0, 0.0)


def test_rejected() -> None:
    assert edit_rejected([applied()], 0, HOUR) == 0.0
    assert edit_rejected([event("edit_rejected", reason="no")], 0, HOUR) == 1.0
    assert edit_rejected([applied(), event("edit_reverted", 4, path="a.py")], 0, HOUR) == 1.0


anything = st.none() | st.booleans() | st.integers(-5, 9) | st.floats(allow_nan=True) | st.text(max_size=5)
keys = [
    "path",
    "before",
    "after",
    "now",
    "diff",
    "horizon_s",
    "added",
    "added_kept",
    "deleted",
    "deleted_kept",
]
strange = st.builds(
    lambda kind, at, data: event(kind, at, **data),
    st.sampled_from(["edit_applied", "edit_survival", "edit_reverted", "edit_rejected", "thumbs"]),
    st.integers(0, 2 * HOUR),
    st.dictionaries(st.sampled_from(keys), anything | st.lists(anything, max_size=2)),
)


@given(st.lists(strange, max_size=8))
def test_no_client_can_break_it(events: list[Event]) -> None:
    value = edit_persistence(events, 0, HOUR)
    assert value is None or 0.0 <= value <= 1.0


@given(st.randoms(use_true_random=False), st.sampled_from([AFTER, BEFORE, ""]))
def test_the_order_of_arrival_does_not_matter(order: random.Random, now: str) -> None:
    wrong = BEFORE.replace("w + h", "w - h")
    events = [applied(0, after=wrong), applied(1, before=wrong), survived(now), survived(BEFORE, 9999)]
    expected = edit_persistence(events, 0, HOUR)
    order.shuffle(events)
    assert edit_persistence(events, 0, HOUR) == expected
