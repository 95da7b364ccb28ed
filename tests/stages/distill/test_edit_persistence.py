"""The signal by hand: which change, which measurement, what a revert means; any order of events."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.distill.signals import edit_persistence as signal
from stages.distill.signals import edit_rejected as rejected
from stages.distill.signals.edits import edits_of
from stages.records import Event
from tests.stages.distill.events import AFTER, BEFORE, HOUR, applied, event, survived

DOUBLE = "def area(w, h):\n    return 2 * w * h\n"


def edit_persistence(events: Sequence[Event], answered_at: int, horizon_ms: int) -> float | None:
    return signal.edit_persistence(events, horizon_ms, edits_of(events, answered_at, horizon_ms))


def edit_rejected(events: Sequence[Event], answered_at: int, horizon_ms: int) -> float:
    return rejected.edit_rejected(edits_of(events, answered_at, horizon_ms))


def test_unknown_until_measured() -> None:
    assert edit_persistence([], 0, HOUR) is None
    assert edit_persistence([applied()], 0, HOUR) is None
    assert edit_persistence([applied(), survived(AFTER, 600)], 0, HOUR) is None
    assert edit_persistence([applied(), survived(AFTER, 7200)], 0, HOUR) == 1.0  # twice the horizon at most
    assert edit_persistence([applied(), survived(AFTER, 7201)], 0, HOUR) is None
    for delay in ({}, {"horizon_s": None}, {"horizon_s": "3600"}):  # of a client that does not say when
        told = event("edit_survival", HOUR, path="a.py", now=AFTER, **delay)
        assert edit_persistence([applied(), told], 0, HOUR) is None


@pytest.mark.parametrize(
    ("now", "value"),
    [(AFTER, 1.0), (BEFORE, 0.0), (BEFORE.replace("w + h", "h * w"), 0.5), ("", 0.5)],
)
def test_measured_at_the_horizon(now: str, value: float) -> None:
    assert edit_persistence([applied(), survived(now)], 0, HOUR) == value


def test_the_first_measurement_after_the_horizon_counts() -> None:
    events = [applied(), survived(BEFORE, 7000), survived(AFTER, 3600), survived(BEFORE, 60)]
    assert edit_persistence(events, 0, HOUR) == 1.0


def test_an_edit_goes_on_from_the_last_change_of_its_file() -> None:
    """The second and third are one change; before them somebody else had changed the file."""
    texts = [f"first_value = {n}\nsecond_value = {n}\n" for n in range(5)]
    pairs = ((0, 1), (2, 3), (3, 4))
    told = [applied(at, before=texts[was], after=texts[new]) for at, (was, new) in enumerate(pairs)]
    changes = edits_of(told, 0, HOUR).changes["a.py"]
    assert [(one.before, one.after) for one in changes] == [(texts[0], texts[1]), (texts[2], texts[4])]


def test_the_measurement_that_saw_all_edits_counts() -> None:
    """Each was measured an hour after itself: the first measurement decided, without the second edit."""
    wrong = BEFORE.replace("w + h", "w - h")
    events = [applied(0, after=wrong), applied(HOUR + 1, before=wrong)]
    first, second = ({"path": "a.py", "horizon_s": 3600, "now": now} for now in (wrong, AFTER))
    measured = [
        event("edit_survival", HOUR, "first", **first),
        event("edit_survival", 2 * HOUR + 1, "second", **second),
    ]
    assert edit_persistence([*events, measured[0]], 0, HOUR) == 0.5
    assert edit_persistence([*events, *measured], 0, HOUR) == 1.0
    assert edit_persistence([*measured[::-1], *events], 0, HOUR) == 1.0
    repeated = event("edit_survival", 3 * HOUR + 2, "again", **{**second, "now": BEFORE})
    assert edit_persistence([*events, *measured, repeated], 0, HOUR) == 1.0, "nothing was due any more"


def survival(at: int, **data: Any) -> Event:
    return event("edit_survival", at, path="a.py", horizon_s=3600, **data)


def test_counts_of_a_last_small_edit_are_not_those_of_all() -> None:
    """A hundred lines thrown away and one kept: the last edit's count was all that was read."""
    hundred = "".join(f"line {n}\n" for n in range(100))
    edits = [
        applied(0, before="x\n", after="x\n" + hundred),
        applied(5, before="x\n" + hundred, after="import os\nx\n" + hundred),
    ]
    measured = [
        survival(HOUR, added=100, added_kept=0, deleted=0, deleted_kept=0),
        survival(HOUR + 5, added=1, added_kept=1, deleted=0, deleted_kept=0),
    ]
    assert edit_persistence([*edits, *measured], 5, HOUR) == 0.0


def test_an_edit_that_the_agent_took_back_earns_nothing_however_it_is_measured() -> None:
    """With texts of its own the measurement was taken for one of an edit that nobody had told of."""
    two = [applied(0), applied(5, before=AFTER, after=BEFORE)]
    texts = [
        survival(HOUR, before=BEFORE, after=AFTER, now=BEFORE),
        survival(HOUR + 5, before=AFTER, after=BEFORE, now=BEFORE),
    ]
    assert edit_persistence([*two, *texts], 5, HOUR) is None
    counts = survival(HOUR, added=1, added_kept=1, deleted=0, deleted_kept=0)
    assert edit_persistence([*two, counts], 5, HOUR) is None


def test_one_edit_is_measured_once() -> None:
    """Kept when it was due, and told once more when the user had gone on working."""
    measured = [survival(HOUR, now=AFTER), survival(HOUR + HOUR // 2, now=BEFORE)]
    assert edit_persistence([applied(0), *measured], 0, HOUR) == 1.0
    elsewhere = applied(10 * HOUR, path="b.py")
    assert edit_persistence([applied(0), elsewhere, *measured], 0, HOUR) == 1.0


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
    more = event("edit_survival", HOUR, path="a.py", horizon_s=3600, **counts | {"added_kept": 9})
    assert edit_persistence([more], 0, HOUR) == 1.0


def test_counts_of_a_file_tell_of_all_its_edits_unless_all_were_undone() -> None:
    edits = [applied(0, generation="g1"), applied(3, before=AFTER, after=DOUBLE, generation="g2")]
    counts = {"added": 2, "added_kept": 1, "deleted": 0, "deleted_kept": 0}
    survival = event("edit_survival", HOUR, path="a.py", horizon_s=3600, **counts)
    one = rejected_proposal(5, "g2", path="a.py")
    assert edit_persistence([*edits, survival, one], 9, HOUR) == 1 / 2
    assert edit_persistence([*edits, survival, one, rejected_proposal(6, "g1")], 9, HOUR) == 0.0


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


def rejected_proposal(at: int, generation: str, **data: str) -> Event:
    return event("edit_rejected", at, generation=generation, **data)


@pytest.mark.parametrize("named", [{}, {"path": "a.py"}])
def test_a_refused_second_proposal_leaves_the_kept_edit_alone(named: dict[str, str]) -> None:
    """What an editor with accept and reject sends of two proposals for one file, one of them taken."""
    kept = [applied(0, generation="g1"), survived(AFTER)]  # one line replaced: 2 units
    refused = rejected_proposal(5, "g2", **named)
    assert edit_persistence([*kept, refused], 9, HOUR) == 2 / 3
    assert edit_persistence([kept[0], refused], 9, HOUR) == 0.0, "of the kept edit nothing is known yet"
    assert edit_persistence([*kept, rejected_proposal(5, "g1", **named)], 9, HOUR) == 0.0
    again = event("edit_rejected", 6, generation="g2", **named)
    assert edit_persistence([*kept, refused, again], 9, HOUR) == 2 / 3, "told twice, it is one proposal"
    assert edit_persistence([*kept, refused, rejected_proposal(7, "g3", **named)], 9, HOUR) == 2 / 4
    late = rejected_proposal(10 + HOUR, "g2", **named)
    assert edit_persistence([*kept, late], 9, HOUR) == 1.0
    assert edit_persistence([*kept, late], 10, HOUR) == 2 / 3, "a proposal is as old as its answer"


def test_a_refused_proposal_weighs_its_own_lines() -> None:
    kept = [applied(0, generation="g1"), survived(AFTER)]
    three = "".join(f"value_{i} = compute({i})\n" for i in range(3))
    texts = rejected_proposal(5, "g2", path="a.py", before="", after=three)
    assert edit_persistence([*kept, texts], 9, HOUR) == 2 / 5
    diff = "@@ -1 +1,2 @@\n-    return w * h\n+    area = w * h\n+    return area\n"
    assert edit_persistence([*kept, rejected_proposal(5, "g2", path="a.py", diff=diff)], 9, HOUR) == 2 / 5
    same = rejected_proposal(5, "g2", path="a.py", before=three, after=three)
    assert edit_persistence([*kept, same], 9, HOUR) == 2 / 3


def test_a_refusal_undoes_what_its_generation_applied() -> None:
    """Of two edits to one file the second is refused: what the first one changed is there again."""
    edits = [applied(0, generation="g1"), applied(3, before=AFTER, after=DOUBLE, generation="g2")]
    refused = rejected_proposal(5, "g2", path="a.py")
    assert edit_persistence([*edits, survived(AFTER), refused], 9, HOUR) == 2 / 4
    assert edit_persistence([*edits, survived(AFTER)], 9, HOUR) == 1 / 2, "unless told, it is one change"
    reverted = event("edit_reverted", 5, generation="g2", path="a.py")
    assert edit_persistence([*edits, survived(AFTER), reverted], 9, HOUR) == 2 / 4


def test_a_revert_for_another_generation_undoes_the_file() -> None:
    """Only what was applied can be reverted, whichever answer the client sends it for."""
    kept = [applied(0, generation="g1"), survived(AFTER)]
    revert = event("edit_reverted", 5, generation="g2", path="a.py")
    assert edit_persistence([*kept, revert], 9, HOUR) == 0.0
    counts = {"added": 1, "added_kept": 1, "deleted": 1, "deleted_kept": 1}
    measured = event("edit_survival", HOUR, generation="g1", path="a.py", horizon_s=3600, **counts)
    assert edit_persistence([measured, revert], 9, HOUR) == 0.0, "measured, and never told as applied"


def test_an_edit_of_the_same_millisecond_is_what_was_refused() -> None:
    refused = event("edit_rejected", 5, path="a.py")
    assert edit_persistence([applied(5), survived(AFTER), refused], 0, HOUR) == 0.0


def test_in_time_is_the_horizon_of_the_last_edit_undone() -> None:
    edits = [applied(0), applied(10, before=AFTER, after=DOUBLE), survived(DOUBLE)]
    assert edit_persistence([*edits, event("edit_reverted", 10 + HOUR, path="a.py")], 0, HOUR) == 0.0
    assert edit_persistence([*edits, event("edit_reverted", 11 + HOUR, path="a.py")], 0, HOUR) == 1.0


def test_what_was_made_good_stays_so_when_it_is_undone_once_more() -> None:
    events = [
        applied(0, generation="g1"),
        event("edit_reverted", 5, generation="g1", path="a.py"),
        applied(6, generation="g2"),
        event("edit_rejected", 7, generation="g1", path="a.py"),
        survived(AFTER),
    ]
    assert edit_persistence(events, 9, HOUR) == 1.0
    assert not edits_of(events, 9, HOUR).undone


def test_an_edit_that_changes_nothing_makes_nothing_good() -> None:
    nothing = applied(9, before=BEFORE, after=BEFORE, generation="g2")
    assert edit_persistence([rejected_proposal(5, "g1", path="a.py"), nothing], 9, HOUR) == 0.0


def test_what_was_measured_and_kept_is_not_what_another_generation_was_refused() -> None:
    counts = {"added": 1, "added_kept": 1, "deleted": 1, "deleted_kept": 1}
    survival = event("edit_survival", HOUR, generation="g1", path="a.py", horizon_s=3600, **counts)
    assert edit_persistence([survival, rejected_proposal(5, "g2", path="a.py")], 9, HOUR) == 2 / 3
    assert edit_persistence([survival, rejected_proposal(5, "g1", path="a.py")], 9, HOUR) == 0.0


def test_an_edit_after_the_refusal_is_judged_by_itself() -> None:
    events = [event("edit_rejected", 5, path="a.py"), applied(9), survived(AFTER)]
    assert edit_persistence(events, 0, HOUR) == 1.0
    assert edit_persistence(events[:2], 0, HOUR) is None
    assert edit_rejected(events, 0, HOUR) == 1.0


def test_what_was_measured_and_refused_is_lost() -> None:
    counts = {"added": 8, "added_kept": 6, "deleted": 2, "deleted_kept": 2}
    survival = event("edit_survival", HOUR, path="a.py", horizon_s=3600, **counts)
    assert edit_persistence([survival, event("edit_rejected", 5)], 0, HOUR) == 0.0
    kept = [applied(path="b.py", generation="g2"), survived(AFTER, path="b.py")]  # 2 units beside its 10
    assert edit_persistence([survival, event("edit_rejected", 5), *kept], 0, HOUR) == 2 / 12


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
    lambda kind, at, generation, data: event(kind, at, generation=generation, **data),
    st.sampled_from(["edit_applied", "edit_survival", "edit_reverted", "edit_rejected", "thumbs"]),
    st.integers(0, 2 * HOUR),
    st.sampled_from(["g1", "g2"]),
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


def test_a_measurement_of_no_file_is_of_the_only_one() -> None:
    """The contract lets clients leave `path` away; its text was then of no use to anybody, without a word."""
    nameless = event("edit_survival", HOUR, horizon_s=3600, now=BEFORE)
    assert edit_persistence([applied(), nameless], 0, HOUR) == 0.0
    assert edit_persistence([applied(), nameless, survived(AFTER)], 0, HOUR) == 1.0  # the named one is surer
    other = applied(1, path="b.py")
    assert edit_persistence([applied(), other, nameless], 0, HOUR) is None
    counts = event("edit_survival", HOUR, horizon_s=3600, added=1, added_kept=1, deleted=1, deleted_kept=1)
    undone = event("edit_reverted", 10, path="a.py")
    assert edit_persistence([applied(), undone, counts], 0, HOUR) == 0.0  # once, and lost
