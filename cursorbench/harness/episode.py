"""The record of an episode: every model call and tool call in order, and how it ended. Plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cursorbench.harness.budget import StopReason, Usage
from cursorbench.harness.call_parser import CallError
from cursorbench.harness.results import Edit, ErrorClass, ToolError, cut_middle, error_class

Message = dict[str, Any]

MAX_RESULTS_CHARS = 64_000  # of all calls of one message: more is cut, each result to an equal share


@dataclass(frozen=True)
class CallRecord:
    """One tool call: what was asked, what came of it.

    Attributes:
        error: the call itself is invalid.
        result: what the model read; "" for an unparsable call, which is not answered.
        seconds: that it took.
        started_s: seconds after the turn's first call that it began: calls side by side overlap.
    """

    turn: int
    id: str
    name: str
    arguments: str
    error: CallError
    result: str
    tool_error: ToolError
    seconds: float
    started_s: float = 0.0

    @property
    def error_class(self) -> ErrorClass | None:
        """Whose matter its error is; None when it did what it was asked."""
        return error_class(self.tool_error)


@dataclass(frozen=True)
class Turn:
    """One model call.

    Attributes:
        number: from 0.
        segment: how often the conversation had been summed up and begun anew.
        asked: messages that are new in its prompt (results of tools apart, which are in the calls).
        message: the answer, an OpenAI assistant message.
        generation_id: by which the gateway knows it; "" when it did not say.
        model_s: seconds until the answer was there; 0 when not measured.
        tools_s: wall seconds of its tool calls together.
        at_s: seconds after the episode's beginning that the answer was there.
        summary: whether it was asked to sum up.
    """

    number: int
    segment: int
    asked: tuple[Message, ...]
    message: Message
    finish_reason: str
    usage: Usage
    generation_id: str = ""
    model_s: float = 0.0
    tools_s: float = 0.0
    at_s: float = 0.0
    summary: bool = False


@dataclass(frozen=True)
class Episode:
    """One request of a user and the whole chain that answered it.

    Attributes:
        tools: the definitions the model was shown.
        stop: why it ended; None while it goes on.
        failure: what failed, for infrastructure.
        began: epoch seconds of the first request; 0 before it.
        seconds: wall seconds from there to the end.
    """

    system: str
    request: str
    tools: tuple[Mapping[str, Any], ...]
    turns: tuple[Turn, ...]
    calls: tuple[CallRecord, ...]
    edits: tuple[Edit, ...]
    final_text: str
    stop: StopReason | None
    failure: str
    began: float
    seconds: float

    @property
    def generations(self) -> tuple[str, ...]:
        """Ids of all generations of the chain: those who share its reward."""
        return tuple(turn.generation_id for turn in self.turns if turn.generation_id)

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens over all model calls."""
        return sum(turn.usage.prompt for turn in self.turns)

    @property
    def output_tokens(self) -> int:
        """Sampled tokens over all model calls."""
        return sum(turn.usage.output for turn in self.turns)

    @property
    def invalid_calls(self) -> int:
        """Calls that do not parse, name no tool, or fail its schema."""
        return sum(1 for call in self.calls if call.error)


def bounded(found: Sequence[tuple[CallRecord, Edit | None]]) -> list[tuple[CallRecord, Edit | None]]:
    """The results of one message; when they are too much together, each cut to an equal share."""
    if sum(len(record.result) for record, _ in found) <= MAX_RESULTS_CHARS:
        return list(found)
    share = MAX_RESULTS_CHARS // len(found)
    return [(replace(record, result=cut_middle(record.result, share)), edit) for record, edit in found]
