"""The embedded judge of follow-ups: plain cases, what outranks text, and that no text breaks it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.distill.signals.dissatisfied_followup import (
    EXPLICIT_NO,
    EXPLICIT_YES,
    followup,
    repeats_request,
)
from stages.distill.signals.followup import model
from stages.distill.signals.followup.features import Followup, ngrams, readable
from stages.records import Event
from tests.stages.distill.events import HOUR, event
from tests.stages.distill.followups import probability

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
    assert probability(message, REQUEST) > 0.55


@pytest.mark.parametrize("message", SATISFIED)
def test_satisfied(message: str) -> None:
    assert probability(message, REQUEST) < 0.3


def test_a_number_by_hand() -> None:
    shipped = model.Model(
        schema="",
        recipe={},
        data={},
        bias=-1.0,
        readable={"persists": 2.0, "praise": -3.0},
        ngrams={"still wrong": 1.5, "^ still": 0.5, "thanks": -9.0},
        ngram_scale=2.0,
        ngram_least=4,
        slope=0.5,
        intercept=0.25,
        threshold=0.5,
    )
    # two known n-grams of at least four: 2 / sqrt(4) * (1.5 + 0.5); 0.5 * (-1 + 2 + 2) + 0.25 = 1.75
    judged = model.judge([Followup("still wrong", "add a test")], shipped)
    assert judged == pytest.approx([0.8519528019683106])  # 1 / (1 + e^-1.75)


def test_readable_features() -> None:
    found = readable([Followup("still wrong", REQUEST, "Fixed. Shall I go on?")])
    on = {name for name, (value,) in found.items() if value and "length" not in name}
    assert {"persists", "short", "complains", "answer_asks", "answer_claims", "asked_short"} <= on
    assert not on & {"praise", "trace", "repeats", "goes_on", "question"}


def test_ngrams() -> None:
    assert ngrams("No, 7 no") == ["no", "0", "^ no", "no 0", "0 no", "^ no 0", "no 0 no"]
    assert ngrams("修复") == ["修", "复", "^ 修", "修 复", "^ 修 复"]


def test_the_same_words_about_other_code_are_no_repeat() -> None:
    one, other = ("Resolve this finding, be concise:\n```\n" + code + "\n```" for code in ("a = a", "b()"))
    found = readable([Followup(one, other), Followup(one, one)])
    assert found["same_form"].tolist() == [1.0, 0.0]
    assert found["repeats_all"].tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("complaint", "going_on"),
    [
        ("还是不行，报错了", "好的，继续"),
        ("ainda não funciona, deu erro", "perfeito, agora crie os testes"),
        ("sigue sin funcionar", "gracias, ahora añade pruebas"),
        ("das ist falsch, der Fehler ist immer noch da", "super, weiter mit der Doku"),
        ("ça ne marche toujours pas", "parfait, ajoute un bouton"),
        ("всё ещё не работает", "спасибо, продолжай"),
        ("まだエラーが出ます", "ありがとう、次はテストを追加してください"),
    ],
)
def test_other_languages(complaint: str, going_on: str) -> None:
    assert probability(complaint, REQUEST) > 0.5 > probability(going_on, REQUEST)


def test_saying_it_again_is_an_answer_when_the_agent_asked() -> None:
    assert probability(REQUEST, REQUEST) > 0.6
    assert probability(REQUEST, REQUEST, asked=True) < 0.3


def test_code_is_no_opinion() -> None:
    code = "here is the file\n```python\nraise ValueError('wrong, broken, still failing')\n```"
    assert probability(code, REQUEST) < 0.5


def test_no_message_is_not_known() -> None:
    assert followup([], REQUEST, "", False, False, 0, HOUR) is None
    assert (
        followup([event("user_message", HOUR + 1, text="wrong")], REQUEST, "", False, False, 0, HOUR) is None
    )
    assert followup([event("user_message", 5, text="  ")], REQUEST, "", False, False, 0, HOUR) is None


def test_the_first_message_counts() -> None:
    events = [event("user_message", 9, text="still wrong"), event("user_message", 5, text="thanks")]
    assert followup(events, REQUEST, "", False, False, 0, HOUR) == Followup("thanks", REQUEST)


CONTINUED = """This session is being continued from a previous conversation that ran out of context. The
conversation is summarized below: the test still fails with KeyError, the wrong file was edited."""


@pytest.mark.parametrize(
    "text",
    [
        "<task-notification>it failed with an error</task-notification>",
        CONTINUED,  # was judged: 0.99
        "<command-name>/clear</command-name>\n<command-message>clear</command-message>",
    ],
)
def test_what_a_client_writes_by_itself_is_no_follow_up(text: str) -> None:
    notice = event("user_message", 5, text=text)
    assert followup([notice], REQUEST, "", False, False, 0, HOUR) is None
    events = [notice, event("user_message", 9, text="thanks")]
    assert followup(events, REQUEST, "", False, False, 0, HOUR) == Followup("thanks", REQUEST)


def test_explicit_behaviour_outranks_text() -> None:
    thanks = event("user_message", 5, text="thanks")
    assert followup([thanks], REQUEST, "", False, True, 0, HOUR) == EXPLICIT_NO
    assert followup([thanks, event("thumbs", 6, value=-1)], REQUEST, "", False, False, 0, HOUR) == EXPLICIT_NO
    wrong = event("user_message", 5, text="still wrong")
    assert followup([wrong, event("thumbs", 6, value=1)], REQUEST, "", False, False, 0, HOUR) == EXPLICIT_YES


def test_the_last_thumb_and_the_first_message_count() -> None:
    thumbs = [event("thumbs", 6, value=1), event("thumbs", 4, eid="first", value=-1)]
    assert followup(thumbs, REQUEST, "", False, False, 0, HOUR) == EXPLICIT_YES
    later = [event("user_message", 9, text="and now?"), event("user_message", 5, text="thanks")]
    assert followup(later, REQUEST, "", False, False, 0, HOUR) == Followup("thanks", REQUEST)


def test_a_thumb_outranks_an_undone_edit() -> None:
    thumb = event("thumbs", 6, value=1)
    assert followup([thumb], REQUEST, "", False, True, 0, HOUR) == EXPLICIT_YES


def test_an_undone_edit_without_a_message_is_no_followup() -> None:
    """What the undoing says is in the persistence; here it only says how to take the message."""
    assert followup([event("edit_rejected", 6)], REQUEST, "", False, True, 0, HOUR) is None
    late = event("user_message", HOUR + 1, text="still wrong")
    assert followup([event("edit_rejected", 6), late], REQUEST, "", False, True, 0, HOUR) is None


def test_a_repeated_request_outranks_text() -> None:
    again = event("user_message", 5, text="Make total() add the tax, before it rounds!")
    assert followup([again], REQUEST, "Done.", False, False, 0, HOUR) == EXPLICIT_NO
    asked = followup([again], REQUEST, "Which tax?", True, False, 0, HOUR)
    assert asked == Followup("Make total() add the tax, before it rounds!", REQUEST, "Which tax?", True)


@pytest.mark.parametrize(
    ("refusal", "known"),
    [
        (event("edit_rejected", 5, path="a.py", reason="no, the other function"), EXPLICIT_NO),
        (event("tool_result", 5, name="Bash", ok=False, reason="you broke the tests"), EXPLICIT_NO),
        (event("edit_rejected", 5, path="a.py"), None),  # nobody said anything
        (event("edit_rejected", 5, path="a.py", reason=" \n"), None),
        (event("tool_result", 5, name="Bash", ok=False), None),  # it failed
        (event("tool_result", 5, name="Bash", ok=True, reason="as asked"), None),
        (event("edit_rejected", HOUR + 1, path="a.py", reason="no"), None),
    ],
)
def test_a_refusal_with_a_reason_outranks_text_and_is_a_follow_up_itself(
    refusal: Event, known: float | None
) -> None:
    assert followup([refusal], REQUEST, "Done.", False, False, 0, HOUR) == known
    thanks = event("user_message", 9, text="great, go on")
    judged = followup([refusal, thanks], REQUEST, "Done.", False, False, 0, HOUR)
    assert judged == (known or Followup("great, go on", REQUEST, "Done.", False))
    thumb = event("thumbs", 10, value=1)
    assert followup([refusal, thanks, thumb], REQUEST, "Done.", False, False, 0, HOUR) == EXPLICIT_YES


def test_of_a_message_behind_an_editors_context_the_persons_words_are_judged() -> None:
    context = "# Context from my IDE setup:\n\n## Active file: shop.py\n\n## My request for Codex:\n"
    said = event("user_message", 5, text=f"{context}still wrong\n")
    assert followup([said], REQUEST, "Done.", False, False, 0, HOUR) == Followup(
        "still wrong", REQUEST, "Done.", False
    )
    again = event("user_message", 5, text=f"{context}{REQUEST}\n")
    assert followup([again], REQUEST, "Done.", False, False, 0, HOUR) == EXPLICIT_NO


@pytest.mark.parametrize(
    ("message", "request_", "same"),
    [
        ("rename area to size", "rename area to size", True),
        ("rename size to area", "rename area to size", False),  # the other way round
        ("rename area to size please", "rename area to size", False),  # 5 words for 4
        ("go on", "go on", False),  # two words
        ("continue with the next step", "continue with the next step", False),  # going on, twice
        ("", "", False),
    ],
)
def test_what_is_a_repeated_request(message: str, request_: str, same: bool) -> None:
    assert repeats_request(message, request_) is same


def test_comparing_long_requests_takes_no_time() -> None:
    long = "fix it now " * 600
    started = time.perf_counter()
    assert repeats_request(long, long)
    assert not repeats_request(long, "now " + long)
    assert time.perf_counter() - started < 0.5


def test_a_note_of_an_interruption_outranks_text() -> None:
    note = "[Request interrupted by user for tool use]"
    for text in (note, f"{note}\nthanks"):
        said = event("user_message", 5, text=text)
        assert followup([said], REQUEST, "", False, False, 0, HOUR) == EXPLICIT_NO
    quoted = event("user_message", 5, text=f"thanks! what does {note} in the log mean?")
    assert isinstance(followup([quoted], REQUEST, "", False, False, 0, HOUR), Followup)


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
