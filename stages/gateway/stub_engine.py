"""A deterministic engine that speaks vLLM's HTTP, with token ids and logprobs, and no model behind it.

For tests, for benchmarks of everything around the engine, and for writing a client without a GPU:

    python -m stages.gateway.stub_engine --port 8001 [--model FOLDER] [--load-seconds S] [--stage-hold FILE]
        [--lie KIND:TEXT]

Tokens are the bytes of the text (id = byte), so ids and text always agree. Without instructions the
answer is a fixed sentence of 60 tokens. A request steers it by words in its last user message (for
completions: in the prompt):

    stub:say TEXT          the answer, to the end of the message
    stub:tokens=N          N tokens
    stub:call NAME JSON    a tool call, to the end of the message
    stub:delay=SECONDS     before the first token         stub:gap=SECONDS   between tokens
    stub:hold=FILE         before the last token (stub:after=N: after N), as long as there is that file
    stub:status=N          an error answer with that status; stub:overflow for the context-length error
    stub:experts           as a mixture-of-experts model: with the experts of each token (not in streams)
    stub:wrong=KIND        logprobs (one short), ids (one short), noids, usage, experts (one short),
                           experts_cut
    stub:die=N             the connection is cut after N streamed tokens (not streamed: at once)

A checkpoint folder with a file `stub.txt` says the words for requests that give none.

Not a fake of the model's behaviour: nothing learns from what it says.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections import deque
from pathlib import Path
from typing import Any

import orjson

from stages.engine.guard import KeyGuard
from stages.gateway.http import (
    ClientGoneError,
    Receive,
    Scope,
    Send,
    answer_lifespan,
    header,
    read_body,
    send_json,
)
from stages.gateway.stub_answer import Answer
from stages.gateway.stub_script import Script, render
from stages.gateway.stub_steps import Steps
from stages.gateway.stub_weights import StubWeights

MAX_MODEL_LEN = 100_000
WORDS = "stub.txt"  # in a checkpoint folder


class StubEngine:
    """The stub as an ASGI application.

    Attributes:
        requests: bodies received, newest last (the last 100).
        up: when False, every request gets 503.
        weights: the checkpoint folder it pretends to hold.
        words: instructions for requests that give none themselves.
        load_seconds: how long new weights take to load; half of it the old ones are held still.
    """

    def __init__(self, model: str = "rtrl", folder: Path | None = None, key: str = "", lie: str = "") -> None:
        self.model, self.load_seconds, self.words = model, 0.0, ""
        self.weights = StubWeights(folder, lie)
        self._expected = f"Bearer {key}".encode() if key else b""
        self.requests: deque[dict[str, Any]] = deque(maxlen=100)
        self.steps = Steps()
        self.up = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await answer_lifespan(receive, send)
            return
        path = scope["path"]
        if self._expected and header(scope, b"authorization") != self._expected:
            await _error(send, 401, "this port belongs to the gateway")
        elif not self.up:
            await _error(send, 503, "the engine is dead")
        elif path == "/health":
            await send_json(send, 200, {})
        elif path == "/v1/models":
            await send_json(send, 200, {"object": "list", "data": [{"id": self.model, "object": "model"}]})
        elif path in ("/reset_prefix_cache", "/pause", "/resume"):
            if path != "/reset_prefix_cache":
                self.steps.pause(path == "/pause" and b"mode=keep" in scope["query_string"])
            await send_json(send, 200, {"success": True})
        elif path == "/collective_rpc":
            await self._control(await _read(scope, receive), send)
        elif path == "/tokenize":
            body = await _read(scope, receive)
            await send_json(send, 200, {"count": len(render(body["messages"], body.get("tools")))})
        elif path in ("/v1/chat/completions", "/v1/completions"):
            body = await _read(scope, receive)
            if body.get("prompt_logprobs") is not None:
                await send_json(send, 200, self.weights.probe(body))
                return
            self.requests.append(body)
            await self._generate(path == "/v1/chat/completions", body, scope, send)
        else:
            await _error(send, 404, "Not Found")

    async def _control(self, body: dict[str, Any], send: Send) -> None:
        pause = self.load_seconds / 2 if body.get("method") == "rtrl_load" else 0.0
        await asyncio.sleep(pause)
        try:
            told = self.weights.call(body)
            told["results"][0] |= {"under_way": self.steps.counts(), "tells": True}
        except ValueError as error:
            await _error(send, 500, str(error))
            return
        await asyncio.sleep(pause)
        await send_json(send, 200, told)

    async def _generate(self, chat: bool, body: dict[str, Any], scope: Scope, send: Send) -> None:
        if chat:
            prompt = list(render(body["messages"], body.get("tools")))
            users = [m for m in body["messages"] if m.get("role") == "user"]
            words = str(users[-1].get("content")) if users else ""
        else:
            given = body["prompt"]
            prompt = given if isinstance(given, list) else list(given.encode())
            words = given if isinstance(given, str) else ""
        if "stub:" not in words:
            words = self.words
        script = Script(words, body.get("max_tokens"), body.get("stop") or ())
        if script.overflow or len(prompt) > MAX_MODEL_LEN:
            await _error(send, 400, f"This model's maximum context length is {MAX_MODEL_LEN} tokens.")
            return
        if script.status:
            await _error(send, script.status, "as the request told the stub")
            return
        if script.delay:
            await asyncio.sleep(script.delay)
        name = header(scope, b"x-request-id").decode("latin-1")
        base = {"id": "stub-1", "created": 0, "model": self.model}
        answer = Answer(self.steps, self.weights, base, name, chat, body, prompt, script)
        try:
            if body.get("stream"):
                await answer.stream(send)
            elif script.die >= 0:
                start = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]}
                await send(start)
                raise ClientGoneError(header(scope, b"host").decode())
            else:
                await send_json(send, 200, await answer.whole())
        finally:
            self.steps.end(name)


async def _read(scope: Scope, receive: Receive) -> dict[str, Any]:
    return dict(orjson.loads(await read_body(scope, receive, 1 << 28)))


async def _error(send: Send, status: int, message: str) -> None:
    error = {"message": message, "type": "BadRequestError", "param": None, "code": status}
    await send_json(send, status, {"error": error})


def main() -> None:
    """Serve on a loopback port until interrupted."""
    import uvicorn

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8001)
    parser.add_argument("--served-model-name", default="rtrl")
    parser.add_argument("--model", type=Path, help="the checkpoint folder it pretends to hold")
    parser.add_argument("--load-seconds", type=float, default=0, help="how long new weights take to load")
    parser.add_argument("--stage-hold", type=Path, help="they are not ready as long as there is this file")
    parser.add_argument("--lie", default="", help="KIND:TEXT, see stub_weights.py")
    arguments, _ = parser.parse_known_args()  # vLLM's other arguments are accepted
    key, name = os.environ.get("RTRL_ENGINE_KEY", ""), arguments.served_model_name
    stub = StubEngine(name, arguments.model, key, arguments.lie)
    stub.load_seconds, stub.weights.stage_hold = arguments.load_seconds, arguments.stage_hold
    if arguments.model is not None and (arguments.model / WORDS).is_file():
        stub.words = (arguments.model / WORDS).read_text(encoding="utf-8")
    app = KeyGuard(stub) if key else stub
    uvicorn.run(
        app, host=arguments.host, port=arguments.port, log_level="warning", access_log=False, loop="uvloop"
    )


if __name__ == "__main__":
    main()
