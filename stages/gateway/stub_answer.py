"""One answer of the stub engine, in vLLM's shapes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import orjson

from stages.gateway.http import ClientGoneError, Send
from stages.gateway.stub_script import EOS, Script, logprob, name_of, routed_experts, whole_characters
from stages.gateway.stub_steps import Steps
from stages.gateway.stub_weights import StubWeights


class Answer:
    """One answer in vLLM's shapes."""

    def __init__(
        self,
        steps: Steps,
        weights: StubWeights,
        base: dict[str, Any],
        name: str,
        chat: bool,
        body: dict[str, Any],
        prompt: list[int],
        script: Script,
    ) -> None:
        self.steps, self.name, self.weights, self.base = steps, name, weights, base
        self.chat, self.body, self.prompt, self.script = chat, body, prompt, script
        self.cached = weights.cached_tokens
        self.salts: list[int] = []  # of the weights held when each token was sampled

    async def whole(self) -> dict[str, Any]:
        """Not streamed."""
        script = self.script
        for _ in script.ids:
            if script.gap:
                await asyncio.sleep(script.gap)
            await self.steps.running(script.held(len(self.salts)))
            self.salts.append(self.weights.salt)
            self.steps.sampled(self.name, len(self.salts))
        text = bytes(i for i in script.ids if i != EOS).decode(errors="replace")
        choice: dict[str, Any] = {"index": 0, "finish_reason": script.finish, "stop_reason": script.stopped}
        choice["logprobs"] = self._logprobs(0, script.ids)
        if self.chat:
            choice["message"] = {"role": "assistant", "content": text, "refusal": None}
        else:
            choice["text"] = text
        answer = {**self.base, "choices": [choice], "usage": self._usage()}
        answer["object"] = "chat.completion" if self.chat else "text_completion"
        if script.experts:
            choice["routed_experts"] = routed_experts([*self.prompt, *script.ids], script.wrong)
        if script.wrong != "noids":
            ids = script.ids[:-1] if script.wrong == "ids" else script.ids
            choice["token_ids"] = ids
            (answer if self.chat else choice)["prompt_token_ids"] = self.prompt
        return answer

    async def stream(self, send: Send) -> None:
        """As events, to an ASGI client."""
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        events, index = self._events(), 0
        while True:
            await self.steps.running(self.script.held(len(self.salts)))
            event = next(events, None)
            if event is None:
                break
            self.steps.sampled(self.name, len(self.salts))
            if 0 <= self.script.die < index:
                raise ClientGoneError("as the request told the stub")
            if index and self.script.gap:
                await asyncio.sleep(self.script.gap)
            data = b"data: " + orjson.dumps(event) + b"\n\n"
            await send({"type": "http.response.body", "body": data, "more_body": True})
            index += 1
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})

    def _events(self) -> Iterator[dict[str, Any]]:
        script = self.script
        base = {**self.base, "object": "chat.completion.chunk" if self.chat else "text_completion"}
        ids_shown = script.wrong != "noids"
        if self.chat:
            delta = {"role": "assistant", "content": ""}
            first: dict[str, Any] = {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
            if ids_shown:
                first["prompt_token_ids"] = self.prompt
            yield first
        pending = b""
        for index, token in enumerate(script.ids):
            pending += bytes([token]) if token != EOS else b""
            text, pending = whole_characters(pending)
            last = index == len(script.ids) - 1
            self.salts.append(self.weights.salt)
            choice: dict[str, Any] = {"index": 0, "finish_reason": script.finish if last else None}
            choice |= {"stop_reason": script.stopped if last else None}
            choice["logprobs"] = self._logprobs(index, [token])
            if ids_shown and not (last and script.wrong == "ids"):
                choice["token_ids"] = [token]
            if self.chat:
                choice["delta"] = {"content": text}
            else:
                choice["text"] = text
                choice["prompt_token_ids"] = self.prompt if ids_shown and index == 0 else None
            yield {**base, "choices": [choice]}
        if (self.body.get("stream_options") or {}).get("include_usage"):
            yield {**base, "choices": [], "usage": self._usage()}

    def _logprobs(self, start: int, ids: list[int]) -> dict[str, Any] | None:
        asked = self.body.get("logprobs")
        if asked is None or asked is False:
            return None
        if self.script.wrong == "logprobs" and start + len(ids) == len(self.script.ids):
            ids = ids[:-1]
        values = [logprob(start + i, token, self.salts[start + i]) for i, token in enumerate(ids)]
        names = [name_of(token) for token in ids]
        if self.chat:
            return {
                "content": [
                    {"token": name, "logprob": value, "bytes": list(name.encode()), "top_logprobs": []}
                    for name, value in zip(names, values, strict=True)
                ]
            }
        return {"text_offset": [], "token_logprobs": values, "tokens": names, "top_logprobs": []}

    def _usage(self) -> dict[str, Any]:
        output = len(self.script.ids) + (self.script.wrong == "usage")
        return {
            "prompt_tokens": len(self.prompt),
            "completion_tokens": output,
            "total_tokens": len(self.prompt) + output,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }
