"""Reading what people write to an agent: prose apart from code, traces, words, questions.

Generic English and programming, the same for every signal that looks at text. Whole columns at a time, by
Polars: its expressions run in time linear in the text, whatever a text is made of, and a hundred times
faster than Python's. Nothing here raises on any text. Not for: scoring (`signals/dissatisfied_followup.py`,
`work.py`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl

LIMIT = 8_000  # characters looked at; a pasted log says all it has to say before that

_FENCE = r"(?s)```.*?(?:```|\z)"
_LINE_ENDS = r"\r\n|[\r\x0b\x0c\x1c-\x1e\x{85}\x{2028}\x{2029}]"
_CODE_LINE = "|".join(
    (
        r"^(?:\s{4,}|\t)",  # indented
        r"^\s*(?:def|class|async def|with|except|elif)\b.*:$",
        r"^\s*(?:import|from|return|raise|yield)\s\S+(?:\s\S+){0,4}$",
        r"^\s*(?:else|try|finally):",
        r"^\s*(?:const|let|var|function|public|private|static|void|fn|func|package|#include|use)\b.*[;{})]$",
        r"^\s*(?:for|while|if)\b.*:$",
        r"""^\s*[\w.\[\]"']+\s*(?:=|\+=|-=|:=)\s*\S.*$""",  # assignments
        r"^\s*[}\])>#/]",  # closing brackets, comments, prompts
        r"^\s*@\S+\s*$",  # decorators, files; a sentence may begin with the file it is about
        r"[;{]$",
    )
)
_TRACE = "(?m)" + "|".join(
    (
        r"Traceback \(most recent call last\)",
        r'^\s*File ".+", line \d+',
        r"^\s+at [\w.$<>/]+.*\(.*:\d+(?::\d+)?\)",  # JavaScript, Java
        r"^\s*(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception)\b:?",  # ValueError: ..., System.NullReferenceException
        r"^E\s{3,}\S",  # pytest
        r"^(?:FAILED|ERROR)\s+\S+::",
        r"^panic: |^thread '.*' panicked",
        r"\bSegmentation fault\b",
        r"\bexit(?:ed with)? (?:code|status) [1-9]",
        r"^\S+:\d+(?::\d+)?: (?:fatal )?error\b",
    )
)
_CODE_WORDS = 30  # a line with so many blanks is a sentence, whatever it looks like
_WORD = re.compile(r"[a-z_][a-z0-9_]*(?:'[a-z]+)?|\d+(?:\.\d+)?")
_QUOTES = {"’": "'", "‘": "'", "“": '"', "”": '"'}
_TO_PLAIN = str.maketrans(_QUOTES)
_FUNCTION_WORDS = """
a an the this that these those it its it is are was were be been to of in on for with and or but so as at by
from i i'm you your me my we our us please can could would should will just now then there here do does
did have has had
"""
_STOP = frozenset(_FUNCTION_WORDS.split())


def column(texts: Sequence[str]) -> pl.Series:
    """Texts as a column. What is no Unicode (half a surrogate pair, as JSON may bring) becomes "?"."""
    try:
        return pl.Series(texts, dtype=pl.String)
    except UnicodeEncodeError:
        return pl.Series([text.encode("utf-8", "replace").decode() for text in texts], dtype=pl.String)


def prose(texts: Sequence[str]) -> list[str]:
    """The sentences of each message: fenced and unfenced code, traces and prompts left out."""
    plain = column(texts).str.slice(0, LIMIT).str.replace_many(list(_QUOTES), list(_QUOTES.values()))
    lines = (
        plain.str.replace_all(_FENCE, "\n")
        .str.replace_all(_LINE_ENDS, "\n")
        .str.split("\n")
        .to_frame("line")
        .with_row_index("text")
        .explode("line")
    )
    line = pl.col("line")
    code = (line.str.contains(_CODE_LINE) | line.str.contains(_TRACE)) & (
        line.str.count_matches(" ", literal=True) < _CODE_WORDS
    )
    kept = (
        lines.filter((line.str.strip_chars() != "") & ~code)
        .group_by("text", maintain_order=True)
        .agg(line.str.strip_chars().str.join("\n"))
    )
    found = [""] * len(texts)
    for n, said in zip(kept["text"].to_list(), kept["line"].to_list(), strict=True):
        found[n] = said
    return found


def has_trace(texts: Sequence[str]) -> list[bool]:
    """Whether a stack trace, a failed test or a compiler's error is pasted, for each message."""
    return column(texts).str.slice(0, LIMIT).str.contains(_TRACE).to_list()


def words(text: str) -> list[str]:
    """Lower-case words and numbers, identifiers whole."""
    text = text[:LIMIT]
    return _WORD.findall((text if text.isascii() else text.translate(_TO_PLAIN)).lower())


def similarity(one: Sequence[str], other: Sequence[str]) -> float:
    """Cosine of the counts of two texts' words in [0, 1], function words left out; 0 when one has none."""
    left, right = _counts(one), _counts(other)
    dot = sum([n * right[word] for word, n in left.items() if word in right])
    norms = sum([n * n for n in left.values()]) * sum([n * n for n in right.values()])
    return float(dot / norms**0.5) if norms else 0.0


def _counts(text: Sequence[str]) -> dict[str, int]:
    """How often each word is there (a Counter takes longer)."""
    found: dict[str, int] = {}
    for word in text:
        if word not in _STOP:
            found[word] = found.get(word, 0) + 1
    return found
