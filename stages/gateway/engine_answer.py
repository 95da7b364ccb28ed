"""Whether what an engine answered with 200 has the form of an answer. Pure; looks at types, not at values.

What has not is no answer: nothing of it is recorded or shown, and the engine is to blame. Values that cannot
be (ids below 0, logprobs above it) are recorded as defects (`capture.py`).
"""

from __future__ import annotations

from itertools import repeat
from operator import contains
from typing import Any, NamedTuple

import msgspec
import orjson


class _Entry(msgspec.Struct):
    logprob: Any


class Logprobs(msgspec.Struct):
    """Of the sampled tokens, in the shape of chat or of completions."""

    content: list[_Entry] | None = None
    token_logprobs: list[Any] | None = None


class _Message(msgspec.Struct):
    content: str | None = None


class Choice(msgspec.Struct):
    """The only one of an answer."""

    finish_reason: str
    index: Any = 0
    message: _Message | None = None
    text: str | None = None
    stop_reason: Any = None
    token_ids: list[Any] | None = None
    prompt_token_ids: list[Any] | None = None
    routed_experts: str | None = None
    logprobs: Logprobs | None = None


class _Body(msgspec.Struct):
    choices: list[Choice]
    usage: dict[str, Any] | None = None
    prompt_token_ids: list[Any] | None = None


_BODY = msgspec.json.Decoder(_Body)  # what is not named above is passed over: half the time of all of it


class Whole(NamedTuple):
    """A whole answer of chat or completions.

    Attributes:
        choice: the only one.
        prompt: its ids, which chat and completions have in different places.
        content: the body, as it came.
    """

    choice: Choice
    prompt: list[Any] | None
    usage: dict[str, Any] | None
    content: bytes

    def logprobs(self) -> Any:
        """Of its choice, as the engine told them."""
        return orjson.loads(self.content)["choices"][0].get("logprobs")


def read_whole(content: bytes) -> Whole | None:
    """The answer that a body is; None for what is none."""
    try:
        body = _BODY.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if len(body.choices) != 1 or body.choices[0].index or not body.choices[0].finish_reason:
        return None
    choice = body.choices[0]
    return Whole(choice, body.prompt_token_ids or choice.prompt_token_ids, body.usage, content)


def is_event(value: Any) -> bool:
    """Whether `value` is one piece of a streamed answer, or an error in the place of one."""
    return isinstance(value, dict) and ("error" in value or _is_piece(value))


def _is_piece(value: dict[str, Any]) -> bool:
    choices = value.get("choices")
    return (
        isinstance(value.get("usage"), dict | None)
        and isinstance(value.get("prompt_token_ids"), list | None)
        and isinstance(choices, list | None)
        and (not choices or (len(choices) == 1 and _is_choice(choices[0])))
    )


def _is_choice(choice: Any) -> bool:
    return (
        isinstance(choice, dict)
        and not choice.get("index")
        and isinstance(choice.get("finish_reason"), str | None)
        and isinstance(choice.get("text"), str | None)
        and isinstance(choice.get("token_ids"), list | None)
        and isinstance(choice.get("prompt_token_ids"), list | None)
        and isinstance(choice.get("routed_experts"), str | None)
        and _is_message(choice.get("message"))
        and _is_message(choice.get("delta"))
        and _are_logprobs(choice.get("logprobs"))
    )


def _is_message(message: Any) -> bool:
    if message is None:
        return True
    return isinstance(message, dict) and isinstance(message.get("content"), str | None)


def _are_logprobs(logprobs: Any) -> bool:
    if logprobs is None:
        return True
    if not isinstance(logprobs, dict) or not isinstance(logprobs.get("token_logprobs"), list | None):
        return False
    content = logprobs.get("content")
    if content is None:
        return True
    if not isinstance(content, list) or not {*map(type, content)} <= {dict}:
        return False
    return all(map(contains, content, repeat("logprob")))
