"""What people do after an answer: by outcome, with the same luck for the same case."""

from collections import Counter

import pytest

from cursorbench.harness import call_parser
from cursorbench.harness.chat import assistant_message
from evals.population.episode import begin
from evals.population.people import day_of
from evals.population.reactions import HORIZON_S, LATE_HORIZON_S, Outcome

CASES = [case for cases in day_of("train", 1, 100, 600) for case in cases]


def whole_file(case, after):
    return call_parser.render("edit_file", {"path": case.path, "old": case.before, "new": after})


def answer(case, text, tmp_path, next_request=""):
    episode = begin(case, tmp_path)
    episode.loop.receive(assistant_message(text))
    if episode.loop.stop is None:
        episode.loop.receive(assistant_message("Done."))
    reaction = episode.react(next_request)
    episode.close()
    return reaction


def of_kind(*kinds):
    return [case for case in CASES if case.kind in kinds]


def wrong(case):
    return case.before.replace("return ", "return 1 + ", 1)


def share(values):
    values = list(values)
    return sum(values) / len(values)


def test_right_edits_stay_and_please(tmp_path):
    cases = of_kind("operator", "constant", "rename")
    reactions = [answer(case, whole_file(case, case.intent.goal), tmp_path) for case in cases]
    assert {reaction.outcome for reaction in reactions} == {Outcome.RIGHT}
    assert share(reaction.persisted for reaction in reactions) > 0.92
    assert share(reaction.dissatisfied for reaction in reactions) < 0.08


def test_wrong_edits_go_and_displease(tmp_path):
    reactions = [answer(case, whole_file(case, wrong(case)), tmp_path) for case in CASES]
    assert {reaction.outcome for reaction in reactions} == {Outcome.WRONG}
    assert share(reaction.persisted for reaction in reactions) < 0.25
    assert share(reaction.dissatisfied for reaction in reactions) > 0.55
    types = Counter(event.type for reaction in reactions for event in reaction.happenings)
    assert types["edit_rejected"] > 80
    assert types["edit_reverted"] > 150


def test_a_question_is_welcome_where_something_was_left_unsaid(tmp_path):
    vague = [answer(case, "Which value?", tmp_path) for case in of_kind("vague")]
    assert share(reaction.dissatisfied for reaction in vague) < 0.1
    answered = [reaction for reaction in vague if reaction.follow == "answer"]
    assert len(answered) > 0.8 * len(vague)
    assert all(reaction.said for reaction in answered)
    clear = [answer(case, "Which value?", tmp_path) for case in of_kind("operator", "constant")]
    assert {reaction.outcome for reaction in clear} == {Outcome.ASKED}
    assert share(reaction.dissatisfied for reaction in clear) > 0.35
    assert {reaction.persisted for reaction in clear} == {None}


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ('<tool_call>{"name": "edit_file", "argum', Outcome.JUNK),
        ("Done.", Outcome.NOTHING),
        (
            call_parser.render("edit_file", {"path": "x.py", "old": "nothing like it", "new": "x"}),
            Outcome.NOTHING,
        ),
    ],
)
def test_answers_without_an_edit_displease(tmp_path, text, outcome):
    reactions = [answer(case, text, tmp_path) for case in of_kind("operator", "constant")]
    assert {reaction.outcome for reaction in reactions} == {outcome}
    assert share(reaction.dissatisfied for reaction in reactions) > 0.6


def test_the_same_case_has_the_same_luck(tmp_path):
    for case in CASES[:50]:
        assert answer(case, "Done.", tmp_path) == answer(case, "Done.", tmp_path)


def test_events_tell_what_happened_in_order(tmp_path):
    for case in CASES:
        reaction = answer(case, whole_file(case, wrong(case)), tmp_path, next_request="next please")
        times = [event.after_s for event in reaction.happenings]
        assert times == sorted(times)
        applied = reaction.happenings[0]
        assert applied.type == "edit_applied"
        assert applied.turn == 0
        assert applied.data == {"path": case.path, "before": case.before, "after": wrong(case)}
        survivals = [event for event in reaction.happenings if event.type == "edit_survival"]
        assert [event.data["horizon_s"] for event in survivals] == [HORIZON_S, LATE_HORIZON_S]
        messages = [event for event in reaction.happenings if event.type == "user_message"]
        assert [event.data["text"] for event in messages] == ([reaction.said] if reaction.said else [])
        assert [event.turn for event in messages] == [1] * len(messages)
        if any(event.type in ("edit_rejected", "edit_reverted") for event in reaction.happenings):
            assert survivals[0].data["now"] == case.before
            assert reaction.persisted == 0.0
