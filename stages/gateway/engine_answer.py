"""Whether what an engine answered with 200 has the form of an answer. Pure; looks at types, not at values.

What has not is no answer: nothing of it is recorded or shown, and the engine is to blame. Values that cannot
be (ids below 0, logprobs above it) are recorded as defects (`capture.py`).
"""

from __future__ import annotations

from itertools import repeat
from operator import contains
from typing import Any


def is_whole(value: Any) -> bool:
    """Whether `value` is one whole answer of chat or completions, with its only choice and why it ended."""
    if not isinstance(value, dict) or not isinstance(value.get("choices"), list) or not value["choices"]:
        return False
    choice = value["choices"][0]
    return _is_piece(value) and isinstance(choice.get("finish_reason"), str) and bool(choice["finish_reason"])


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
