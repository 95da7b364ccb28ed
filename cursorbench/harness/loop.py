"""One episode of the agent: a request, model calls and tool calls until it stops. No network of its own.

The caller carries `next_request()` to a model, by HTTP or in process, and hands the answer to
`receive()`; so simulated users, the gate's batch evaluation and outside clients drive the same code.
Not for retries or transport: a call that failed for want of a model is `abort()`, and no score.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from cursorbench.harness import hermes
from cursorbench.harness.tools import DEFAULT_TOOLS, Edit, Toolbox, ToolError, ToolResult

Message = dict[str, Any]


MAX_TURNS = 4  # model calls in an episode, unless told otherwise


class StopReason(StrEnum):
    """Why an episode ended."""

    ANSWERED = "answered"  # a message without calls
    BROKEN_CALL = "broken_call"  # every call of the message was unparsable: the user sees junk
    TRUNCATED = "truncated"  # the model ran out of tokens before it answered or called
    MAX_TURNS = "max_turns"
    ABORTED = "aborted"  # infrastructure: no answer came


@dataclass(frozen=True)
class ChatRequest:
    """What is asked of the model: the fields of a chat completion that the harness decides.

    Attributes:
        temperature: of sampling; None leaves it to who serves.
    """

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...]
    max_tokens: int
    temperature: float | None = None

    def body(self, model: str) -> dict[str, Any]:
        """The JSON body of `POST /v1/chat/completions`."""
        body = {
            "model": model,
            "messages": list(self.messages),
            "tools": list(self.tools),
            "max_tokens": self.max_tokens,
        }
        return body if self.temperature is None else {**body, "temperature": self.temperature}


@dataclass(frozen=True)
class CallRecord:
    """One tool call: what was asked, what came of it."""

    turn: int
    id: str
    name: str
    arguments: str
    error: hermes.CallError  # the call itself is invalid
    result: str  # what the model read; "" for an unparsable call, which is not answered
    tool_error: ToolError
    seconds: float


def assistant_message(text: str, turn: int = 0) -> Message:
    """The OpenAI message for what a model wrote, as the gateway makes it; for engines called in process."""
    parsed = hermes.parse(text)
    message: Message = {"role": "assistant", "content": parsed.content or None}
    if parsed.valid:
        message["tool_calls"] = [
            {
                "id": f"call_{turn}_{index}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for index, call in enumerate(parsed.valid)
        ]
    return message


class AgentLoop:
    """One episode. Changes files under `workdir`; keeps no other state outside of itself.

    Args:
        workdir: the folder the tools work on; must exist.
        system: the system prompt.
        request: the user's message.
        tools: OpenAI tool definitions, a subset of the harness's own.
        max_turns: model calls at most.
        max_tokens: output tokens of one model call at most.
        temperature: of sampling; None leaves it to who serves.
        history: earlier messages of the session, after the system prompt.
    """

    def __init__(
        self,
        workdir: Path,
        system: str,
        request: str,
        tools: Sequence[Mapping[str, Any]] = DEFAULT_TOOLS,
        max_turns: int = MAX_TURNS,
        *,
        max_tokens: int = 192,
        temperature: float | None = None,
        history: Sequence[Message] = (),
    ) -> None:
        self._toolbox = Toolbox(workdir)
        self._tools = tuple(tools)
        self._checker = _checker(self._tools)
        self._max_turns = max_turns
        self._max_tokens = max_tokens
        self._temperature = temperature
        self.messages: list[Message] = [
            {"role": "system", "content": system},
            *history,
            {"role": "user", "content": request},
        ]
        self.turns = 0
        self.calls: list[CallRecord] = []
        self.edits: list[Edit] = []
        self.final_text = ""
        self.stop: StopReason | None = None

    @property
    def invalid_calls(self) -> int:
        """Calls that do not parse, name no tool, or fail its schema."""
        return sum(1 for call in self.calls if call.error)

    def next_request(self) -> ChatRequest | None:
        """The next model call, or None when the episode is over."""
        if self.stop is not None:
            return None
        return ChatRequest(tuple(self.messages), self._tools, self._max_tokens, self._temperature)

    def abort(self) -> None:
        """End the episode because no answer came; what it did so far stands."""
        self.stop = StopReason.ABORTED

    def receive(self, message: Mapping[str, Any], finish_reason: str = "stop") -> None:
        """Take the model's answer (an OpenAI assistant message), run its calls, decide whether to go on."""
        if self.stop is not None:
            raise RuntimeError("the episode is over")
        content = message.get("content") or ""
        calls = message.get("tool_calls") or []
        unparsable = [call for call in hermes.parse(content).calls if call.error]
        answer: Message = {"role": "assistant", "content": content}
        if calls:
            answer["tool_calls"] = calls
        self.messages.append(answer)
        self.final_text = content
        for call in unparsable:
            self.calls.append(
                CallRecord(self.turns, "", "", call.arguments, "unparsable", "", "arguments", 0.0)
            )
        for call in calls:
            self._execute(call)
        self.turns += 1
        if not calls:
            if unparsable:
                self.stop = StopReason.BROKEN_CALL
            else:
                self.stop = StopReason.TRUNCATED if finish_reason == "length" else StopReason.ANSWERED
        elif self.turns >= self._max_turns:
            self.stop = StopReason.MAX_TURNS

    def _execute(self, call: Mapping[str, Any]) -> None:
        function = call["function"]
        name, arguments = str(function["name"]), str(function["arguments"])
        error = self._checker.check(hermes.RawCall(name, arguments, "", 0, 0))
        started = time.perf_counter()
        result = _REFUSED.get(error) or self._toolbox.call(name, arguments, self.turns)
        seconds = time.perf_counter() - started
        if result.edit is not None:
            self.edits.append(result.edit)
        self.calls.append(
            CallRecord(
                self.turns, str(call["id"]), name, arguments, error, result.text, result.error, seconds
            )
        )
        self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": result.text})


# an invalid call is never executed, whatever of it could be
_REFUSED: Mapping[hermes.CallError, ToolResult] = {
    "unknown_tool": ToolResult("error: no such tool", "unknown_tool"),
    "schema": ToolResult("error: arguments do not fit the tool", "arguments"),
}


@cache
def _default_checker() -> hermes.ToolSet:
    return hermes.ToolSet(DEFAULT_TOOLS)


def _checker(tools: tuple[Mapping[str, Any], ...]) -> hermes.ToolSet:
    """The default tools' schemas are compiled once per process, not once per episode."""
    return _default_checker() if tools == DEFAULT_TOOLS else hermes.ToolSet(tools)
