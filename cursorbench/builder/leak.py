"""Whether a prompt contains the solution: a pasted patch, lines of it, or a long run of its code.

Three measures against the lines that the kept change adds to source files, each enough by itself:

    patch   the prompt has lines of a diff (`diff --git`, `@@ -1,2 +1,3 @@`)
    lines   of the distinct added lines that can be recognised (8 characters up), the prompt has
            MOST_LINES, or two that are half of them, or all there are. A line counts that stands as a
            line of the prompt, or within one when it reads as code by itself
    run     RUN tokens or more in a row stand both in the prompt and in the added lines of one file, and read
            as code: a quarter of them is neither word nor number

Words that an issue and a docstring share are no leak: prose has hardly any punctuation. What the prompt says
of names, signatures and expected output is what a user says who knows what they want, and is no leak either.
Not for: what a prompt hints at in words; who wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cursorbench.history.changes import recognisable

MOST_LINES = 3
RUN = 20
CODE_SHARE = 0.25
_INLINE = 5  # tokens of a line that may stand within a line of prose
_PATCH = re.compile(
    r"^[^\S\n]*(?:>[^\S\n]*)?(?:diff --git |@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@|Index: \S+$"
    r"|\*\*\* (?:Begin Patch|Update File))",
    re.MULTILINE,
)
_TOKEN = re.compile(r"[^\W\d]\w*|\d[\w.]*|[^\w\s]")


@dataclass(frozen=True)
class Leak:
    """What of the solution a prompt has.

    Attributes:
        kind: the measure that says so; "" when none does.
        lines: distinct recognisable added lines that stand in the prompt, of `of`.
        run: tokens of the longest common run of code; 0 for one shorter than RUN.
    """

    kind: Literal["", "patch", "lines", "run"]
    lines: int
    of: int
    run: int


def leak(prompt: str, added: Mapping[str, Iterable[str]]) -> Leak:
    """Measure a prompt against the added lines of each source file."""
    texts = {path: "\n".join(lines) for path, lines in added.items()}
    telling = {line for text in texts.values() for line in recognisable(text)}
    found = len(_said(prompt, telling))
    run = max((longest_run(prompt, text) for text in texts.values()), default=0)
    kind: Literal["", "patch", "lines", "run"] = ""
    if _PATCH.search(prompt):
        kind = "patch"
    elif found and (
        found >= MOST_LINES or found == len(telling) or (found >= 2 and 2 * found >= len(telling))
    ):
        kind = "lines"
    elif run:
        kind = "run"
    return Leak(kind, found, len(telling), run)


def longest_run(prompt: str, code: str) -> int:
    """Tokens of the longest run that both have and that reads as code; 0 when it is shorter than `RUN`.

    Found by runs of `RUN` tokens: a longer one is such runs of the prompt, one token apart, that all stand
    in the code.
    """
    said, written = _TOKEN.findall(prompt), _TOKEN.findall(code)
    known = {tuple(written[n : n + RUN]) for n in range(len(written) - RUN + 1)}
    longest = row = 0
    for n in range(len(said) - RUN + 1):
        window = tuple(said[n : n + RUN])
        row = row + 1 if window in known and _reads_as_code(window) else 0
        longest = max(longest, row and RUN + row - 1)
    return longest


def _said(prompt: str, lines: Iterable[str]) -> list[str]:
    """Those of the lines that the prompt has."""
    whole = {bare for line in prompt.splitlines() for bare in (line.strip(), line.lstrip("+> ").strip("` "))}
    flat = " ".join(prompt.split())
    return [line for line in lines if line in whole or (_inline(line) and " ".join(line.split()) in flat)]


def _inline(line: str) -> bool:
    tokens = _TOKEN.findall(line)
    return len(tokens) >= _INLINE and _reads_as_code(tokens)


def _reads_as_code(tokens: Sequence[str]) -> bool:
    marks = sum(not (token[0].isalnum() or token[0] == "_") for token in tokens)
    return marks >= CODE_SHARE * len(tokens)
