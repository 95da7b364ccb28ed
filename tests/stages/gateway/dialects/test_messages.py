"""Anthropic's Messages API in front of the same generation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cursorbench.harness.forced_calls import structural_tag
from stages.gateway.asking import asked as asked_of
from stages.gateway.dialects import messages
from stages.gateway.errors import ApiError
from tests.stages.gateway.rig import Rig, running

HELLO = {"model": "rtrl", "max_tokens": 100, "messages": [{"role": "user", "content": "stub:say hello"}]}
READ = {
    "name": "read_file",
    "description": "Reads.",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
CALL = 'stub:call read_file {"path": "sum.py"}'


def asked(*said: Any, **more: Any) -> dict[str, Any]:
    roles = ("user", "assistant") * len(said)
    talk = [{"role": role, "content": one} for role, one in zip(roles, said, strict=False)]
    return {"model": "rtrl", "max_tokens": 100, "messages": talk, **more}


async def post(rig: Rig, body: Any, path: str = "/v1/messages", **headers: str) -> Any:
    return await rig.http.post(path, json=body, headers=headers)


def events(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Name and data of each event of a stream."""
    found = []
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


async def test_an_answer_is_a_message_and_a_generation(rig: Rig) -> None:
    answer = await post(rig, HELLO)
    (generation,) = rig.generations()
    assert answer.json() == {
        "id": generation.id,
        "type": "message",
        "role": "assistant",
        "model": "rtrl",
        "content": [{"type": "text", "text": "hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": len("user: stub:say hello\nassistant: "), "output_tokens": 6},
    }
    assert answer.headers["x-rtrl-generation-id"] == generation.id
    assert (generation.api, generation.defect, generation.sampling.max_tokens) == ("chat", "", 100)
    assert bytes(rig.payload(generation.id)[1].output[:-1].tolist()) == b"hello"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"max_tokens": 3}, ("max_tokens", None)),
        ({"stop_sequences": ["zzz", "lo"]}, ("stop_sequence", "lo")),
        ({}, ("end_turn", None)),
    ],
)
async def test_why_it_stopped(rig: Rig, more: dict[str, Any], told: tuple[str, Any], stream: bool) -> None:
    answer = await post(rig, {**HELLO, **more, "stream": stream})
    if stream:
        (body,) = (event["delta"] for name, event in events(answer.text) if name == "message_delta")
    else:
        body = answer.json()
    assert (body["stop_reason"], body["stop_sequence"]) == told
    (generation,) = rig.generations()
    assert answer.headers["request-id"] == generation.id, "by which Claude Code's telemetry names it"


async def test_a_call_whole_and_streamed(rig: Rig) -> None:
    body = asked(CALL, tools=[READ])
    whole = (await post(rig, body)).json()
    (call,) = whole["content"]
    assert (call["type"], call["name"], call["input"]) == ("tool_use", "read_file", {"path": "sum.py"})
    assert whole["stop_reason"] == "tool_use"
    said = events((await post(rig, {**body, "stream": True})).text)
    assert [name for name, _ in said] == [name["type"] for _, name in said] == [
        "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
        "message_stop",
    ]  # fmt: skip
    assert json.loads(said[2][1]["delta"]["partial_json"]) == {"path": "sum.py"}
    begun, ended = said[0][1]["message"]["usage"], said[4][1]["usage"]
    assert begun["input_tokens"] == ended["input_tokens"] == whole["usage"]["input_tokens"]
    assert ended["output_tokens"] == whole["usage"]["output_tokens"]
    for generation in rig.generations():
        assert [call.name for call in generation.tool_calls] == ["read_file"]


async def test_text_around_a_call_is_a_block_before_and_one_behind(rig: Rig) -> None:
    call = '<tool_call>{"name": "read_file", "arguments": {"path": "a"}}</tool_call>'
    body = asked(f"stub:say before {call} after", tools=[READ], stream=True)
    said = events((await post(rig, body)).text)
    started = [(e["index"], e["content_block"]["type"]) for name, e in said if name == "content_block_start"]
    assert started == [(0, "text"), (1, "tool_use"), (2, "text")]
    told = {n: "" for n, _ in started}
    for name, event in said:
        if name == "content_block_delta":
            told[event["index"]] += event["delta"].get("text", "")
    assert told == {0: "before ", 1: "", 2: " after"}
    assert [e["index"] for name, e in said if name == "content_block_stop"] == [0, 1, 2]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("written", "told"),
    [
        (
            '{"n": 123456789012345678901234567890, "n2": 1.50}',
            '{"n": 123456789012345678901234567890, "n2": 1.50}',
        ),
        ("[1]", "{}"),
        ('"{}"', "{}"),
        ('{"a": ' + "[" * 300 + "]" * 300 + "}", "{}"),
    ],
    ids=["exact", "list", "string", "deep"],
)
async def test_what_arguments_are_and_who_sends_them_back_stays_in_the_session(
    rig: Rig, written: str, told: str, stream: bool
) -> None:
    """An object as the model wrote it; what a body cannot bring back as one is told as one of nothing."""
    body = asked(f"stub:call read_file {written}", tools=[READ], stream=stream, max_tokens=5000)
    answer = await post(rig, body)
    if stream:
        found = {name: event for name, event in events(answer.text) if name.startswith("content_block")}
        call = found["content_block_start"]["content_block"]
        assert found["content_block_delta"]["delta"]["partial_json"] == told
    else:
        (call,) = answer.json()["content"]
        assert f'"input":{told}' in answer.text
    rig.stub.words = "stub:say done"
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "no"}
    sent = [{**call, "input": json.loads(told)}]
    await post(rig, asked(body["messages"][0]["content"], sent, [result], tools=[READ]))
    one, two = rig.generations()
    assert (two.session, two.episode, two.ordinal) == (one.session, one.episode, 1)


async def test_a_conversation_with_tools_is_one_episode_and_the_next_request_another(rig: Rig) -> None:
    """As clients send answers back: with thoughts, and results beside what the client says itself."""
    first = (await post(rig, asked(CALL, tools=[READ]))).json()
    result = {"type": "tool_result", "tool_use_id": first["content"][0]["id"], "content": "a - b"}
    note = {"type": "text", "text": "<system-reminder>\nThe todo list is empty.\n</system-reminder>"}
    rig.stub.words = "stub:say done"
    second = (await post(rig, asked(CALL, first["content"], [result, note], tools=[READ]))).json()
    assert second["content"] == [{"type": "text", "text": "done"}]
    thought = [{"type": "thinking", "thinking": "hm", "signature": "x"}, *second["content"]]
    body = asked(CALL, first["content"], [result, note], thought, "still wrong", tools=[READ])
    await post(rig, body)
    one, two, three = rig.generations()
    assert one.session == two.session == three.session
    assert (one.episode, two.ordinal, two.episode) == (two.episode, 1, one.episode)
    assert (three.episode, three.ordinal) == (f"{one.session}/2", 0)
    sent = rig.stub.requests[-1]["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "user", "assistant", "user"]
    assert sent[2] == {"role": "tool", "tool_call_id": result["tool_use_id"], "content": "a - b"}
    assert "hm" not in json.dumps(sent)


async def test_a_conversation_may_go_on_in_the_other_api(rig: Rig) -> None:
    """A session is told by what was said, not by how."""
    first = (await post(rig, HELLO)).json()
    talk = [
        {"role": "user", "content": "stub:say hello"},
        {"role": "assistant", "content": first["content"][0]["text"]},
        {"role": "user", "content": "stub:say again"},
    ]
    await rig.chat("", messages=talk)
    one, two = rig.generations()
    assert (two.session, two.episode) == (one.session, f"{one.session}/2")


def conversation(**body: Any) -> dict[str, Any]:
    return messages.read({"model": "rtrl", "max_tokens": 9, **body})[0]


def test_what_the_system_says_first_is_one_message_without_its_makers_signature() -> None:
    system = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=1a2b3;"},
        {"type": "text", "text": "You edit files.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Be brief."},
    ]
    late = [{"type": "text", "text": "# Environment"}]
    talk = [
        {"role": "system", "content": "Use tabs."},
        {"role": "user", "content": "hi"},
        {"role": "system", "content": late},
    ]
    assert conversation(system=system, messages=talk)["messages"] == [
        {"role": "system", "content": "You edit files.\n\nBe brief.\n\nUse tabs."},
        {"role": "user", "content": "hi"},
        {"role": "user", "content": "<system-reminder>\n# Environment\n</system-reminder>"},
    ]


@pytest.mark.parametrize("system", [str, lambda text: [{"type": "text", "text": text}]])
def test_only_the_line_that_signs_is_left_out(system: Any) -> None:
    signed = system("x-anthropic-billing-header: cch=1a2b3;\nYou edit files.\nBe brief.")
    said = conversation(system=signed, messages=[{"role": "user", "content": "hi"}])["messages"]
    assert said[0] == {"role": "system", "content": "You edit files.\nBe brief."}


@pytest.mark.parametrize(
    "late",
    [
        "Notes come in <system-reminder>such</system-reminder> tags. Be brief.",
        "<system-reminder>\na\n</system-reminder>\nBe brief.",
        "<system-reminder>\na\n</system-reminder>\n<system-reminder>\nb\n</system-reminder>",
    ],
)
def test_whatever_the_system_says_later_is_no_request(late: str) -> None:
    talk = [{"role": "user", "content": "hi"}, {"role": "system", "content": late}]
    said = conversation(messages=talk)["messages"]
    assert (len(said), asked_of(said).requests) == (2, 1)


def test_what_was_thought_or_done_elsewhere_is_not_told() -> None:
    kinds = ("thinking", "fallback", "server_tool_use", "web_search_tool_result", "mcp_tool_listing")
    answer = [{"type": kind} for kind in kinds] + [{"type": "text", "text": "a"}]
    effort = {"role": "system", "output_config": {"effort": "low"}}
    talk = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": answer}, effort]
    said = conversation(messages=[*talk, {"role": "user", "content": "go on"}])["messages"]
    assert [message["content"] for message in said] == ["hi", "a", "go on"]


def test_parts_of_what_people_and_tools_show() -> None:
    png = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    image, linked = {"type": "image", "source": png}, {"type": "url", "url": "https://a/b.png"}
    shown = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "see"}, image]}
    lines = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    plain = {"type": "tool_result", "tool_use_id": "t2", "content": lines, "is_error": True}
    document = {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "its text"},
    }
    said = [shown, plain, {"type": "tool_result", "tool_use_id": "t3"}, {"type": "image", "source": linked}]
    talk = [{"role": "user", "content": [*said, document]}]
    url = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    assert conversation(messages=talk)["messages"] == [
        {"role": "tool", "tool_call_id": "t1", "content": [{"type": "text", "text": "see"}, url]},
        {"role": "tool", "tool_call_id": "t2", "content": "a\nb"},
        {"role": "tool", "tool_call_id": "t3", "content": ""},
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": "https://a/b.png"}},
                {"type": "text", "text": "its text"},
            ],
        },
    ]


def test_tools_that_are_loaded_later_are_told_once_they_are_named() -> None:
    tools = [
        READ,
        {**READ, "name": "late", "defer_loading": True},
        {**READ, "name": "never", "defer_loading": True},
    ]
    makers = {"type": "web_search_20250305", "name": "web_search"}
    found = [
        {"type": "tool_reference", "tool_name": "late"},
        {"type": "tool_reference", "tool_name": "nothing"},
    ]
    result = {"type": "tool_result", "tool_use_id": "t", "content": found}
    added = {
        "type": "tool_addition",
        "tool": {"type": "tool_definition", "definition": {**READ, "name": "new"}},
    }
    gone = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "read_file"}}
    talk: list[Any] = [{"role": "user", "content": "hi"}]

    def names() -> list[str]:
        declared = conversation(messages=talk, tools=[*tools, makers])["tools"]
        return [tool["function"]["name"] for tool in declared]

    assert names() == ["read_file"]
    talk += [{"role": "assistant", "content": "."}, {"role": "user", "content": [result]}]
    assert names() == ["read_file", "late"]
    talk.append({"role": "system", "content": [added, gone]})
    assert names() == ["late", "new"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "audio"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"stop_sequences": [""]}, "stop_sequences[0]"),
        ({"system": [{"type": "text", "text": None}]}, "system[0].text"),
        ({"tools": [{"name": "a"}]}, "tools[0]"),
        ({"tools": [READ, READ]}, "tools[1].name"),
        ({"tool_choice": {"type": "tool", "name": "a"}}, "tool_choice"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"temperature": 3}, "temperature"),
        ({"thread": {"type": "continue", "previous_message_id": "gen_1"}}, "thread"),
        ({"compaction": {"type": "summarize"}}, "compaction"),
        (asked("a", "b"), "messages"),
        (asked("a", [{"type": "tool_use", "input": "z"}], "b"), "messages[1].content[0].input"),
    ],
)  # fmt: skip
async def test_what_is_wrong_is_told_as_this_api_tells_it(rig: Rig, body: dict[str, Any], param: str) -> None:
    answer = await post(rig, HELLO | body)
    told = answer.json()
    assert (answer.status_code, told["type"]) == (400, "error")
    assert (told["error"]["type"], told["error"]["param"]) == ("invalid_request_error", param)
    assert told["request_id"] == answer.headers["x-request-id"]
    assert "robot" not in told["error"]["message"], "nothing of the content"
    assert not rig.generations()


async def test_errors_have_this_apis_types(rig: Rig) -> None:
    none = await rig.http.post("/v1/messages", json=HELLO, headers={"authorization": "Bearer no"})
    assert (none.status_code, none.json()["error"]["type"]) == (401, "authentication_error")
    other = await post(rig, HELLO | {"model": "claude"})
    assert (other.status_code, other.json()["error"]["type"]) == (404, "not_found_error")
    long = await post(rig, asked("stub:overflow"))
    assert long.json()["error"]["message"].startswith("prompt is too long: ")
    assert (await post(rig, asked("stub:status=500"))).json()["error"]["type"] == "api_error"
    broken = events((await post(rig, asked("stub:die=2", stream=True))).text)
    assert (broken[-1][0], broken[-1][1]["error"]["code"]) == ("error", "engine_lost")


async def test_either_header_may_hold_the_key(rig: Rig) -> None:
    headers = {"authorization": "", "x-api-key": rig.key}
    assert (await rig.http.post("/v1/messages", json=HELLO, headers=headers)).status_code == 200
    headers = {"authorization": "", "x-api-key": "rtrl-no"}
    assert (await rig.http.post("/v1/messages", json=HELLO, headers=headers)).status_code == 401


async def test_tokens_are_counted_and_nothing_is_made(rig: Rig) -> None:
    asks = asked("stub:say hello", tools=[READ], system="Edit.")
    del asks["max_tokens"]
    counted = await post(rig, asks, "/v1/messages/count_tokens")
    answer = (await post(rig, {**asks, "max_tokens": 9})).json()
    assert counted.json() == {"input_tokens": answer["usage"]["input_tokens"]}
    assert len(rig.generations()) == 1


async def test_a_text_that_no_engine_takes_is_not_counted(tmp_path: Any) -> None:
    """An engine counts as long as there is text, 15 MB for a minute, and answers nobody meanwhile."""
    picture = {"type": "image", "source": {"type": "url", "url": "data:" + "A" * 2000}}
    async with running(tmp_path, context=20) as rig:
        for text, status in (("x" * 200, 200), ("x" * 320, 400), ([picture], 200)):
            counted = await post(rig, asked(text), "/v1/messages/count_tokens")
            assert counted.status_code == status
            long = counted.json().get("error", {"message": "prompt is too long: "})
            assert long["message"].startswith("prompt is too long: ")


async def test_counting_says_nothing_of_whether_the_engine_answers_or_how_soon(tmp_path: Any) -> None:
    """It works where nothing is generated, and may be missing where all is well."""
    async with running(tmp_path, breaker={"min_requests": 2}) as rig:
        breaker, before = rig.served.health.breaker, rig.gateway.admission._mean_s
        for up, status in ((True, 200), (False, 503)):
            rig.stub.up = up
            counts = [await post(rig, HELLO, "/v1/messages/count_tokens") for _ in range(4)]
            assert {counted.status_code for counted in counts} == {status}
            assert (breaker.state, breaker.counted()) == ("closed", (0, 0))
        assert rig.gateway.admission._mean_s == before
        rig.served.engine = "starting"
        codes = [await post(rig, HELLO, f"/v1/messages{path}") for path in ("", "/count_tokens")]
        assert {answer.json()["error"]["code"] for answer in codes} == {"engine_starting"}


async def test_an_answer_may_be_bound_to_a_schema(rig: Rig) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    await post(rig, HELLO | {"output_config": {"format": {"type": "json_schema", "schema": schema}}})
    assert rig.stub.requests[-1]["structured_outputs"] == {"structural_tag": structural_tag(None, {}, schema)}
    (generation,) = rig.generations()
    bound = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    assert json.loads(generation.sampling.grammar) == {"response_format": bound}


async def test_what_does_not_count_here_is_passed_over(rig: Rig) -> None:
    """What Claude Code 2.1.332 sends beside its conversation, and fields of tomorrow."""
    more = {
        "metadata": {"user_id": '{"device_id":"d","account_uuid":"","session_id":"s"}'},
        "thinking": {"type": "adaptive", "display": "omitted"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "service_tier": "auto",
        "a_field_of_tomorrow": 1,
    }
    assert (await post(rig, HELLO | more)).status_code == 200
    (generation,) = rig.generations()
    assert generation.sampling.unknown == ()
    assert set(rig.stub.requests[-1]) & set(more) == set()


def test_a_body_that_is_no_request_is_refused() -> None:
    with pytest.raises(ApiError) as told:
        messages.read({"messages": "hi", "max_tokens": 1})
    assert told.value.param == "messages"


async def test_the_makers_own_client(tmp_path: Any) -> None:
    """The `anthropic` package, whose types check what it gets."""
    import anthropic  # half a second

    async with (
        running(tmp_path) as rig,
        anthropic.AsyncAnthropic(base_url=rig.url, api_key=rig.key) as client,
    ):
        tools: Any = [READ]
        whole = await client.messages.create(**HELLO)  # type: ignore[call-overload]
        assert (
            anthropic.types.Message.model_validate(whole.model_dump(), strict=True).content[0].text == "hello"
        )
        async with client.messages.stream(**asked(CALL, tools=tools)) as stream:
            final = await stream.get_final_message()
        assert (final.stop_reason, final.content[0].type, final.content[0].input) == (
            "tool_use", "tool_use", {"path": "sum.py"},
        )  # fmt: skip
        counted = await client.messages.count_tokens(model="rtrl", messages=HELLO["messages"])  # type: ignore[arg-type]
        assert counted.input_tokens == whole.usage.input_tokens
        with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
            await client.messages.create(**(HELLO | {"max_tokens": 0}))  # type: ignore[call-overload]

        @anthropic.beta_async_tool
        async def read_file(path: str) -> str:
            """Reads a file."""
            return f"text of {path}"

        runner = client.beta.messages.tool_runner(
            model="rtrl", max_tokens=99, messages=asked(CALL)["messages"], tools=[read_file], max_iterations=2
        )
        assert [answer.stop_reason async for answer in runner] == ["tool_use"] * 2
        told = [message["role"] for message in rig.stub.requests[-1]["messages"]]
        assert told == ["user", "assistant", "tool"], "it goes on without a thread"
