"""What of a conversation its user asked for, and what its client put under the role `user`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from cursorbench.sessions.automatic import automatic_of, is_notice, launches_skill
from cursorbench.sessions.spoken import parts
from stages.gateway.attribution import text_of


class Asked(NamedTuple):
    """What a conversation's user asked for.

    Attributes:
        requests: how often they have spoken: the number of the episode within its session.
        text: their last request, "" when there is none.
        answers: those given since then; their number is the next generation's place in its episode.
    """

    requests: int
    text: str
    answers: list[Mapping[str, Any]]


def asked(messages: Sequence[Mapping[str, Any]]) -> Asked:
    """Which messages are the user's requests: those of the role `user` but for what clients put there.

    A notice ("a background task has finished") asks for nothing, nor does a summary behind a request: the
    episode goes on. So does it where the model called a skill, whose text its client puts there. Where there
    are only notices, all count.
    """
    users = [n for n, message in enumerate(messages) if message.get("role") == "user"]
    spoken: list[int] = []
    for n in users:
        summary = bool(spoken) and automatic_of(text_of(messages[n].get("content"))) == "continuation"
        if not (summary or _is_clients(messages, n)):
            spoken.append(n)
    spoken = spoken or users
    last = spoken[-1] if spoken else -1
    text = text_of(messages[last].get("content")) if spoken else ""
    answers = [message for message in messages[last + 1 :] if message.get("role") == "assistant"]
    return Asked(len(spoken), text, answers)


def _is_clients(messages: Sequence[Mapping[str, Any]], n: int) -> bool:
    """Whether nobody asked for anything by the message `n`, one of the role `user`."""
    text = text_of(messages[n].get("content"))
    if is_notice(text):
        return True
    before = takewhile(lambda one: one.get("role") == "tool", (messages[k] for k in range(n - 1, -1, -1)))
    if not any(launches_skill(text_of(one.get("content"))) for one in before):
        return False
    return not any(part.stopped for part in parts(text))
