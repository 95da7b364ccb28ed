"""Which session a request goes on with, told by what was said before it.

For logs whose requests repeat their history and name no session, or one of a single request's. A request goes
on with a talk when what it has up to the last answer is, word for word, what an earlier request asked and was
answered. Not for: sessions that a log names.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b

from cursorbench.sessions.chat import Message

_KEPT = 1 << 16  # talks; the oldest are forgotten


class Talks:
    """The sessions of talks, by a digest of what was said."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, str] = OrderedDict()

    def before(self, asked: list[Message]) -> str:
        """The session that this request goes on with; "" where none is known."""
        last = max((place for place, one in enumerate(asked) if one.role == "assistant"), default=-1)
        if last < 0:  # of answers that only called some logs have no more than what the tools gave
            last = next((place for place, one in enumerate(asked) if one.results), 0) - 1
        return self._known.get(_digest(asked[: last + 1]), "") if last >= 0 else ""

    def begun(self, asked: list[Message], session: str = "") -> str:
        """The session that began last as this one does, up to its first message of a person's.

        One without answers is the beginning of another, `session`.
        """
        first = next((place for place, one in enumerate(asked) if one.role == "user"), len(asked))
        key = f"begun:{_digest(asked[: first + 1])}"
        if all(one.role != "assistant" for one in asked):
            keep(self._known, key, session, _KEPT)
        return self._known.get(key, session)

    def answered(self, asked: list[Message], answer: Message | None, session: str) -> None:
        """Notes what was asked and answered."""
        if answer is not None:
            keep(self._known, _digest([*asked, answer]), session, _KEPT)


def keep(known: OrderedDict[str, str], key: str, session: str, most: int) -> None:
    """Notes a session; the oldest of too many are forgotten."""
    known[key] = session
    known.move_to_end(key)
    if len(known) > most:
        known.popitem(last=False)


def _digest(messages: list[Message]) -> str:
    """Of what was said and called. An answer may come back in pieces, and its calls under other ids."""
    pieces, role = list[str](), ""
    for one in messages:
        if not (one.text.strip() or one.calls or one.results):
            continue
        pieces += [f"\3{one.role}"] if one.role != role else []
        role = one.role
        pieces += filter(None, [one.text.strip()])
        pieces += (f"\2{call.name}\0{call.arguments.written()}" for call in one.calls)
        pieces += (f"\2{result.text}" for result in one.results)
    text = "\1".join(pieces)
    return blake2b(text.encode(errors="replace"), digest_size=16).hexdigest()
