"""Patterns in columns find what Python's `re` finds, one message at a time."""

from __future__ import annotations

import re
from importlib import resources

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.distill.signals.followup.patterns import Pattern, Patterns, _without_lookaround, patterns
from stages.distill.text import prose


def test_shipped_patterns_find_what_python_finds() -> None:
    data = resources.files("stages.distill.signals.followup_data").joinpath("messages.jsonl")
    texts = [msgspec.json.decode(line)["message"] for line in data.read_bytes().splitlines()]
    known = patterns()
    found = known.found(texts)
    for row, (text, said) in enumerate(zip(texts, prose(texts), strict=True)):
        plain = known.all["resolved"].exact.sub(" resolved ", said)
        for name, pattern in known.all.items():
            looked_at = plain[: known.opening_characters] if pattern.opening else plain
            looked_at = text if pattern.whole else looked_at
            seen = pattern.exact.search(looked_at) is not None if name != "resolved" else plain != said
            assert found[name][row] == seen, (name, text)


def test_lookaround_is_decided_by_python() -> None:
    def feature(pattern: str) -> Pattern:
        return Pattern(re.compile(pattern, re.IGNORECASE | re.MULTILINE), opening=False, whole=False)

    known = Patterns(
        90, {"resolved": feature("fixed"), "good": feature(r"(?<!not )\bgood\b(?! (?:but|luck))")}
    )
    texts = ["good", "not good", "good luck", "good but not good", "bad", "not GOOD; Good"]
    assert known.found(texts, ["good"])["good"].tolist() == [True, False, False, False, False, True]


@pytest.mark.parametrize(
    ("pattern", "without"),
    [
        (r"a(?! (?:b|c)\b)d", "ad"),
        (r"(?<!not )(?<!n't )x", "x"),
        (r"(?:a|b)\(?!", r"(?:a|b)\(?!"),
        (r"no(?! \(\))", "no"),
    ],
)
def test_lookaround_is_cut_out_whole(pattern: str, without: str) -> None:
    assert _without_lookaround(pattern) == without


@given(st.lists(st.text(max_size=200), min_size=1, max_size=5))
def test_a_column_is_its_rows(texts: list[str]) -> None:
    assert prose(texts) == [prose([text])[0] for text in texts]


def test_half_a_surrogate_pair_is_no_error() -> None:
    assert prose(["still \ud83d wrong"]) == ["still ? wrong"]


def test_a_sentence_may_begin_with_the_file_it_is_about() -> None:
    texts = ["@notes.md still wrong", "@app.route\ndef f():", "@notes.md"]
    assert prose(texts) == ["@notes.md still wrong", "", ""]
