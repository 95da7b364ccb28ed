"""Chat and completions as a stream of server-sent events.

The engine is read at its own speed, whatever the client's, so a slow reader holds up neither the
engine nor a weight swap: what it has not taken waits in its connection (`taking.py`). The last pieces
go out after the generation is in the spool. A client that leaves stops the engine, and so does
a weight swap that cannot wait; what was sampled until then is recorded (`finish_reason` "abort").
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, suppress
from typing import Any

from stages.gateway.answering import (
    BROKEN,
    ENGINE_PATH,
    LOST,
    Answerer,
    fingerprint,
    finish_reason,
    is_opened,
    lost,
    names_of,
    read_logprobs,
    thoughts_of,
    told,
)
from stages.gateway.capture import Call
from stages.gateway.dialects.form import Form
from stages.gateway.engine_client import EngineLostError
from stages.gateway.errors import ApiError
from stages.gateway.gate import CUT, CutShortError
from stages.gateway.http import Receive, Send
from stages.gateway.sampled import Sampled
from stages.gateway.shares import Whose
from stages.gateway.tools import Sent, Thought, ToolStream
from stages.model_forms import forms_of

_OBJECT = {"chat": "chat.completion.chunk", "completions": "text_completion"}
_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


class Stream:
    """One streamed answer."""

    def __init__(
        self, answerer: Answerer, call: Call, form: Form, receive: Receive, send: Send, request_id: str = ""
    ) -> None:
        self._to = answerer
        self._form = form
        self._request_id = request_id
        self._call = call
        self._receive = receive
        self._send = send
        self._sampled = Sampled()
        self._thoughts = thoughts_of(call, None)
        self._tools = ToolStream(call.request.tools, self._thoughts, forms_of(call.checkpoint.path).blocks)
        self._calls_sent = 0
        self._first_token: float | None = None
        self._last_logprobs: Any = None
        self._outbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._begun = False  # a piece of the answer was put out
        self._left = False

    async def run(self) -> None:
        """Generate, forward, record. The caller holds the gate; it is left when the engine is done.

        Raises:
            ApiError: nothing was sent yet, and nothing will be.
        """
        pump = asyncio.create_task(self._pump())
        watch = asyncio.create_task(self._watch())
        pump.add_done_callback(lambda _: self._outbox.put_nowait(None))
        try:
            await self._deliver(pump, watch)
        finally:
            watch.cancel()
            pump.cancel()
            with suppress(asyncio.CancelledError, ApiError):
                await pump
            if not self._left:  # cancelled before it took its first step
                self._leave()
                self._to.recorder.abandon(self._call, "client_gone")

    async def _deliver(self, pump: asyncio.Task[None], watch: asyncio.Task[None]) -> None:
        """Send what the pump puts out; stop the pump when the client is gone."""
        watch.add_done_callback(lambda _: pump.cancel())
        started = False
        while (piece := await self._outbox.get()) is not None:
            pieces = [piece]  # an engine that is quick sends many at once
            while not self._outbox.empty():
                more = self._outbox.get_nowait()
                if more is None:
                    self._outbox.put_nowait(None)
                    break
                pieces.append(more)
            if not started:
                started = True
                headers = [*_HEADERS, *names_of(self._call, self._form)]
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._send({"type": "http.response.body", "body": b"".join(pieces), "more_body": True})
        if not started:
            with suppress(asyncio.CancelledError):
                await pump  # raises what went wrong before the first piece
            return
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _watch(self) -> None:
        """Ends when the client has closed the connection."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _pump(self) -> None:
        """Read the engine to the end, record, put out the last pieces."""
        request = self._call.request
        sampled = self._sampled
        try:
            try:
                path, call = ENGINE_PATH[request.api], self._call
                coming = call.arm.engine.stream(
                    path,
                    call.upstream,
                    call.id,
                    doubtful=request.doubtful,
                    whose=Whose.of(call.key, call.who.user),
                )
                async with call.arm.served.gate.sampling(), aclosing(coming) as events:
                    async for event in events:
                        self._take(event)
            finally:
                self._leave()
        except ApiError as error:
            self._to.unanswered(self._call, error)
            raise
        except EngineLostError as error:
            self._lost(error.late)
            return
        except CutShortError as cut:
            self._cut_short(cut.error)
            return
        except asyncio.CancelledError:
            sampled.finish_reason = CUT
            if sampled.output:
                self._record()
            else:
                self._to.recorder.abandon(self._call, "client_gone")
            raise
        self._finish()

    def _lost(self, late: ApiError | None = None) -> None:
        """The engine stopped in the middle, or was `late`. What it sampled before is recorded."""
        sampled = self._sampled
        if sampled.output or late:
            sampled.finish_reason = "timeout" if late else "error"
            sampled.defect = "" if late else LOST
            if not self._recorded():
                return
        else:
            self._to.recorder.abandon(self._call, LOST)
        self._error(late or lost())

    def _cut_short(self, error: ApiError) -> None:
        """A swap or a shutdown did not wait. What was sampled before is recorded."""
        self._sampled.finish_reason = CUT
        if self._recorded():
            self._error(error)

    def _leave(self) -> None:
        """Leave the gate, once."""
        if not self._left:
            self._left = True
            self._call.arm.served.gate.leave()

    def _take(self, event: dict[str, Any]) -> None:
        """One event of the engine."""
        sampled = self._sampled
        self._asked(event.get("prompt_token_ids"))
        if event.get("usage"):
            sampled.usage = event["usage"]
        for choice in event.get("choices") or ():
            self._asked(choice.get("prompt_token_ids"))
            ids = choice.get("token_ids") or ()
            if ids and self._first_token is None:
                self._first_token = time.perf_counter()
            sampled.output += ids
            self._last_logprobs = choice.get("logprobs")
            sampled.logprobs += read_logprobs(self._last_logprobs)
            sampled.experts = choice.get("routed_experts") or sampled.experts
            if choice.get("finish_reason"):
                sampled.finish_reason = choice["finish_reason"]
                sampled.stopped_by = choice.get("stop_reason")
            delta = choice.get("delta")
            text = (delta.get("content") if delta is not None else choice.get("text")) or ""
            sampled.text += text
            if delta is not None and delta.get("role"):
                self._put({"role": "assistant", "content": ""})
            self._forward(self._tools.feed(text), ids)

    def _asked(self, prompt: list[int] | None) -> None:
        """The engine tells the prompt's ids, before the first text."""
        if prompt:
            self._sampled.prompt = prompt
            if self._thoughts is not None:
                self._thoughts.begun = is_opened(self._call, prompt)

    def _forward(self, pieces: list[Sent], ids: Any = ()) -> None:
        """Put out what is told now. Logprobs and ids that were asked for go with the first piece."""
        wants = self._call.request.wants_logprobs or self._call.request.wants_ids
        if not pieces and wants and ids:
            pieces = [""]
        for piece in pieces:
            if isinstance(piece, Thought):
                self._put({"reasoning_content": piece.text}, ids=ids)
            elif isinstance(piece, str):
                self._put({"content": piece}, ids=ids)
            else:
                entry = {"index": self._calls_sent, **piece}
                self._calls_sent += 1
                self._put({"tool_calls": [entry]}, ids=ids)
            ids = ()

    def _put(self, delta: dict[str, Any], *, finish: str | None = None, ids: Any = ()) -> None:
        request = self._call.request
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
        choice["logprobs"] = self._last_logprobs if request.wants_logprobs and ids else None
        if request.wants_ids and ids:
            choice["token_ids"] = ids
        if request.api == "chat":
            choice["delta"] = delta
        else:
            choice["text"] = delta.get("content", "")
        if finish and self._form.tells_stop:
            choice["stop_reason"] = self._sampled.stopped_by
        self._chunk([choice])

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> None:
        call = self._call
        if call.request.wants_ids and not self._begun:
            more["prompt_token_ids"] = self._sampled.prompt
        self._begun = True
        body = {
            "id": call.id,
            "object": _OBJECT[call.request.api],
            "created": call.wall // 1000,
            "model": call.arm.served.model,
            "system_fingerprint": fingerprint(call),
            "choices": choices,
            **more,
        }
        self._outbox.put_nowait(self._form.piece(body))

    def _record(self) -> None:
        began = self._call.began
        ttft = (self._first_token or time.perf_counter()) - began
        self._to.recorder.record(self._call, self._sampled, self._tools.answer, ttft_s=ttft)
        if self._first_token is not None:
            self._to.metrics.first_token.observe(ttft)

    def _recorded(self) -> bool:
        """Record, or tell the client why that was not possible. Raises as `_error`."""
        try:
            self._record()
        except ApiError as error:
            self._error(error)
            return False
        return True

    def _finish(self) -> None:
        """The engine is done: record, then let the last pieces go."""
        if self._sampled.finish_reason in ("", *BROKEN):
            self._lost()
            return
        self._last_logprobs = None
        rest = self._tools.finish()
        if not self._recorded():
            return
        self._forward(rest)
        self._put({}, finish=finish_reason(self._sampled.finish_reason, self._tools.answer))
        request = self._call.request
        if request.include_usage:
            self._chunk([], usage=told(self._sampled.usage))
        self._outbox.put_nowait(self._form.end())

    def _error(self, error: ApiError) -> None:
        """The answer ends with an event of its own. Raises `error` if none of it went out."""
        if not self._begun:
            raise error
        self._outbox.put_nowait(self._form.broken(error, self._request_id))
