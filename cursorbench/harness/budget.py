"""What an episode may cost, what it has cost, and the reasons why one ends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

MAX_TURNS = 4  # model calls in an episode of the small tools, unless told otherwise
CHARS_PER_TOKEN = 3.0  # of text whose tokens nobody counted; code has 3 to 4


class StopReason(StrEnum):
    """Why an episode ended."""

    ANSWERED = "answered"  # a message without calls
    BROKEN_CALL = "broken_call"  # every call of the message was unparsable: the user sees junk
    TRUNCATED = "truncated"  # the model ran out of tokens before it answered or called
    MAX_TURNS = "max_turns"
    MAX_OUTPUT_TOKENS = "max_output_tokens"
    MAX_TOTAL_TOKENS = "max_total_tokens"
    MAX_SECONDS = "max_seconds"
    MAX_TOOL_CALLS = "max_tool_calls"
    CONTEXT_FULL = "context_full"  # the conversation no longer fits the model
    NO_SUMMARY = "no_summary"  # asked to sum up, it wrote nothing
    AGENT_FAILED = "agent_failed"  # an outside agent's command ended with another status than 0
    CANCELLED = "cancelled"  # the user stopped it
    ABORTED = "aborted"  # infrastructure: no answer came
    SANDBOX_DIED = "sandbox_died"  # infrastructure: the tools have nothing to work on


INFRASTRUCTURE = frozenset({StopReason.ABORTED, StopReason.SANDBOX_DIED})  # no grade can be drawn from these


@dataclass(frozen=True)
class Budget:
    """What an episode may use at most; each limit ends it with its own reason.

    Tool calls of the answer that reached a limit are still run, so that its edits count; only calls
    beyond `tool_calls` are not.

    Attributes:
        turns: model calls, those that sum up included.
        output_tokens: sampled tokens.
        total_tokens: prompt and sampled tokens, added up over the model calls.
        wall_s: seconds since the first request.
        tool_calls: calls, invalid ones included.
    """

    turns: int = MAX_TURNS
    output_tokens: float = math.inf
    total_tokens: float = math.inf
    wall_s: float = math.inf
    tool_calls: float = math.inf


@dataclass(frozen=True)
class Usage:
    """Tokens of one model call. `told` is False when they were estimated from the texts' lengths."""

    prompt: int
    output: int
    told: bool = True


@dataclass
class Spent:
    """What an episode has cost so far."""

    turns: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    tool_calls: int = 0

    def add(self, usage: Usage) -> None:
        """One model call."""
        self.turns += 1
        self.prompt_tokens += usage.prompt
        self.output_tokens += usage.output

    def over(self, budget: Budget, seconds: float) -> StopReason | None:
        """The first limit that is reached."""
        reached = (
            (StopReason.MAX_TURNS, self.turns >= budget.turns),
            (StopReason.MAX_OUTPUT_TOKENS, self.output_tokens >= budget.output_tokens),
            (StopReason.MAX_TOTAL_TOKENS, self.prompt_tokens + self.output_tokens >= budget.total_tokens),
            (StopReason.MAX_SECONDS, seconds >= budget.wall_s),
            (StopReason.MAX_TOOL_CALLS, self.tool_calls >= budget.tool_calls),
        )
        return next((reason for reason, true in reached if true), None)


def estimate(messages: Sequence[Mapping[str, Any]]) -> int:
    """Tokens of messages, by the length of their texts and calls."""
    return math.ceil(sum(map(_characters, messages)) / CHARS_PER_TOKEN)


def _characters(message: Mapping[str, Any]) -> int:
    return 12 + sum(_length(message.get(name)) for name in ("content", "reasoning_content", "tool_calls"))


def _length(value: object) -> int:
    if isinstance(value, str):
        return len(value)
    try:
        return len(str(value)) if value else 0
    except RecursionError:  # nested as deep as JSON may be, to be measured by nobody
        return 1 << 20
