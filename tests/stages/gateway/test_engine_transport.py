"""The connection to the engine, against servers that misbehave on bare sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from stages.gateway.config import GatewayConfig
from stages.gateway.engine_answer import read_whole
from stages.gateway.engine_client import EngineClient, EngineLostError
from stages.gateway.engine_transport import EngineBrokeOffError, EngineUnreachableError, Transport
from stages.gateway.errors import ApiError
from stages.gateway.refusals import refused


class Server:
    """Answers each request on a connection by the next of `answers`; None closes the connection."""

    def __init__(self, *answers: list[bytes] | None) -> None:
        self.answers = list(answers)
        self.connections = 0
        self.requests: list[bytes] = []

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                answer = self.answers.pop(0) if self.answers else None
                if answer is None:
                    return
                for part in answer:
                    if part == b"CLOSE":
                        return
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0.01)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(*answers: list[bytes] | None, limit: int = 8) -> AsyncIterator[tuple[Server, Transport]]:
    server = Server(*answers)
    listener = await asyncio.start_server(server.talk, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    transport = Transport(f"http://127.0.0.1:{port}/base/", {"authorization": "Bearer k"}, limit)
    try:
        yield server, transport
    finally:
        transport.close()
        listener.close()


async def ask(transport: Transport, body: bytes = b"{}") -> tuple[int, bytes]:
    response = await transport.send("POST", "/v1/x", body)
    try:
        return response.status, await response.read()
    finally:
        response.close()
        transport.release()


def whole(body: bytes, status: int = 200, more: bytes = b"") -> bytes:
    return b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n%s\r\n%s" % (status, len(body), more, body)


CHUNKED = [
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chun",
    b"ked\r\n\r\n3\r\nabc\r",
    b"\n2\r\nde\r\n0\r\n",
    b"\r\n",
]


async def test_connections_are_kept_and_bodies_whole_however_they_are_cut() -> None:
    cut = [whole(b"hello")[i : i + 1] for i in range(len(whole(b"hello")))]
    async with serving([whole(b"one")], cut, CHUNKED, [whole(b"", 404)]) as (server, transport):
        assert [await ask(transport) for _ in range(4)] == [
            (200, b"one"),
            (200, b"hello"),
            (200, b"abcde"),
            (404, b""),
        ]
        assert server.connections == 1
        assert server.requests[0].startswith(b"POST /base/v1/x HTTP/1.1\r\nhost: 127.0.0.1")
        assert b"authorization: Bearer k\r\n" in server.requests[0]
        assert server.requests[0].endswith(b"content-length: 2\r\n\r\n{}")


async def test_a_closed_idle_connection_is_replaced_once() -> None:
    async with serving([whole(b"one")], None, [whole(b"two")]) as (server, transport):
        assert await ask(transport) == (200, b"one")
        assert await ask(transport) == (200, b"two")
        assert (server.connections, len(server.requests)) == (2, 3)


async def test_connection_close_is_obeyed() -> None:
    close = [whole(b"one", more=b"connection: close\r\n")]
    async with serving(close, close) as (server, transport):
        assert await ask(transport) == (200, b"one")
        assert await ask(transport) == (200, b"one")
        assert server.connections == 2


@pytest.mark.parametrize("answer", [None, [b"HTTP/1.1 200", b"CLOSE"], [b"nonsense\r\n\r\n"]])
async def test_no_answer_on_a_new_connection(answer: list[bytes] | None) -> None:
    async with serving(answer) as (server, transport):
        with pytest.raises(EngineUnreachableError):
            await ask(transport)
        assert len(server.requests) == 1, "a new connection is not tried twice"


async def test_nobody_listens() -> None:
    async with serving() as (_, transport):
        pass
    with pytest.raises(EngineUnreachableError):
        await ask(Transport("http://127.0.0.1:1", {}, 2))
    assert transport._slots.free == 8


@pytest.mark.parametrize(
    "answer",
    [
        [whole(b"hello")[:-2], b"CLOSE"],
        [CHUNKED[0], CHUNKED[1], b"CLOSE"],
        [CHUNKED[0], b"ked\r\n\r\nzz\r\n"],
    ],
)
async def test_an_answer_that_breaks_off(answer: list[bytes]) -> None:
    async with serving(answer) as (_, transport):
        with pytest.raises(EngineBrokeOffError):
            await ask(transport)
        assert transport._slots.free == 8


async def test_no_more_at_a_time_than_allowed() -> None:
    answers: list[list[bytes] | None] = [[whole(b"x")] for _ in range(20)]
    async with serving(*answers, limit=3) as (server, transport):
        assert {status for status, _ in await asyncio.gather(*(ask(transport) for _ in range(20)))} == {200}
        assert server.connections <= 3


async def test_giving_up_closes_the_connection_and_frees_the_slot() -> None:
    async with serving([b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc"], [whole(b"x")], limit=1) as (
        server,
        transport,
    ):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await ask(transport)
        assert await ask(transport) == (200, b"x")
        assert server.connections == 2


def event(data: bytes) -> bytes:
    line = b"data: " + data + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(line), line)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([b'{"a": 1}', b'{"a": 2}', b"[DONE]"], [1, 2]),
        ([b'{"a": 1}'], [1, "lost"]),
        ([b'{"a": 1}', b'{"error": {"message": "m"}}', b"[DONE]"], [1, "lost"]),
        ([b'{"a": 1}', b"{broken"], [1, "lost"]),
        ([b'{"error": {"message": "m", "code": 400}}', b"[DONE]"], [400]),
        ([b'{"error": {"message": "m", "code": 500}}', b"[DONE]"], [503]),
        ([], [503]),
    ],
)
async def test_streams(events: list[bytes], expected: list[object]) -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    async with serving([head, *map(event, events), b"0\r\n\r\n"]) as (_, transport):
        client = EngineClient("http://x", "", "m", GatewayConfig())
        client._transport = transport
        found: list[object] = []
        try:
            async for one in client.stream("/v1/x", b"{}"):
                found.append(one["a"])
        except EngineLostError:
            found.append("lost")
        except ApiError as error:
            found.append(error.status)
        assert found == expected
        assert transport._slots.free == 8


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, b'{"error": {"message": "bad", "param": "top_k"}}', (400, "engine_refused")),
        (422, b"no json", (422, "engine_refused")),
        (429, b"", (429, "engine_refused")),
        (
            400,
            b'{"error": {"message": "This model\'s maximum context length is 9"}}',
            (400, "context_length_exceeded"),
        ),
        (401, b"", (503, "engine_error")),
        (500, b"", (503, "engine_error")),
        (200, b"[]", (503, "engine_error")),
        (200, b"{", (503, "engine_error")),
    ],
)
async def test_what_the_client_is_told(status: int, body: bytes, expected: tuple[int, str]) -> None:
    async with serving([whole(body, status)]) as (_, transport):
        client = EngineClient("http://x", "", "m", GatewayConfig())
        client._transport = transport
        with pytest.raises(ApiError) as caught:
            await client.post("/v1/x", b"{}", read=read_whole)
        assert (caught.value.status, caught.value.code) == expected
        assert (caught.value.retry_after is not None) == (expected[0] in (429, 503))


@pytest.mark.parametrize(
    ("said", "param", "code", "field"),
    [
        ("1 validation error: {'input': 'LEAK', 'loc': 'body.logit_bias.LEAK'}", "body.logit_bias.LEAK",
         "engine_refused", "logit_bias"),
        ('invalid regex "[LEAK"', None, "engine_refused", None),
        ("LEAK is not a field", "body.LEAK", "engine_refused", None),
        ("min_tokens must be at most 3, got LEAK", None, "engine_refused", "min_tokens"),
        ("This model's maximum context length is 1024 tokens. LEAK", "input_tokens",
         "context_length_exceeded", None),
        ("max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)", "max_tokens",
         "context_length_exceeded", None),
    ],
)  # fmt: skip
def test_the_engines_words_are_not_passed_on(
    said: str, param: str | None, code: str, field: str | None
) -> None:
    """They repeat what the request said. A prompt that fills the context is an overflow to vLLM, too."""
    error = refused(400, json.dumps({"error": {"message": said, "param": param}}).encode())
    assert (error.status, error.code, error.param) == (400, code, field)
    assert said not in error.message
    assert "LEAK" not in error.message
    assert field is None or field in error.message


@pytest.mark.parametrize(
    ("said", "field", "told"),
    [
        ("/models/LEAK is not a multimodal model", "messages", "text only"),
        ("At most 0 image(s) may be provided in one prompt.", "messages", "images"),
        ("Token id 9999999 is out of vocabulary", "prompt", "vocabulary"),
        ("Invalid grammar specification: LEAK", None, "schema or grammar"),
        ("Invalid structured_outputs structural_tag specification.", None, "a tool that has to be called"),
        ("stop cannot contain an empty string.", "stop", "no empty string"),
        ("min_tokens must be less than or equal to max_tokens=2, got 9999999.", "min_tokens", "max_tokens"),
        ("Choice '[]' cannot be an empty list", "structured_outputs", "empty"),
        ("You can only use one kind of constraints for structured outputs", "structured_outputs", "one of"),
        (
            "As of transformers v4.44, default chat template is no longer allowed, so you must provide "
            "a chat template if the tokenizer does not define one.",
            "messages",
            "no chat template",
        ),
        ("Chat template is passed with request, but LEAK", "chat_template", "not taken"),
        ("7 validation errors for ValidatorIterator\n0.LEAK", "messages", '"type": "text"'),
        ("The provided JSON schema contains features not supported", None, "schema or grammar"),
        # templates of Mistral's, Llama's and Gemma's models
        (
            "Tool call IDs should be alphanumeric strings with length 9!",
            "messages",
            "nine letters and digits",
        ),
        (
            "After the optional system message, conversation roles must alternate user/assistant/LEAK",
            "messages",
            "user and assistant in turn",
        ),
        ("Conversation roles must alternate user/assistant/user/...", "messages", "in turn"),
        ("System role not supported", "messages", "no system message"),
    ],
)
def test_what_engines_say_without_a_field_is_told_in_words_of_ours(
    said: str, field: str | None, told: str
) -> None:
    error = refused(400, json.dumps({"error": {"message": said, "param": None}}).encode())
    assert (error.status, error.code, error.param) == (400, "engine_refused", field)
    assert told in error.message
    assert "LEAK" not in error.message
    assert "9999999" not in error.message


TYPE = "'type': 'x', 'loc': 'body.x'"  # as vLLM 0.32 passes pydantic's errors on
REFUSALS = [
    (
        f"2 validation errors:\n {{{TYPE}, 'msg': 'Input should be a valid string', 'input': 'LEAK'}}\n "
        f"{{{TYPE}, 'msg': 'List should have at most 4 items after validation, not 5'",
        "body.stop", "stop", "at most 4 items",
    ),
    (
        f"1 validation error:\n {{{TYPE}, 'msg': \"Input should be 'low' or 'high'\", 'input': 'LEAK'}}",
        "body.reasoning_effort", "reasoning_effort", "should be 'low' or 'high'",
    ),
    (
        "Requested sample logprobs of 50, which is greater than max allowed: 20 (parameter=logprobs)",
        "logprobs", "logprobs", "20 at most",
    ),
    (
        "token_id(s) [9999999] in stop_token_ids contain out-of-vocab token ids. Vocabulary size: 1024",
        "stop_token_ids", "stop_token_ids", "vocabulary",
    ),
    (
        "truncate_prompt_tokens=5000 cannot be greater than max_model_len = 1024.",
        "truncate_prompt_tokens", "truncate_prompt_tokens", "more than the context",
    ),
    (
        "max_tokens=5000 cannot be greater than max_model_len=1024. Please request fewer output tokens.",
        "max_tokens", "max_tokens", "1024 at most",
    ),
    (
        "`priority` must be an integer. (parameter=priority, value={'grammar': 'LEAK'})",
        "priority", "priority", "priority",
    ),
    (
        f"19 validation errors:\n {{{TYPE}, 'msg': 'Input should be a valid string', 'input': 'LEAK'}}",
        "body.messages.2.ChatCompletionDeveloperMessageParam.content", "messages[2]", "role and content",
    ),
    (
        "2 validation errors:\n {'loc': 'body.0.ChatCompletionMessageFunctionToolCallParam'",
        "body.0.ChatCompletionMessageFunctionToolCallParam", "messages", "a tool call in messages",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("said", "param", "field", "told"), REFUSALS)
def test_the_field_and_the_limit_are_told(said: str, param: str, field: str, told: str) -> None:
    error = refused(400, json.dumps({"error": {"message": said, "param": param}}).encode())
    assert (error.code, error.param) == ("engine_refused", field)
    assert told in error.message
    assert "LEAK" not in error.message
    assert "9999999" not in error.message


def test_a_full_context_is_told_in_the_words_that_clients_look_for() -> None:
    """LiteLLM knows it by these words alone; agents shorten their conversation then. Where `max_tokens` alone
    is more than the context, to shorten it is of no use (`REFUSALS`)."""
    said = "This model's maximum context length is 1024 tokens. However, your prompt contains at least 1025"
    error = refused(400, json.dumps({"error": {"message": said}}).encode())
    assert error.code == "context_length_exceeded"
    assert error.message.startswith("This model's maximum context length is 1024 tokens")
    filled = refused(400, b'{"error": {"message": "max_tokens must be at least 1, got 0."}}')
    assert filled.code == "context_length_exceeded"
    assert filled.message.startswith("This model's maximum context length is")
    assert "max_tokens" not in error.message + filled.message, "a smaller one is of no use"
