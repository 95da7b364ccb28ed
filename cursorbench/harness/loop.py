"""One episode of the agent: a request, model calls and tool calls until it stops. No network of its own.

The caller carries `next_request()` to a model, by HTTP or in process, and hands the answer to
`receive()`; so simulated users, the gate's batch evaluation and outside clients drive the same code.
Not for retries or transport (`driver.py`): a call that failed for want of a model is `abort()`, and no
score.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from cursorbench.harness import call_parser, side_by_side
from cursorbench.harness.budget import Budget, Spent, StopReason, Usage, estimate
from cursorbench.harness.call_blocks import EVERY
from cursorbench.harness.chat import ChatRequest, said_in, whole
from cursorbench.harness.episode import CallRecord, Episode, Message, Turn, bounded
from cursorbench.harness.results import Edit, ToolResult
from cursorbench.harness.summary import SelfSummary
from cursorbench.harness.toolbox import Toolbox

DEFAULT_BUDGET = Budget()


class AgentLoop:
    """One episode. Changes files of the toolbox's workplace; keeps no other state outside of itself.

    Args:
        toolbox: the tools, bound to where they work.
        system: the system prompt.
        request: the user's message.
        budget: what the episode may cost.
        summary: when the conversation is summed up by the model itself; None for never.
        max_tokens: output tokens of one model call at most.
        temperature: of sampling; None leaves it to who serves.
        history: earlier messages of the session, after the system prompt.
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        system: str,
        request: str,
        budget: Budget = DEFAULT_BUDGET,
        *,
        summary: SelfSummary | None = None,
        max_tokens: int = 192,
        temperature: float | None = None,
        history: Sequence[Message] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._toolbox = toolbox
        self._tools = toolbox.definitions
        self._system, self._request = system, request
        self._budget, self._summary = budget, summary
        self._max_tokens, self._temperature = max_tokens, temperature
        self._clock = clock
        self._started: float | None = None
        self._began = 0.0
        self._ended: float | None = None
        self._cancelled = threading.Event()
        self._fresh = True  # no answer yet in this conversation
        self._context = 0  # tokens of the next prompt
        self._segment = 0
        self._failure = ""
        self.spent = Spent()
        self.messages: list[Message] = [
            {"role": "system", "content": system},
            *history,
            {"role": "user", "content": request},
        ]
        self.history: list[Turn] = []
        self.calls: list[CallRecord] = []
        self.edits: list[Edit] = []
        self.final_text = ""
        self.stop: StopReason | None = None

    @property
    def turns(self) -> int:
        """Model calls answered."""
        return self.spent.turns

    @property
    def invalid_calls(self) -> int:
        """Calls that do not parse, name no tool, or fail its schema."""
        return sum(1 for call in self.calls if call.error)

    @property
    def left_s(self) -> float:
        """Wall seconds left of the budget."""
        return self._budget.wall_s - self._elapsed()

    def next_request(self) -> ChatRequest | None:
        """The next model call, or None when the episode is over."""
        if self.stop is None and self._started is None:
            self._started, self._began = self._clock(), time.time()
        if self.stop is None:
            self._finish(self._limit())
        if self.stop is not None:
            return None
        tokens = self._max_tokens
        messages, choice = tuple(self.messages), ""
        if self._summary is not None and self._due():
            messages = (*messages, {"role": "user", "content": self._summary.ask})
            tokens, choice = self._summary.max_tokens, "none"
        tokens = int(min(tokens, self._budget.output_tokens - self.spent.output_tokens))
        return ChatRequest(messages, self._tools, max(1, tokens), self._temperature, choice)

    def abort(self, failure: str = "") -> None:
        """End the episode because no answer came; what it did so far stands."""
        self._failure = failure
        self._finish(StopReason.ABORTED)

    def overflow(self) -> None:
        """End the episode because the conversation does not fit the model: what it did led there."""
        self._finish(StopReason.CONTEXT_FULL)

    def cancel(self) -> None:
        """The user stops it, from any thread: calls that have not begun are not run."""
        self._cancelled.set()

    def receive(
        self,
        message: Mapping[str, Any],
        finish_reason: str = "stop",
        *,
        usage: Usage | None = None,
        generation_id: str = "",
        model_s: float = 0.0,
    ) -> None:
        """Take the model's answer (an OpenAI assistant message), run its calls, decide whether to go on.

        `usage` as told by who served, estimated without; `generation_id` and `model_s` for the record.
        """
        if self.stop is not None:
            raise RuntimeError("the episode is over")
        summing = self._due()
        answer = whole(message, self.turns)
        usage = usage or Usage(estimate(self.messages) + self._toolbox.tokens, estimate([answer]), told=False)
        turn = Turn(
            self.turns,
            self._segment,
            self._asked(summing),
            answer,
            finish_reason,
            usage,
            generation_id,
            model_s,
            at_s=self._elapsed(),
            summary=summing,
        )
        self._context = usage.prompt + usage.output
        began = self._clock()
        if summing:
            self._restart(answer)
        else:
            self._act(answer, finish_reason)
        self.history.append(replace(turn, tools_s=self._clock() - began))
        self.spent.add(usage)
        if self.stop is None:
            self._finish(self._limit())

    def episode(self) -> Episode:
        """The record so far."""
        return Episode(
            self._system,
            self._request,
            self._tools,
            tuple(self.history),
            tuple(self.calls),
            tuple(self.edits),
            self.final_text,
            self.stop,
            self._failure,
            self._began,
            self._elapsed(),
        )

    def _act(self, answer: Message, finish_reason: str) -> None:
        """Run the calls of an answer, or find that it is the last one."""
        self._fresh = False
        said, calls = said_in(answer), answer.get("tool_calls") or []
        # what parsed is no text any more; who serves tells nobody in which form its model calls
        unparsable = [call for call in call_parser.parse(said, blocks=EVERY).calls if call.error]
        self.messages.append(answer)
        self.final_text = said
        for call in unparsable:
            self.calls.append(
                CallRecord(self.turns, "", "", call.arguments, "unparsable", "", "arguments", 0.0)
            )
        self.spent.tool_calls += len(unparsable)
        self._run(calls)
        if calls:
            if any(call.tool_error == "sandbox" for call in self.calls[-len(calls) :]):
                self._failure = "the sandbox died under a tool call"
                self._finish(StopReason.SANDBOX_DIED)
        elif unparsable:
            self._finish(StopReason.BROKEN_CALL)
        else:
            self._finish(StopReason.TRUNCATED if finish_reason == "length" else StopReason.ANSWERED)

    def _run(self, calls: Sequence[Mapping[str, Any]]) -> None:
        """Execute the calls of one message and put down what came of them, in their order."""
        left = self._budget.tool_calls - self.spent.tool_calls
        self.spent.tool_calls += len(calls)
        began = self._clock()
        jobs = [
            (self._toolbox.edits(call["function"]["name"]), partial(self._one, call, began, index < left))
            for index, call in enumerate(calls)
        ]
        for record, edit in bounded(side_by_side.run(jobs)):
            self.calls.append(record)
            if edit is not None:
                self.edits.append(edit)
            said = {"role": "tool", "tool_call_id": record.id, "content": record.result}
            self.messages.append(said)
            self._context += estimate([said])

    def _one(self, call: Mapping[str, Any], began: float, may: bool) -> tuple[CallRecord, Edit | None]:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        error = self._toolbox.check(name, arguments)
        started = self._clock()
        if self._cancelled.is_set():
            result = ToolResult("error: stopped by the user", "aborted")
        elif not may:
            result = ToolResult("error: no calls are left", "over_budget")
        else:
            # an invalid call is never executed, whatever of it could be
            result = _REFUSED.get(error) or self._toolbox.call(name, arguments, self.turns, self.left_s)
        seconds = self._clock() - started
        record = CallRecord(
            self.turns,
            call["id"],
            name,
            arguments,
            error,
            result.text,
            result.error,
            seconds,
            started - began,
        )
        return record, result.edit

    def _due(self) -> bool:
        """Whether the next answer is to be a summary."""
        policy = self._summary
        if policy is None or self._fresh or self._segment >= policy.at_most:
            return False
        return self._context >= policy.trigger_tokens

    def _restart(self, answer: Message) -> None:
        """Go on from the summary that the model wrote."""
        assert self._summary is not None
        said = said_in(answer)
        if not said.strip():
            self._finish(StopReason.NO_SUMMARY)
            return
        self.messages = self._summary.restarted(self._system, self._request, said)
        self._context = estimate(self.messages) + self._toolbox.tokens
        self._segment += 1
        self._fresh = True

    def _asked(self, summing: bool) -> tuple[Message, ...]:
        if summing and self._summary is not None:
            return ({"role": "user", "content": self._summary.ask},)
        return tuple(self.messages) if self._fresh else ()

    def _limit(self) -> StopReason | None:
        if self._cancelled.is_set():
            return StopReason.CANCELLED
        return self.spent.over(self._budget, self._elapsed())

    def _finish(self, reason: StopReason | None) -> None:
        if reason is not None and self.stop is None:
            self.stop = reason
            self._ended = self._clock()

    def _elapsed(self) -> float:
        if self._started is None:
            return 0.0
        return (self._clock() if self._ended is None else self._ended) - self._started


_REFUSED: Mapping[call_parser.CallError, ToolResult] = {
    "unknown_tool": ToolResult("error: no such tool", "unknown_tool"),
    "schema": ToolResult("error: arguments do not fit the tool", "arguments"),
}
