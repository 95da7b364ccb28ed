"""Figures by hand; above all where a signal is known only of what went wrong and is therefore no rate."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stages.report import shown
from stages.report.episodes import CALLS, TOLD_CALLS, Episodes
from stages.report.figures import Reading, headline
from tests.stages.report.columns import episodes

KEPT, UNDONE = {"edited": 1.0}, {"edited": 1.0, "edit_rejected": 1.0, "edit_persistence": 0.0}


def read(name: str, of: Episodes) -> Reading:
    return next(one for one in headline(of) if one.name == name).read(of)


def test_persistence_that_nobody_measured_is_not_zero() -> None:
    found = read("edit_persistence", episodes(UNDONE, KEPT, KEPT, KEPT, {}))
    assert (found.value, found.low, found.high) == (None, None, None)
    assert (found.n, found.of) == (0, 4)
    assert found.note == "not measured; 1 of 4 undone or refused (25.0%)"


def test_persistence_of_a_refused_proposal_alone_is_not_zero_either() -> None:
    refused = {"edit_rejected": 1.0, "edit_persistence": 0.0}
    assert read("edit_persistence", episodes(refused)).value is None
    assert read("edit_persistence", episodes({}, {})) == Reading(None, None, None, 0, 0, 0, "no edit is told")


def test_persistence_measured_for_all_is_the_mean() -> None:
    rows = [{**KEPT, "edit_persistence": v} for v in (1.0, 0.5, 0.0)]
    found = read("edit_persistence", episodes(*rows, UNDONE))
    assert found.value == pytest.approx(1.5 / 4)  # the lost one without a refusal was measured
    assert (found.n, found.of) == (4, 4)
    assert "measured for" not in found.note


def test_persistence_measured_for_some_lets_them_stand_for_the_rest() -> None:
    """10 changes: 2 undone, 2 of the other 8 measured at 0.75 and 0.25. (2 * 0 + 8 * 0.5) / 10 = 0.4."""
    measured = [{**KEPT, "edit_persistence": v} for v in (0.75, 0.25)]
    found = read("edit_persistence", episodes(UNDONE, UNDONE, *measured, *[KEPT] * 6))
    assert found.value == pytest.approx(0.4)
    assert (found.n, found.of) == (4, 10)
    assert found.note.startswith("measured for 2 of the 8 not undone")


def test_an_undone_edit_that_was_made_good_counts_as_not_measured() -> None:
    made_good = {"edited": 1.0, "edit_rejected": 1.0}
    found = read("edit_persistence", episodes(made_good, {**KEPT, "edit_persistence": 0.5}))
    assert found.value == pytest.approx(0.5)
    assert found.note.startswith("measured for 1 of the 2 not undone")


def test_persistence_after_a_day_counts_what_was_undone_in_the_first_hour() -> None:
    day = "edit_persistence_24h"
    found = read(day, episodes(UNDONE, {**KEPT, "edit_persistence": 1.0, day: 0.6}))
    assert found.value == pytest.approx(0.3)
    assert day not in [one.name for one in headline(episodes(UNDONE, KEPT))]


def test_rejections_are_of_changes_and_refusals_alone_are_no_rate() -> None:
    found = read("edit_rejected", episodes(UNDONE, KEPT, KEPT, {}, {}))
    assert (found.value, found.n, found.of) == (pytest.approx(1 / 3), 3, 3)
    only = read("edit_rejected", episodes({"edit_rejected": 1.0}, {"edit_rejected": 1.0}, {}))
    assert (only.value, only.note) == (None, "only refusals are told (2)")
    none = read("edit_rejected", episodes(*[KEPT] * 6))
    assert none.value == 0
    assert none.note.startswith("none is told")


def test_complaints_alone_are_no_rate_of_dissatisfaction() -> None:
    complaint, message = {"dissatisfied_followup": 0.95}, {"dissatisfied_followup": 0.15}
    only = read("dissatisfied_followup", episodes(complaint, complaint, {}))
    assert (only.value, only.note) == (None, "only complaints are told (2)")
    written = read("dissatisfied_followup", episodes({"dissatisfied_followup": 0.99}, complaint))
    assert written.value == pytest.approx(0.97)  # a model has read one of them: messages are told
    found = read("dissatisfied_followup", episodes(complaint, message, {}))
    assert (found.value, found.n, found.of) == (pytest.approx(0.55), 2, 3)
    assert read("dissatisfied_followup", episodes({})).note == "no follow-up is told"


def test_invalid_calls_are_of_calls_and_need_some() -> None:
    """3 of 10 calls; an episode that broke more than it listed made at least those."""
    rows = ({CALLS: 7.0, "invalid_tool_calls": 1.0}, {CALLS: 1.0, "invalid_tool_calls": 0.0})
    found = read("invalid_tool_calls", episodes(*rows, {CALLS: 0.0, "invalid_tool_calls": 2.0}, {}))
    assert found.value == pytest.approx(3 / 10)
    assert (found.n, found.of) == (3, 3)
    assert found.note.startswith("3 of 10 calls")
    assert read("invalid_tool_calls", episodes({}, {})).note == "no tool call is told"
    gone = read("invalid_tool_calls", episodes({CALLS: math.nan, "invalid_tool_calls": 1.0}))
    assert gone.value is None
    assert "removed" in gone.note
    nobody = episodes({CALLS: 1.0}).take(np.array([], dtype=np.int64))
    assert read("invalid_tool_calls", nobody).note == "no tool call is told"  # all were forgotten


def test_calls_whose_validity_no_source_tells_are_not_taken_for_valid() -> None:
    """A: 1 of 4 broken. B says nothing of its 5 calls. C says of one that it broke, nothing of 2 others."""
    a = {CALLS: 4.0, "invalid_tool_calls": 1.0}
    b = {CALLS: 5.0, TOLD_CALLS: 0.0, "invalid_tool_calls": math.nan}
    c = {CALLS: 3.0, TOLD_CALLS: 1.0, "invalid_tool_calls": 1.0}
    found = read("invalid_tool_calls", episodes(a, b))
    assert (found.value, found.n, found.of) == (pytest.approx(1 / 4), 1, 2)
    assert found.note.startswith("1 of 4 calls; of 5 more it is not known")
    silent = read("invalid_tool_calls", episodes(b, b))
    assert (silent.value, silent.of) == (None, 2)
    figure = next(one for one in headline(episodes(b)) if one.name == "invalid_tool_calls")
    assert shown.headline_value(silent, figure) == shown.cell(silent, figure) == "not known"
    only = read("invalid_tool_calls", episodes(b, c))
    assert (only.value, only.note) == (None, "only broken calls are told (1, of 8 calls)")


def test_few_users_have_a_value_and_no_interval() -> None:
    asks = [{"user": n, "clarified": float(n % 2), "edited": 1.0 - n % 2} for n in range(40)]
    few = read("clarified", episodes(*[one | {"user": one["user"] % 4} for one in asks]))
    assert (few.value, few.low, few.high, few.n, few.users) == (0.5, None, None, 40, 4)
    assert few.note == "4 users: too few for an interval"
    many = read("clarified", episodes(*[one | {"user": one["user"] % 20} for one in asks]))
    assert many.low is not None
    assert many.high is not None
    assert many.low < 0.5 < many.high


def test_asks_of_a_source_that_tells_no_edits_says_so() -> None:
    """Its "Changed it. Shall I go on?" ends in a question without a change that anybody told."""
    asked = [{"user": n, "clarified": float(n < 3)} for n in range(10)]
    found = read("clarified", episodes(*asked))
    assert (found.value, found.note) == (0.3, "no edit is told: a question behind one counts, too")
    assert read("clarified", episodes(*asked, {"user": 10, **KEPT})).note == ""
    assert read("clarified", episodes(*[one | {"clarified": 0.0} for one in asked])).note == ""


def test_a_mean_of_users_who_do_not_differ_says_why_it_has_no_interval() -> None:
    alike = read("reward", episodes(*[{"reward": -0.2}] * 6))
    assert (alike.value, alike.low, alike.high) == (pytest.approx(-0.2), None, None)
    assert alike.note == "no two users differ: no interval"


def test_latency_is_a_factor_and_a_teams_own_signal_a_mean() -> None:
    found = episodes(
        {"latency": math.log(0.5), "mine": 2.0}, {"latency": math.log(2), "mine": 3.0}, own=("mine",)
    )
    assert read("latency", found).value == pytest.approx(1.0)
    assert read("mine", found).value == pytest.approx(2.5)
    assert read("reward", found).note == "not known"


def test_completions_taken_are_a_share_and_their_interval_is_one() -> None:
    """Student's t of six users, of whom two took theirs, went from -0.21 to 0.87."""
    rows = [{"completion_accepted": taken, "edited": taken} for taken in (1.0, 1.0, 0.0, 0.0, 0.0, 0.0)]
    found = episodes(*rows, own=("completion_accepted",))
    taken = read("completion_accepted", found)
    assert (taken.value, taken.n, taken.users) == (pytest.approx(1 / 3), 6, 6)
    assert taken == read("edited", found)
    assert 0 < (taken.low or 0) < 1 / 3 < (taken.high or 1) < 1
    unseen = read("completion_accepted", episodes(*rows, {}, own=("completion_accepted",)))
    assert (unseen.n, unseen.of, unseen.value) == (6, 7, taken.value)
