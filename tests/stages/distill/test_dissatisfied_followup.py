"""The embedded judge of follow-ups: plain cases, what outranks text, and that no text breaks it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.distill.signals.dissatisfied_followup import (
    EXPLICIT_NO,
    EXPLICIT_YES,
    dissatisfied_followup,
    features,
    load_model,
    probability,
)
from tests.stages.distill.events import HOUR, event

REQUEST = "make total() add the tax before it rounds"
TRACE = 'Traceback (most recent call last):\n  File "shop.py", line 4, in <module>\nAssertionError: 12 != 13'

DISSATISFIED = [
    TRACE,
    "still wrong",
    "it still returns the old value",
    "that's not what I asked for",
    "no, the other function",
    "this does not work",
    "same error as before",
    "you removed the rounding",
    "please undo that",
    "nope",
    "why did you delete the docstring?",
    "now the tests fail",
    "The result is incorrect: it should be 13 not 12",
    "[Request interrupted by user for tool use]",
    "make total() add the tax before it rounds!!",
    "didnt change a thing",
    "that broke the import",
]
SATISFIED = [
    "thanks!",
    "perfect, that works",
    "great. now add a docstring",
    "next: rename price to amount",
    "ok",
    "can you also write a test for it?",
    "looks good, commit it",
    "continue",
    "Add a --verbose flag to the command line",
    "what does the second parameter do?",
    "no problem, thanks",
    "the error is fixed, thank you",
    "let's move on to the parser",
    "lgtm",
]


@pytest.mark.parametrize("message", DISSATISFIED)
def test_dissatisfied(message: str) -> None:
    assert probability(message, REQUEST) > 0.6


@pytest.mark.parametrize("message", SATISFIED)
def test_satisfied(message: str) -> None:
    assert probability(message, REQUEST) < 0.3


def test_a_number_by_hand() -> None:
    found = features("still wrong", REQUEST)
    assert {name for name, value in found.items() if value} == {"persists"}
    weights = load_model().weights
    assert (load_model().bias, weights["persists"]) == (-1.7, 3.2)
    assert probability("still wrong", REQUEST) == pytest.approx(0.8175744761936437)  # 1 / (1 + e^-1.5)


def test_saying_it_again_is_an_answer_when_the_agent_asked() -> None:
    assert probability(REQUEST, REQUEST) > 0.6
    assert probability(REQUEST, REQUEST, asked=True) < 0.3


def test_code_is_no_opinion() -> None:
    code = "here is the file\n```python\nraise ValueError('wrong, broken, still failing')\n```"
    assert probability(code, REQUEST) < 0.3


def test_no_message_is_not_known() -> None:
    assert dissatisfied_followup([], REQUEST, False, False, 0, HOUR) is None
    assert (
        dissatisfied_followup([event("user_message", HOUR + 1, text="wrong")], REQUEST, False, False, 0, HOUR)
        is None
    )
    assert (
        dissatisfied_followup([event("user_message", 5, text="  ")], REQUEST, False, False, 0, HOUR) is None
    )


def test_the_first_message_counts() -> None:
    events = [event("user_message", 9, text="still wrong"), event("user_message", 5, text="thanks")]
    value = dissatisfied_followup(events, REQUEST, False, False, 0, HOUR)
    assert value is not None
    assert value < 0.1


def test_explicit_behaviour_outranks_text() -> None:
    thanks = event("user_message", 5, text="thanks")
    assert dissatisfied_followup([thanks], REQUEST, False, True, 0, HOUR) == EXPLICIT_NO
    assert (
        dissatisfied_followup([thanks, event("thumbs", 6, value=-1)], REQUEST, False, False, 0, HOUR)
        == EXPLICIT_NO
    )
    wrong = event("user_message", 5, text="still wrong")
    assert (
        dissatisfied_followup([wrong, event("thumbs", 6, value=1)], REQUEST, False, False, 0, HOUR)
        == EXPLICIT_YES
    )


def test_a_thumb_outranks_an_undone_edit() -> None:
    thumb = event("thumbs", 6, value=1)
    assert dissatisfied_followup([thumb], REQUEST, False, True, 0, HOUR) == EXPLICIT_YES


def test_an_undone_edit_without_a_message_is_no_followup() -> None:
    """What the undoing says is in the persistence; here it only says how to take the message."""
    assert dissatisfied_followup([event("edit_rejected", 6)], REQUEST, False, True, 0, HOUR) is None
    late = event("user_message", HOUR + 1, text="still wrong")
    assert dissatisfied_followup([event("edit_rejected", 6), late], REQUEST, False, True, 0, HOUR) is None


@given(st.text(max_size=300), st.text(max_size=100))
def test_any_text_gets_a_probability(message: str, request: str) -> None:
    assert 0.0 < probability(message, request) < 1.0


@pytest.mark.parametrize(
    "unit", ["still ", "no, ", "a" * 40 + " ", "error: x\n", "    at f(x.js:1:2)\n", "?!", "\"'`"]
)
def test_long_texts_take_no_time(unit: str) -> None:
    started = time.perf_counter()
    probability(unit * (200_000 // len(unit)), unit * 1000)
    assert time.perf_counter() - started < 1.0
