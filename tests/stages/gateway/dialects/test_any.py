"""Whatever a client of another API sends or a model says."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.gateway import stub_engine
from stages.gateway.config import DefaultSampling
from stages.gateway.dialects import messages, responses
from stages.gateway.dialects.messages_answer import MessagesForm
from stages.gateway.dialects.responses_answer import Named, ResponsesForm
from stages.gateway.errors import ApiError
from stages.gateway.http import send_json
from stages.gateway.request import parse_request
from tests.stages.gateway.dialects.test_messages import events
from tests.stages.gateway.rig import Rig

NAMES = [
    "type",
    "role",
    "content",
    "text",
    "name",
    "id",
    "input",
    "call_id",
    "tool_use_id",
    "tool",
    "tools",
    "source",
    "url",
    "data",
    "media_type",
    "output",
    "format",
    "definition",
    "namespace",
    "arguments",
    "input_schema",
    "parameters",
    "tool_name",
    "defer_loading",
    "description",
    "image_url",
    "refusal",
    "mode",
]
KINDS = [
    "text",
    "image",
    "document",
    "tool_use",
    "tool_result",
    "thinking",
    "tool_reference",
    "tool_addition",
    "tool_definition",
    "base64",
    "url",
    "message",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "reasoning",
    "input_text",
    "output_text",
    "input_image",
    "refusal",
    "function",
    "custom",
    "namespace",
    "web_search",
    "user",
    "assistant",
    "system",
    "developer",
    "auto",
    "any",
    "required",
    "tool",
    "allowed_tools",
    "json_schema",
    "x-anthropic-billing-header:",
]
FIELDS = [
    "messages",
    "input",
    "system",
    "instructions",
    "tools",
    "tool_choice",
    "stop_sequences",
    "max_tokens",
    "max_output_tokens",
    "stream",
    "temperature",
    "metadata",
    "output_config",
    "output_format",
    "text",
    "reasoning",
    "background",
]

scalars = st.none() | st.booleans() | st.integers(-2, 2**33) | st.sampled_from(KINDS) | st.text(max_size=3)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=12,
)
blocks = st.lists(st.dictionaries(st.sampled_from(NAMES), values, max_size=5), max_size=3)
said = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system"]), "content": blocks | st.text(max_size=3)}
)
items = st.lists(said | st.dictionaries(st.sampled_from(NAMES), values, max_size=6), max_size=4)


@pytest.mark.parametrize("read", [messages.read, responses.read])
@given(
    base=st.fixed_dictionaries({"messages": items, "input": items, "max_tokens": st.just(5)}),
    more=st.dictionaries(st.sampled_from(FIELDS), values, max_size=4),
)
def test_a_body_is_a_request_or_refused(read: Any, base: dict[str, Any], more: dict[str, Any]) -> None:
    refused = None
    try:
        body, _ = read({"model": "rtrl", **base, **more})
        parse_request("chat", body, model="rtrl", defaults=DefaultSampling())
    except ApiError as error:
        refused = error.status
    assert refused in (None, 400)


@pytest.mark.parametrize(
    ("path", "refused", "told", "message"),
    [
        ("/v1/chat/completions", "max_tokens", "max_tokens", "max_tokens may be 9 at most, the context"),
        (
            "/v1/responses",
            "max_tokens",
            "max_output_tokens",
            "max_output_tokens may be 9 at most, the context",
        ),
        ("/v1/responses", "temperature", "temperature", "the engine refused temperature"),
        ("/v1/messages", "stop", "stop_sequences", "the engine refused stop_sequences"),
    ],
)
async def test_what_an_engine_refuses_is_told_by_the_name_that_the_client_gave_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, path: str, refused: str, told: str, message: str
) -> None:
    async def error(send: Any, status: int, _: str) -> None:
        words = f"{refused}=10 cannot be greater than max_model_len=9" if "max" in refused else refused
        await send_json(send, status, {"error": {"message": words, "param": refused}})

    monkeypatch.setattr(stub_engine, "_error", error)
    asks = "stub:status=400"
    body = {"model": "rtrl", "max_tokens": 10, "messages": [{"role": "user", "content": asks}], "input": asks}
    found = (await rig.http.post(path, json=body)).json()["error"]
    assert (found["param"], found["message"]) == (told, message)


arguments = st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=2)
pieces = st.lists(st.text(min_size=1, max_size=4) | arguments, max_size=6)
thoughts = st.lists(st.text(min_size=1, max_size=4), max_size=2)


def chunks(said: list[Any], thoughts: list[str]) -> list[dict[str, Any]]:
    """As the gateway's stream has them."""
    base = {"id": "gen_1", "created": 1, "model": "rtrl"}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": one} for one in thoughts]
    for n, one in enumerate(said):
        if isinstance(one, str):
            deltas.append({"content": one})
        else:
            deltas.append({"tool_calls": [{"index": n, **call(n, one)}]})
    found = [{**base, "choices": [{"delta": delta, "finish_reason": None}]} for delta in deltas]
    found.append({**base, "choices": [{"delta": {}, "finish_reason": "stop"}]})
    return [*found, {**base, "choices": [], "usage": usage()}]


def call(n: int, value: Any) -> dict[str, Any]:
    return {"id": f"call_{n}", "function": {"name": "f", "arguments": json.dumps(value)}}


def usage() -> dict[str, int]:
    return {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def whole(said: list[Any], thoughts: list[str]) -> dict[str, Any]:
    calls = [call(n, one) for n, one in enumerate(said) if not isinstance(one, str)]
    message = {"content": "".join(one for one in said if isinstance(one, str)), "tool_calls": calls}
    message |= {"reasoning_content": "".join(thoughts)} if thoughts else {}
    choice = {"message": message, "finish_reason": "stop"}
    return {"id": "gen_1", "created": 1, "model": "rtrl", "choices": [choice], "usage": usage()}


@given(said=pieces, thoughts=thoughts)
def test_a_streamed_message_says_what_the_whole_one_says(said: list[Any], thoughts: list[str]) -> None:
    form = MessagesForm()
    sent = b"".join([*map(form.piece, chunks(said, thoughts)), form.end()]).decode()
    content: list[dict[str, Any]] = []
    for name, event in events(sent):
        if name == "content_block_start":
            assert event["index"] == len(content)
            content.append({**event["content_block"], "told": ""})
        elif name == "content_block_delta":
            delta = event["delta"]
            block, kind = content[event["index"]], delta["type"].removesuffix("_delta")
            if kind == "signature":
                block["signature"] = delta["signature"]
            else:
                block["told"] += delta["partial_json" if kind == "input_json" else kind]
    told = json.loads(orjson.dumps(MessagesForm().whole(whole(said, thoughts))))
    thought = [(one["told"], one["signature"]) for one in content if one["type"] == "thinking"]
    assert thought == [
        (block["thinking"], block["signature"]) for block in told["content"] if block["type"] == "thinking"
    ]
    text = "".join(block["told"] for block in content if block["type"] == "text")
    assert text == "".join(block["text"] for block in told["content"] if block["type"] == "text")
    inputs = [json.loads(block["told"]) for block in content if block["type"] == "tool_use"]
    assert inputs == [block["input"] for block in told["content"] if block["type"] == "tool_use"]
    last = dict(events(sent))
    assert last["message_delta"]["usage"] == told["usage"]
    assert last["message_delta"]["delta"]["stop_reason"] == told["stop_reason"]


@given(said=pieces, thoughts=thoughts)
def test_a_streamed_response_says_what_the_whole_one_says(said: list[Any], thoughts: list[str]) -> None:
    form = ResponsesForm(Named(), {})
    found = events(b"".join([*map(form.piece, chunks(said, thoughts)), form.end()]).decode())
    streamed, told = found[-1][1]["response"], ResponsesForm(Named(), {}).whole(whole(said, thoughts))

    def parts(output: list[dict[str, Any]]) -> tuple[str, list[tuple[str, str]]]:
        texts = [item["content"][0]["text"] for item in output if item["type"] == "message"]
        calls = [(item["call_id"], item["arguments"]) for item in output if item["type"] == "function_call"]
        return "".join(texts), calls

    assert parts(streamed["output"]) == parts(told["output"])
    thought = [item for item in streamed["output"] if item["type"] == "reasoning"]
    assert thought == [item for item in told["output"] if item["type"] == "reasoning"]
    assert [item["content"][0]["text"] for item in thought] == ["".join(thoughts)] * bool(thoughts)
    assert len({item["id"] for item in streamed["output"]}) == len(streamed["output"])
    assert {name: streamed[name] for name in streamed.keys() - {"output"}} == {
        name: told[name] for name in told.keys() - {"output"}
    }


@pytest.fixture
def no_collector() -> Iterator[None]:
    """The garbage collector, which would go through what all other tests have left, stands still."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("role", ["assistant", "developer", "thinks"])
def test_many_pieces_of_one_message_are_put_together_in_linear_time(role: str) -> None:
    """Each added to the text so far would copy it anew: minutes for a body that is as long as it may be."""
    seconds = {}
    for count in (20_000, 80_000):
        items = [{"type": "message", "role": role, "content": "x" * 100}] * count
        if role == "thinks":
            part = {"type": "reasoning_text", "text": "x" * 100}
            items = [{"type": "reasoning", "summary": [], "content": [part]}] * count
        began = time.process_time()
        body, _ = responses.read({"model": "rtrl", "input": items})
        seconds[count] = time.process_time() - began
        assert len(body["messages"]) == 1
    assert seconds[80_000] < 10 * seconds[20_000] + 0.1
