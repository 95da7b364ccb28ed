"""What of a conversation its user asked for, and what its client put under the role `user`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from cursorbench.sessions.automatic import NOTICES, automatic_of, launches_skill
from cursorbench.sessions.spoken import interrupted, parts
from stages.gateway.attribution import text_of


class Asked(NamedTuple):
    """What a conversation's user asked for.

    Attributes:
        requests: how often they have spoken: the number of the episode within its session.
        text: their last request, behind the mark of a stop before it; "" when there is none.
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
        text = text_of(messages[n].get("content"))
        why = automatic_of(text)  # once: it costs most of what is done here
        summary = bool(spoken) and why == "continuation"
        if not (summary or why in NOTICES or _is_of_a_skill(messages, n, text)):
            spoken.append(n)
    spoken = spoken or users
    last = spoken[-1] if spoken else -1
    text = _with_stops(messages, last) if spoken else ""
    answers = [message for message in messages[last + 1 :] if message.get("role") == "assistant"]
    return Asked(len(spoken), text, answers)


def _with_stops(messages: Sequence[Mapping[str, Any]], n: int) -> str:
    """The text of the message `n`, and of those right before it that say that somebody stopped the agent."""
    texts = [text_of(messages[n].get("content"))]
    for before in reversed(messages[:n]):
        text = text_of(before.get("content"))
        if before.get("role") != "user" or not interrupted(text):
            break
        texts.append(text.strip())
    return "\n".join(reversed(texts))


def _is_of_a_skill(messages: Sequence[Mapping[str, Any]], n: int, text: str) -> bool:
    """Whether the message `n`, which says `text`, is that of a skill which the model called.

    Called by its tool: a model can have a shell say the same, and nobody would hear what its user says next.
    """
    before = [*takewhile(lambda one: one.get("role") == "tool", (messages[k] for k in range(n - 1, -1, -1)))]
    launched = [one.get("tool_call_id") for one in before if launches_skill(text_of(one.get("content")))]
    if not launched or len(before) == n:
        return False
    calls = messages[n - 1 - len(before)].get("tool_calls") or ()
    called = any(_calls_skill(call) and call.get("id") in launched for call in calls)
    return called and not any(part.stopped for part in parts(text))


def _calls_skill(call: Any) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return isinstance(function, dict) and str(function.get("name")).lower() == "skill"
