"""What a model thinks before it answers: what stands between `<think>` and `</think>` as it begins.
Seed-OSS writes `<seed:think>`, Mistral's models `[THINK]`; tags of other families are text.

Some templates end a prompt with the opening tag, and the answer has the closing one alone. A call that a
model thinks of is none, so an answer is taken apart here before its calls are looked for (`call_parser.py`).
Blanks around thoughts, and line ends before what is said behind them, belong to neither: templates write
these anew.

Tags behind an answer's first words are text. Pure; whole and in pieces an answer reads the same.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

OPEN = "<think>"
CLOSE = "</think>"
# those behind the first where they begin an answer
PAIRS = {OPEN: CLOSE, "<seed:think>": "</seed:think>", "[THINK]": "[/THINK]"}
_QUOTES = {"`", '"', "'"}


class Piece(NamedTuple):
    """What was thought and what was said, in this order."""

    thought: str
    said: str


class Thoughts:
    """An answer that comes in pieces. Holds back what may turn out to be a tag, or blanks around one.

    Attributes:
        begun: whether the prompt ended with the opening tag; to be set before the first piece.
    """

    def __init__(self, *, begun: bool = False) -> None:
        self.begun = begun
        self._state: Literal["begins", "opens", "thinks", "closes", "says"] = "begins"
        self._held = ""
        self._close = CLOSE

    def feed(self, text: str) -> Piece:
        """More text; returns what is certain now."""
        if self._state == "says":
            return Piece("", text)
        self._held += text
        thought = ""
        if self._state == "begins":
            self._begin()
        if self._state == "opens" and (rest := self._held.lstrip()):
            self._state, self._held = "thinks", rest
        if self._state == "thinks":
            thought = self._think()
        if self._state == "closes" and (rest := self._held.lstrip("\r\n")):
            self._state, self._held = "says", rest
        return Piece(thought, self._take() if self._state == "says" else "")

    def finish(self) -> Piece:
        """The text is complete."""
        state, rest = self._state, self._take()
        if state == "thinks":
            return Piece(rest.rstrip(), "")
        if state == "opens" or (state == "begins" and self.begun):
            return Piece(rest.strip(), "")
        return Piece("", "" if state == "closes" else rest)

    def _begin(self) -> None:
        """Whether a thought is opened, as soon as that is certain."""
        begin = self._held.lstrip()
        opened = next((tag for tag in PAIRS if begin.startswith(tag)), "")
        if opened:
            self._state, self._held, self._close = "opens", begin[len(opened) :], PAIRS[opened]
        elif not any(tag.startswith(begin) for tag in PAIRS):
            self._state = "opens" if self.begun else "says"

    def _think(self) -> str:
        before, closed, behind = self._held.partition(self._close)
        if closed:
            self._state, self._held = "closes", behind
            return before.rstrip()
        certain = before[: len(before) - begun_tag(before, self._close)].rstrip()
        self._held = before[len(certain) :]
        return certain

    def _take(self) -> str:
        held, self._held = self._held, ""
        return held


def apart(text: str, *, begun: bool | None = False) -> Piece:
    """A whole answer. `begun`: whether its prompt ended with the opening tag; None where nobody tells: it did
    where the text has the closing tag, not in quotes, and no opening one before it."""
    if begun is None:
        end = text.find(CLOSE)
        begun = end >= 0 and text.find(OPEN, 0, end) < 0 and text[end - 1 : end] not in _QUOTES
    thoughts = Thoughts(begun=begun)
    first, last = thoughts.feed(text), thoughts.finish()
    return Piece(first.thought + last.thought, first.said + last.said)


def begun_tag(text: str, tag: str) -> int:
    """Length of the end of `text` that may be the beginning of `tag`, and is not all of it."""
    for length in range(min(len(tag) - 1, len(text)), 0, -1):
        if tag.startswith(text[-length:]):
            return length
    return 0
