"""OpenAI's Responses API in front of the same generation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions.spoken import parts
from stages.gateway.dialects import responses
from stages.gateway.dialects.all import RESPONSES
from stages.gateway.errors import ApiError
from stages.gateway.refusals import refused
from tests.stages.gateway.dialects.test_messages import events
from tests.stages.gateway.rig import Rig, follow_ups, running

HELLO: dict[str, Any] = {"model": "rtrl", "input": "stub:say hello"}
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = {
    "type": "function",
    "name": "read_file",
    "description": "Reads.",
    "strict": False,
    "parameters": PARAMETERS,
}
PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Patches.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: LINE"},
}
SPACE = {
    "type": "namespace",
    "name": "agents",
    "description": "Others.",
    "tools": [{**READ, "name": "spawn"}],
}


def said(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


async def post(rig: Rig, body: Any) -> Any:
    return await rig.http.post("/v1/responses", json=body)


async def test_an_answer_is_a_response_and_a_generation(rig: Rig) -> None:
    told = (await post(rig, HELLO)).json()
    (generation,) = rig.generations()
    assert (told["id"], told["object"], told["status"]) == (generation.id, "response", "completed")
    (message,) = told["output"]
    assert (message["type"], message["role"]) == ("message", "assistant")
    assert [part["text"] for part in message["content"]] == ["hello"]
    assert (told["usage"]["input_tokens"], told["usage"]["output_tokens"]) == (32, 6)
    assert (generation.api, generation.defect) == ("chat", "")
    assert bytes(rig.payload(generation.id)[1].output[:-1].tolist()) == b"hello"


async def test_a_stream_ends_with_the_whole_answer(rig: Rig) -> None:
    call = '<tool_call>{"name": "read_file", "arguments": {"path": "a"}}</tool_call>'
    body = {"model": "rtrl", "input": f"stub:say before {call} after", "tools": [READ], "stream": True}
    found = events((await post(rig, body)).text)
    assert [event["sequence_number"] for _, event in found] == list(range(len(found)))
    names = [name for name, _ in found if name != "response.output_text.delta"]
    message = [
        "output_item.added",
        "content_part.added",
        "output_text.done",
        "content_part.done",
        "output_item.done",
    ]
    called = [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    expected = ["created", "in_progress", *message, *called, *message, "completed"]
    assert names == [f"response.{name}" for name in expected]
    last = found[-1][1]["response"]
    done = [event["item"] for name, event in found if name == "response.output_item.done"]
    assert last["output"] == done
    assert [item["type"] for item in done] == ["message", "function_call", "message"]
    assert [event["output_index"] for name, event in found if name == "response.output_item.done"] == [
        0,
        1,
        2,
    ]
    deltas = {0: "", 2: ""}
    for name, event in found:
        if name == "response.output_text.delta":
            deltas[event["output_index"]] += event["delta"]
            assert event["item_id"] == done[event["output_index"]]["id"]
    assert deltas == {0: "before ", 2: " after"} == {n: done[n]["content"][0]["text"] for n in (0, 2)}
    assert json.loads(done[1]["arguments"]) == {"path": "a"}
    assert last["usage"]["output_tokens"] == rig.generations()[0].output_tokens


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_without_room_is_incomplete(rig: Rig, stream: bool) -> None:
    answer = await post(rig, {**HELLO, "max_output_tokens": 3, "stream": stream})
    if stream:
        name, event = events(answer.text)[-1]
        assert name == "response.incomplete"
        told = event["response"]
    else:
        told = answer.json()
    assert (told["status"], told["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert told["output"][0]["content"][0]["text"] == "hel"


async def test_a_conversation_with_tools_is_one_episode_and_the_next_request_another(rig: Rig) -> None:
    call = 'stub:call read_file {"path": "sum.py"}'
    opening = [said("developer", "You edit."), said("user", "<environment_context>x</environment_context>")]
    talk = [*opening, said("user", call)]
    first = (await post(rig, {"model": "rtrl", "input": talk, "tools": [READ]})).json()
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "hm"}
    result = {"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "a - b"}
    rig.stub.words = "stub:say done"
    talk += [thought, *first["output"], result]
    second = (await post(rig, {"model": "rtrl", "input": talk, "tools": [READ], "stream": True})).text
    talk += [*events(second)[-1][1]["response"]["output"], said("user", "still wrong")]
    await post(rig, {"model": "rtrl", "input": talk, "tools": [READ]})
    one, two, three = rig.generations()
    assert one.session == two.session == three.session
    assert (two.ordinal, two.episode) == (1, one.episode)
    assert three.episode != one.episode
    sent = rig.stub.requests[-1]["messages"]
    roles = ["system", "user", "user", "assistant", "tool", "assistant", "user"]
    assert [message["role"] for message in sent] == roles
    assert [call["function"]["name"] for call in sent[3]["tool_calls"]] == ["read_file"]


THREAD = "019a0000-0000-7000-8000-00000000abcd"


async def test_a_thread_of_codex_is_a_session(tmp_path: Path) -> None:
    """What was said after a stopped first answer, and after a summary, followed no answer; an episode was cut
    in two where it was summed up, and the second part's request was the summary."""
    stopped = [
        said("user", "mend a.py"),
        said("user", "<turn_aborted>\nThe user interrupted.\n</turn_aborted>"),
    ]
    asked = [*stopped, said("user", "only b.py, I said")]
    summary = said("user", "Another language model started to solve this problem and produced a summary")
    letter = {"type": "agent_message", "author": "/root/kid", "recipient": "/root", "content": []}
    letter["content"] = [
        {"type": "input_text", "text": "Message Type: FINAL_ANSWER\nTask name: /root\nready"}
    ]
    call = 'stub:call read_file {"path": "a"}'
    async with running(tmp_path) as rig:

        async def talk(words: str, items: list[Any]) -> list[Any]:
            rig.stub.words = words
            body = {
                "model": "rtrl",
                "input": items,
                "tools": [READ],
                "client_metadata": {"thread_id": THREAD},
            }
            given = list((await post(rig, body)).json()["output"])
            output = {"type": "function_call_output", "call_id": given[0].get("call_id"), "output": "x"}
            return [*items, *given, *([output] if "call_id" in given[0] else [])]

        await talk("stub:say I shall", stopped[:1])
        await talk("stub:say A summary.", await talk(call, await talk(call, asked)))
        more = await talk(call, [*asked, summary])
        done = await talk("stub:say Done.", [*more, letter])
        await talk("stub:say Oh.", [*done, said("user", "still wrong")])
        first, *chain, last = rig.generations()
        request = rig.payload(chain[3].id)[0].request
        assert [(part.stopped, part.text) for part in parts(request)] == [
            ("answer", stopped[1]["content"][0]["text"]),
            ("", "only b.py, I said"),
        ], "distill knows that the first answer was stopped"
    assert len({one.session for one in (first, *chain, last)}) == 1
    assert [(one.episode, one.ordinal) for one in chain] == [(chain[0].episode, n) for n in range(5)]
    assert follow_ups(tmp_path) == {first.id: chain[0].id, chain[0].id: last.id, last.id: ""}


@pytest.mark.parametrize("told", [{"thread_id": "main"}, {"thread_id": 7}, [THREAD], None])
def test_what_is_no_thread_names_no_session(told: Any) -> None:
    assert "metadata" not in responses.read({**HELLO, "client_metadata": told})[0]
    named = {"client_metadata": {"thread_id": THREAD}, "metadata": {"rtrl_session": "mine"}}
    assert responses.read({**HELLO, **named})[0]["metadata"] == {"rtrl_session": "mine"}


async def test_an_answer_in_pieces_is_sent_back_as_one(rig: Rig) -> None:
    call = '<tool_call>{"name": "read_file", "arguments": {"path": "a"}}</tool_call>'
    talk = [said("user", f"stub:say before {call} after")]
    body = {"model": "rtrl", "input": talk, "tools": [READ], "stream": True}
    output = events((await post(rig, body)).text)[-1][1]["response"]["output"]
    result = {"type": "function_call_output", "call_id": output[1]["call_id"], "output": "b"}
    rig.stub.words = "stub:say done"
    await post(rig, {**body, "input": [*talk, *output, result]})
    one, two = rig.generations()
    assert (two.session, two.episode, two.ordinal) == (one.session, one.episode, 1)
    assert rig.stub.requests[-1]["messages"][1]["content"] == "before  after"


@pytest.mark.parametrize("stream", [False, True])
async def test_tools_that_take_one_text(rig: Rig, stream: bool) -> None:
    call = 'stub:call apply_patch {"input": "*** Begin Patch"}'
    body = {"model": "rtrl", "input": call, "tools": [PATCH], "stream": stream}
    answer = await post(rig, body)
    told = events(answer.text)[-1][1]["response"] if stream else answer.json()
    (item,) = told["output"]
    assert (item["type"], item["name"], item["input"]) == (
        "custom_tool_call",
        "apply_patch",
        "*** Begin Patch",
    )
    function = rig.stub.requests[-1]["tools"][0]["function"]
    assert (function["name"], function["description"]) == ("apply_patch", "Patches.\n\nstart: LINE")
    assert [call.error for call in rig.generations()[0].tool_calls] == [""]
    output = {"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "done"}
    rig.stub.words = "stub:say ok"
    await post(rig, {**body, "input": [said("user", call), item, output], "stream": False})
    sent = rig.stub.requests[-1]["messages"]
    assert json.loads(sent[1]["tool_calls"][0]["function"]["arguments"]) == {"input": "*** Begin Patch"}
    one, two = rig.generations()
    assert (two.episode, two.ordinal) == (one.episode, 1)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ('{"input": "{}"}', "{}"),
        ('{"patch": "x", "n": 1.0}', '{"patch": "x", "n": 1.0}'),
        ('{"input": "x", "n": 1}', "x"),
        ('"x"', '"x"'),
        ('{"input": 1}', '{"input": 1}'),
    ],
)
async def test_who_sends_a_call_of_such_a_tool_back_stays_in_the_session(
    rig: Rig, written: str, told: str
) -> None:
    body = {"model": "rtrl", "input": f"stub:call apply_patch {written}", "tools": [PATCH]}
    (item,) = (await post(rig, body)).json()["output"]
    assert item["input"] == told
    output = {"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "no"}
    rig.stub.words = "stub:say ok"
    await post(rig, {**body, "input": [said("user", body["input"]), item, output]})
    one, two = rig.generations()
    assert (two.session, two.episode, two.ordinal) == (one.session, one.episode, 1)


@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [("spawn", '{"path": "a"}', "function_call"), ("apply_patch", '{"input": "p"}', "custom_tool_call")],
)
async def test_tools_of_a_namespace_come_back_under_it(
    rig: Rig, name: str, arguments: str, kind: str
) -> None:
    space = {**SPACE, "tools": [*SPACE["tools"], PATCH]}
    body = {"model": "rtrl", "input": f"stub:call agents__{name} {arguments}", "tools": [space]}
    (item,) = (await post(rig, body)).json()["output"]
    assert (item["type"], item["namespace"], item["name"]) == (kind, "agents", name)
    output = {"type": f"{kind}_output", "call_id": item["call_id"], "output": "done"}
    rig.stub.words = "stub:say ok"
    await post(rig, {**body, "input": [said("user", body["input"]), item, output]})
    one, two = rig.generations()
    assert (two.session, two.ordinal) == (one.session, 1)
    assert [call.error for call in one.tool_calls] == [""]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_of_nothing_is_a_message_all_the_same(rig: Rig, stream: bool) -> None:
    """Without one what follows it would begin another conversation."""
    body = {"model": "rtrl", "input": [said("user", "stub:say ")], "stream": stream}
    answer = await post(rig, body)
    told = events(answer.text)[-1][1]["response"] if stream else answer.json()
    assert [part["text"] for item in told["output"] for part in item["content"]] == [""]
    await post(rig, {**body, "input": [*body["input"], *told["output"], said("user", "go on")]})
    one, two = rig.generations()
    assert (two.session, two.episode) == (one.session, f"{one.session}/2")


def test_the_makers_own_tools_are_left_out() -> None:
    kinds = (
        "reasoning",
        "web_search_call",
        "image_generation_call",
        "mcp_list_tools",
        "mcp_approval_response",
    )
    done = [{"type": kind, "id": "a"} for kind in kinds]
    body, _ = responses.read({**HELLO, "input": [said("user", "hi"), *done]})
    assert [message["content"] for message in body["messages"]] == ["hi"]
    tools = [READ, {"type": "web_search", "external_web_access": True}, {"type": "image_generation"}]
    body, _ = responses.read({**HELLO, "tools": tools})
    assert [tool["function"]["name"] for tool in body["tools"]] == ["read_file"]


def test_tools_among_the_messages() -> None:
    again = {**READ, "description": "Reads better."}
    added = {"type": "additional_tools", "role": "developer", "tools": [SPACE, again]}
    body, _ = responses.read({**HELLO, "tools": [READ], "input": [added, said("user", "hi")]})
    told = [(tool["function"]["name"], tool["function"]["description"]) for tool in body["tools"]]
    assert told == [("read_file", "Reads better."), ("agents__spawn", "Reads.")]
    assert body["messages"] == [{"role": "user", "content": "hi"}]


def test_two_tools_of_one_name_are_refused_and_one_that_is_declared_again_is_not() -> None:
    """The model was told of the second alone, without a word."""
    twice = [READ, {**READ, "description": "Another."}]
    with pytest.raises(ApiError) as told:
        responses.read({**HELLO, "tools": twice})
    assert told.value.param == "tools[1].name"
    added = {"type": "additional_tools", "tools": twice}
    body, _ = responses.read({**HELLO, "tools": [READ], "input": [added, said("user", "hi")]})
    assert [tool["function"]["description"] for tool in body["tools"]] == ["Another."]


def test_fields_that_have_other_names_in_chat() -> None:
    form = {"type": "json_schema", "name": "a", "schema": {"type": "object"}, "strict": True}
    more = {
        "instructions": "Edit.",
        "text": {"format": form},
        "reasoning": {"effort": "low", "summary": "auto"},
    }
    body, _ = responses.read({**HELLO, **more, "temperature": 0.5, "max_output_tokens": 7})
    assert body["messages"][0] == {"role": "system", "content": "Edit."}
    schema = {"name": "a", "schema": {"type": "object"}, "strict": True}
    assert body["response_format"] == {"type": "json_schema", "json_schema": schema}
    assert (body["temperature"], body["max_tokens"], body["reasoning_effort"]) == (0.5, 7, "low")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": [7]}, "input[0]"),
        ({"input": [{"type": "message", "role": "robot", "content": "a"}]}, "input[0].role"),
        ({"input": [{"type": "message", "role": "user", "content": 7}]}, "input[0].content"),
        ({"input": [{"type": "item_reference", "id": "a"}]}, "input[0]"),
        ({"input": [{"type": "compaction", "id": "a"}]}, "input[0]"),
        ({"input": [{"type": "function_call", "name": "a", "call_id": "b"}]}, "input[0].arguments"),
        ({"input": [{"type": "function_call_output", "call_id": "b"}]}, "input[0].output"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [SPACE, {**READ, "name": "agents__spawn"}]}, "tools[1].name"),
        ({"tools": [READ, {**PATCH, "name": "read_file"}]}, "tools[1].name"),
        ({"tools": [{**SPACE, "name": name} for name in ("agents", "agents__")]}, "tools[1].tools[0].name"),
        ({"text": {"format": "json"}}, "text.format"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format"),
        ({"top_p": 7}, "top_p"),
    ],
)
async def test_what_is_wrong_is_told(rig: Rig, body: dict[str, Any], param: str | None) -> None:
    answer = await post(rig, HELLO | body)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert not rig.generations()


@pytest.mark.parametrize("item", [{"type": "item_reference", "id": "a"}, {"id": "a"}])
def test_who_refers_to_an_item_is_told_how_to_send_it(item: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        responses.read({**HELLO, "input": [item]})
    assert '"store": false' in refused.value.message


def test_what_the_engine_says_of_messages_is_told_of_the_input() -> None:
    error = refused(400, b'{"error": {"message": "/srv/m is not a multimodal model"}}')
    RESPONSES.tell(error)
    told = "the model takes text only, and there is something else in input"
    assert (error.param, error.message) == ("input", told)


async def test_a_stream_that_breaks_off_has_failed(rig: Rig) -> None:
    name, last = events((await post(rig, {**HELLO, "input": "stub:die=2", "stream": True})).text)[-1]
    assert (name, last["response"]["status"]) == ("response.failed", "failed")
    error = last["response"]["error"]
    assert (error["code"], error["type"]) == ("server_error", "engine_lost")  # one of the API's, and ours


async def test_the_makers_own_client(tmp_path: Any) -> None:
    """The `openai` package, whose types check what it gets."""
    import openai  # a second and a half
    from openai.types.responses import Response

    async with (
        running(tmp_path) as rig,
        openai.AsyncOpenAI(base_url=f"{rig.url}/v1", api_key=rig.key) as client,
    ):
        whole = await client.responses.create(**HELLO)
        assert whole.output_text == "hello"
        Response.model_validate(whole.model_dump(), strict=False)
        tools: Any = [READ]
        call = 'stub:call read_file {"path": "a"}'
        async with client.responses.stream(model="rtrl", input=call, tools=tools) as stream:
            final = await stream.get_final_response()
        assert [(item.type, item.name) for item in final.output] == [("function_call", "read_file")]  # type: ignore[union-attr]
        with pytest.raises(openai.BadRequestError, match="nothing is kept"):
            await client.responses.create(**HELLO, previous_response_id="resp_1")
