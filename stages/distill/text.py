"""Reading what people write to an agent: prose apart from code, traces, words, questions.

Generic English and programming, the same for every signal that looks at text. Nothing here raises on
any text. Not for: scoring (`signals/dissatisfied_followup.py`, `strata.py`).
"""

from __future__ import annotations

import re
from collections import Counter

LIMIT = 8_000  # characters looked at; a pasted log says all it has to say before that

_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_CODE_LINE = re.compile(
    r"""^(?:\s{4,}|\t)                                  # indented
      | ^\s*(?:def|class|async\ def|with|except|elif)\b.*:$
      | ^\s*(?:import|from|return|raise|yield)\s\S+(?:\s\S+){0,4}$
      | ^\s*(?:else|try|finally):
      | ^\s*(?:const|let|var|function|public|private|static|void|fn|func|package|\#include|use)\b.*[;{})]$
      | ^\s*(?:for|while|if)\b.*:$
      | ^\s*[\w.\[\]"']+\s*(?:=|\+=|-=|:=)\s*\S.*$        # assignments
      | ^\s*[@}\])>#/]                                   # decorators, closing brackets, comments, prompts
      | [;{]$
    """,
    re.VERBOSE,
)
_TRACE = re.compile(
    r"""Traceback\ \(most\ recent\ call\ last\)
      | ^\s*File\ ".+",\ line\ \d+
      | ^\s+at\ [\w.$<>/]+.*\(.*:\d+(?::\d+)?\)         # JavaScript, Java
      | ^\s*(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception)\b:?  # ValueError: ..., System.NullReferenceException
      | ^E\s{3,}\S                                      # pytest
      | ^(?:FAILED|ERROR)\s+\S+::
      | ^panic:\ | ^thread\ '.*'\ panicked
      | \bSegmentation\ fault\b
      | \bexit(?:ed\ with)?\ (?:code|status)\ [1-9]
      | ^\S+:\d+(?::\d+)?:\ (?:fatal\ )?error\b
    """,
    re.VERBOSE | re.MULTILINE,
)
_WORD = re.compile(r"[a-z_][a-z0-9_]*(?:'[a-z]+)?|\d+(?:\.\d+)?")
_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"'})
_FUNCTION_WORDS = """
a an the this that these those it its is are was were be been to of in on for with and or but so as at by
from i i'm you your me my we our us please can could would should will just now then there here do does
did have has had
"""
_STOP = frozenset(_FUNCTION_WORDS.split())


def prose(text: str) -> str:
    """The sentences of a message: fenced and unfenced code, traces and prompts left out."""
    lines = _FENCE.sub("\n", text[:LIMIT].translate(_QUOTES)).splitlines()
    return "\n".join(line.strip() for line in lines if line.strip() and not _is_code(line))


def _is_code(line: str) -> bool:
    return bool(_CODE_LINE.search(line) or _TRACE.search(line)) and line.count(" ") < 30


def has_trace(text: str) -> bool:
    """Whether a stack trace, a failed test or a compiler's error is pasted."""
    return _TRACE.search(text[:LIMIT]) is not None


def words(text: str) -> list[str]:
    """Lower-case words and numbers, identifiers whole."""
    return _WORD.findall(text[:LIMIT].translate(_QUOTES).lower())


def similarity(one: str, other: str) -> float:
    """Cosine of the word counts of two texts in [0, 1], function words left out; 0 when one has none."""
    left, right = (Counter(w for w in words(text) if w not in _STOP) for text in (one, other))
    dot = sum(n * right[word] for word, n in left.items())
    norms = sum(n * n for n in left.values()) * sum(n * n for n in right.values())
    return float(dot / norms**0.5) if norms else 0.0
