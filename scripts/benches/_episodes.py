"""Generated episodes for the bench of `distill`: each with words, an edit and a follow-up of its own.

Lengths are of the size that people's are (docs/followup.md: a median message of a hundred characters); no
text is there twice but by chance, so that nothing which remembers texts gains by it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_NAMES = """
total price shop cart discount render parse token query index user session cache order invoice line item tax
rate report page button field form table row column filter sort search result error message event
""".split()  # noqa: SIM905
_VERBS = """
make let change update fix rewrite check simplify extend move rename document test split
""".split()  # noqa: SIM905
_REQUESTS = (
    "{v} {a}_{b}() in {c}/{d}.py so that it respects the {e}, and keep the {f} as it is for now",
    "can you {v} the {a} {b}? it should return the {c} of each {d}, not only of the first {e} it finds",
    "{v} {a}{n} so that {b} is computed before {c}; the {d} test in tests/test_{e}.py shows what I mean",
    "we need a {a} for the {b} {c}. put it next to {d}_{e} and add a test, please",
)
_FOLLOW_UPS = (
    "still wrong, {a}_{b} ignores the {c} when {d} is empty",
    "thanks, now {v} {a}_{b} in the same way and run the {c} tests",
    "no, I meant the {a} of the {b}, not of the {c}. put {d} back as it was",
    "looks good. next: {v} the {a} {b} so that {c} works without a {d}",
    "it fails:\nTraceback (most recent call last):\n  File \"{a}.py\", line {n}, in {b}\nKeyError: '{c}'",
    "why did you touch {a}? only the {b} {c} was to be changed",
    "ok, commit that and go on with the {a} {b}",
    "does {a}_{b} also handle a {c} that has no {d}? I don't see where the {e} is set",
)
_ANSWERS = (
    "I changed `{a}_{b}` in `{c}/{d}.py`: it now reads the {e} once and applies the {f} to every {a}.",
    "The test for {b} covers an empty {c} as well, and `{d}_{e}` keeps its behaviour.",
    "Nothing else depends on the {f}; the {a} is computed where the {b} is known.",
    "Run `pytest tests/test_{c}.py` to see it pass. Tell me if the {d} should also be sorted by {e}.",
)
_LINES = 24  # of a file


class Texts:
    """Draws requests, answers, edits and follow-ups."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._drawn: list[int] = []

    def request(self) -> str:
        """What a user asks for."""
        return self._filled(_REQUESTS)

    def follow_up(self) -> str:
        """What a user says to an answer."""
        return self._filled(_FOLLOW_UPS)

    def answer(self) -> str:
        """What the model says, four sentences."""
        return " ".join(self._fill(template) for template in _ANSWERS)

    def edit(self) -> dict[str, Any]:
        """A file before and after three of its lines were changed and two added."""
        before = [
            f"    {self._word(_NAMES)}_{n} = {self._word(_NAMES)}({self._word(_NAMES)})"
            for n in range(_LINES)
        ]
        at = 4 + self._next() % (_LINES - 8)
        new = [f"    {self._word(_NAMES)}_{n} = {self._word(_NAMES)}[{self._next() % 100}]" for n in range(5)]
        after = [*before[:at], *new, *before[at + 3 :]]
        return {
            "path": f"{self._word(_NAMES)}.py",
            "before": "\n".join(before) + "\n",
            "after": "\n".join(after) + "\n",
        }

    def later(self, edit: dict[str, Any]) -> str:
        """The file an hour later: as it was left, with one line changed again, or undone."""
        lines = edit["after"].split("\n")
        kind = self._next() % 4
        if kind == 0:
            return str(edit["before"])
        if kind == 1:
            lines[self._next() % len(lines)] = f"    {self._word(_NAMES)} = {self._next()}"
        return "\n".join(lines)

    def _filled(self, templates: tuple[str, ...]) -> str:
        return self._fill(templates[self._next() % len(templates)])

    def _fill(self, template: str) -> str:
        names = {letter: self._word(_NAMES) for letter in "abcdef"}
        return template.format(v=self._word(_VERBS), n=self._next() % 1000, **names)

    def _word(self, words: list[str]) -> str:
        return words[self._next() % len(words)]

    def _next(self) -> int:
        if not self._drawn:
            self._drawn = self._random.integers(0, 1 << 30, 1 << 16).tolist()
        return self._drawn.pop()
