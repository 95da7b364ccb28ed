"""Episodes of requests that name none, and each generation's place in its episode's chain.

`SESSION/N` is the user's Nth request and all that answers it. Who asks for another answer to the same history
(regenerates, edits the last request, tries again after a time-out) or sends a window of it that slides begins
an episode of its own: what became of one answer says nothing of the other. Where nothing was generated there
was no answer, and the episode goes on. So it does where a client has the conversation summed up, and behind
the summary where nobody asked for anything new. All of it is in the memory of this process: what goes on with
an answer of before a restart, or is asked for in its place, is in `SESSION/N`, where nearly all of them are.
So the other answer to a history goes on in the episode of the first: a request does not show which it was.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from cursorbench.sessions.spoken import words_of
from stages.gateway import summed_up
from stages.gateway.asking import Asked
from stages.gateway.asking import asked as asked_of
from stages.gateway.openings import gist
from stages.records import another_answer

_EPISODES = 100_000  # that are remembered


class _Current(NamedTuple):
    """A session's latest episode; what stands for its request, as long as there is no answer."""

    episode: str
    unanswered: bytes

    def waits_for(self, asked: Asked) -> bool:
        """Whether this is its request, once more."""
        return bool(self.unanswered) and self.unanswered == _words(asked)


class Episodes:
    """Derives episodes, and counts what is in them."""

    def __init__(self) -> None:
        self._latest: OrderedDict[str, tuple[str, bool]] = OrderedDict()  # episode, whether it has an answer
        self._by_answer: OrderedDict[tuple[str, bytes], str] = OrderedDict()
        self._lengths: OrderedDict[str, int] = OrderedDict()
        self._current: OrderedDict[tuple[str, bool], _Current] = OrderedDict()  # of a session

    def derived(
        self,
        call_id: str,
        session: str,
        asked: Asked,
        messages: Sequence[Mapping[str, Any]],
        reply: Mapping[str, Any] | None,
        *,
        no_train: bool,
    ) -> str:
        """The episode of generation `call_id`, which gave `reply` to what was `asked`; None: not a token."""
        current = self._current.get((session, no_train))
        if current and summed_up.goes_on(messages):
            return current.episode
        first = _first(session, asked.requests, no_train=no_train)
        found, answered = self._latest.get(first, (first, False))
        if asked.answers:
            found = self._by_answer.get((first, _mark(asked.answers[0])), found)
        elif current and current.waits_for(asked) and summed_up.continued(messages):
            found = current.episode
        elif answered or (first in self._latest and summed_up.continued(messages)):  # counted anew behind one
            found = another_answer(first, call_id)
        if reply is not None and not asked.answers:
            _remember(self._by_answer, (first, _mark(reply)), found)
        answered = reply is not None or bool(asked.answers)
        _remember(self._latest, first, (found, answered))
        _remember(self._current, (session, no_train), _Current(found, b"" if answered else _words(asked)))
        return found

    def gone_back_to(
        self, session: str, asked: Asked, messages: Sequence[Mapping[str, Any]], *, no_train: bool
    ) -> str:
        """The episode of the answer that a new request follows, where there are several to choose from.

        "" where there is one, as nearly always, or it is not known which.
        """
        first = _first(session, asked.requests - 1, no_train=no_train)
        latest, _ = self._latest.get(first, (first, False))
        if asked.answers or latest == first:
            return ""
        users = (n for n in reversed(range(len(messages))) if messages[n].get("role") == "user")
        earlier = (asked_of(messages[:n]) for n in users)  # without the request, and notices behind it
        answers = next((one.answers for one in earlier if one.requests < asked.requests), [])
        return self._by_answer.get((first, _mark(answers[0])), "") if answers else ""

    def ordinal(self, episode: str, asked: Asked) -> int:
        """The place of the next generation in the chain of an episode, derived or named."""
        ordinal = max(len(asked.answers), self._lengths.get(episode, 0))
        _remember(self._lengths, episode, ordinal + 1)
        return ordinal


def _words(asked: Asked) -> bytes:
    """Stands for what a person asked."""
    return hashlib.blake2b(words_of(asked.text).encode(errors="replace"), digest_size=16).digest()


def _first(session: str, requests: int, *, no_train: bool) -> str:
    """The episode of the first answer to a history."""
    # collect leaves out an episode with one no-train request in it: they have their own
    return f"{session}/{requests}" + "-no-train" * no_train


def _mark(answer: Mapping[str, Any]) -> bytes:
    """Stands for an answer: the ids of its calls, which are the gateway's, or its text; kept as a hash."""
    calls = answer.get("tool_calls") or ()
    ids = [call.get("id") for call in calls if isinstance(call, dict)]
    return hashlib.blake2b(orjson.dumps(ids or gist(answer)), digest_size=16).digest()


def _remember(known: OrderedDict[Any, Any], key: object, value: object) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > _EPISODES:
        known.popitem(last=False)
