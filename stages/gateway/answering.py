"""Chat and completions, not streamed: ask the engine, record, answer. Streams are in `streaming.py`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import orjson

from cursorbench.harness.thoughts import Thoughts
from stages.gateway.capture import Call, Recorder
from stages.gateway.dialects.form import Form
from stages.gateway.engine_answer import Logprobs, Whole, read_whole
from stages.gateway.errors import ApiError, unavailable
from stages.gateway.gate import CUT, CutShortError
from stages.gateway.http import JSON_TYPE, Send, send_body
from stages.gateway.metrics import Metrics
from stages.gateway.sampled import OVERFLOW, Sampled
from stages.gateway.shares import Whose
from stages.gateway.tools import Answer, ToolStream, read_answer
from stages.model_forms import forms_of

ENGINE_PATH = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
OBJECT = {"chat": "chat.completion", "completions": "text_completion"}
ID_HEADER = b"x-rtrl-generation-id"
COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")
LOST = "engine_lost"
BROKEN = ("abort", "error")  # finish reasons of an answer that somebody else stopped, in the engine
_UNANSWERED = {"context_length_exceeded": OVERFLOW, "engine_timeout": "timeout"}


class Answerer:
    """Serves whole answers."""

    def __init__(self, recorder: Recorder, metrics: Metrics) -> None:
        self.recorder = recorder
        self.metrics = metrics

    async def answer(self, call: Call, form: Form, send: Send) -> None:
        """Generate, record, send. The caller holds the arm's gate; it is left when the engine is done."""
        request, gate = call.request, call.arm.served.gate
        asked = time.perf_counter()
        try:
            async with gate.sampling():
                path = ENGINE_PATH[request.api]
                engine, whose = call.arm.engine, Whose.of(call.key, call.who.user)
                value = await engine.post(
                    path, call.upstream, call.id, doubtful=request.doubtful, whose=whose, read=read_whole
                )
        except CutShortError as cut:
            sampled = Sampled(finish_reason=CUT)
            self.recorder.record(call, sampled, Answer(), ttft_s=time.perf_counter() - call.began)
            raise cut.error from None
        except ApiError as error:
            self.unanswered(call, error)
            raise
        finally:
            gate.leave()
        answered = time.perf_counter()
        sampled = sampled_of(value)
        thoughts, blocks = thoughts_of(call, sampled.prompt), forms_of(call.checkpoint.path).blocks
        if sampled.finish_reason in BROKEN:
            sampled.defect = LOST
            begun = ToolStream(request.tools, thoughts, blocks)
            begun.feed(sampled.text)  # and no more: a call that was cut is broken by the cut
            self.recorder.record(call, sampled, begun.answer, ttft_s=answered - call.began)
            raise lost()
        answer = read_answer(sampled.text, request.tools, thoughts, blocks)
        finish = finish_reason(sampled.finish_reason, answer)
        self.recorder.record(call, sampled, answer, ttft_s=answered - call.began)
        told = whole_body(call, value, answer, finish)
        if form.tells_stop:
            told["choices"][0]["stop_reason"] = sampled.stopped_by
        body = orjson.dumps(form.whole(told))
        self.metrics.overhead.observe(time.perf_counter() - answered + asked - call.began)
        await send_body(send, 200, body, [JSON_TYPE, *names_of(call, form)])

    def unanswered(self, call: Call, error: ApiError) -> None:
        """The engine gave no token. What the model or its prompt may have caused is recorded all the same."""
        reason = _UNANSWERED.get(error.code)
        if reason is None:
            self.recorder.abandon(call, error.code)
            return
        sampled = Sampled(finish_reason=reason)
        self.recorder.record(call, sampled, Answer(), ttft_s=time.perf_counter() - call.began)


def thoughts_of(call: Call, prompt: Sequence[int] | None) -> Thoughts | None:
    """What takes the answer to `prompt` (token ids; None if not known) apart; None for plain completions."""
    if call.request.api != "chat":
        return None
    return Thoughts(begun=prompt is not None and is_opened(call, prompt))


def is_opened(call: Call, prompt: Sequence[int]) -> bool:
    """Whether the answer begins within a thought. One bound by a grammar has to begin as that does."""
    return not call.request.sampling.grammar and forms_of(call.checkpoint.path).begins_within(prompt)


def names_of(call: Call, form: Form) -> list[tuple[bytes, bytes]]:
    """The headers that tell which generation an answer is."""
    return [(name, call.id.encode()) for name in (ID_HEADER, form.id_header) if name]


def lost() -> ApiError:
    """What a client is told whose answer the engine did not finish."""
    return unavailable("engine_lost", "the engine stopped answering")


def sampled_of(value: Whole) -> Sampled:
    """Tokens and text of an engine's whole answer."""
    choice = value.choice
    return Sampled(
        prompt=value.prompt,
        output=choice.token_ids or [],
        logprobs=_logprobs(choice.logprobs),
        experts=choice.routed_experts,
        text=(choice.text if choice.message is None else choice.message.content) or "",
        finish_reason=choice.finish_reason,
        stopped_by=choice.stop_reason,
        usage=value.usage,
    )


def _logprobs(logprobs: Logprobs | None) -> list[float | None]:
    if logprobs is None:
        return []
    if logprobs.content is not None:
        return [entry.logprob for entry in logprobs.content]
    return logprobs.token_logprobs or []


def read_logprobs(logprobs: dict[str, Any] | None) -> list[float | None]:
    """The logprob of each token of a streamed piece, from either API's shape."""
    if not logprobs:
        return []
    content = logprobs.get("content")
    if content is not None:
        return [entry["logprob"] for entry in content]
    return list(logprobs.get("token_logprobs") or ())


def finish_reason(reported: str, answer: Answer) -> str:
    """OpenAI's finish reason: `tool_calls` when the model stopped after well-formed calls."""
    return "tool_calls" if answer.calls and reported == "stop" else reported


def whole_body(
    call: Call,
    value: Whole,
    answer: Answer,
    finish: str,
) -> dict[str, Any]:
    """The plain OpenAI answer."""
    request = call.request
    shown: dict[str, Any] = {"index": 0, "finish_reason": finish}
    shown["logprobs"] = value.logprobs() if request.wants_logprobs else None
    if request.api == "chat":
        message: dict[str, Any] = {"role": "assistant", "content": answer.content, "refusal": None}
        if answer.thoughts:
            message["reasoning_content"] = answer.thoughts
        if answer.calls:
            message["tool_calls"] = answer.calls
            message["content"] = answer.content or None
        shown["message"] = message
    else:
        shown["text"] = answer.content
    body = {
        "id": call.id,
        "object": OBJECT[request.api],
        "created": call.wall // 1000,
        "model": call.arm.served.model,
        "system_fingerprint": fingerprint(call),
        "choices": [shown],
        "usage": told(value.usage),
    }
    if request.wants_ids:
        shown["token_ids"] = value.choice.token_ids
        body["prompt_token_ids"] = value.prompt
    return body


def told(usage: Any) -> dict[str, Any] | None:
    """The engine's count of tokens for a client, who need not know what of others' prompts was cached."""
    return {key: usage[key] for key in COUNTS if key in usage} if isinstance(usage, dict) else None


def fingerprint(call: Call) -> str:
    """Which checkpoint answered, in the field OpenAI has for it."""
    return call.checkpoint.digest.removeprefix("sha256:")[:16]
