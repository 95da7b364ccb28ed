"""What of a text is seen, and where its lines end."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from cursorbench.sessions.line_ends import code_lines, seen

UNSEEN = "\u200b\ufeff\u00ad\u202e\ufe0f\u2800\U000e0041"
TEXTS = st.text(st.sampled_from("ab \t\n\r—é漢\u2028\x0c" + UNSEEN), max_size=40)


@given(TEXTS)
def test_only_what_shows_nothing_is_left_out(text: str) -> None:
    assert seen(text) == "".join(letter for letter in text if letter not in UNSEEN)


@given(TEXTS)
def test_lines_end_at_newlines_and_carriage_returns_alone(text: str) -> None:
    shown = "".join(letter for letter in text if letter not in UNSEEN)
    ends = shown.replace("\r\n", "\n").replace("\r", "\n")
    assert code_lines(text) == ([] if not shown else ends.removesuffix("\n").split("\n"))


def test_each_mark_is_one_that_shows_nothing() -> None:
    """By Unicode: formats, a variation selector, and the blank pattern of Braille."""
    assert {unicodedata.category(letter) for letter in UNSEEN} == {"Cf", "Mn", "So"}
