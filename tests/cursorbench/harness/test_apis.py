"""Other APIs' requests and answers as the record has them, by hand and by chance."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cursorbench.harness import apis
from cursorbench.harness.budget import Usage
from cursorbench.harness.completion import GENERATION_HEADER
from cursorbench.harness.passing import passed

STREAM = {"content-type": "text/event-stream; charset=utf-8", GENERATION_HEADER: "gen_1"}
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}


def call(id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(name: str, parameters: Any, description: str = "") -> dict[str, Any]:
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def stream(*events: dict[str, Any]) -> bytes:
    told = (f"event: {one['type']}\ndata: {json.dumps(one, ensure_ascii=False)}\n\n" for one in events)
    return "".join(told).encode()


def test_a_request_of_messages() -> None:
    used = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "a.py"}]}
    thought = {"type": "thinking", "thinking": "hm", "signature": "g"}
    later = {"name": "Later", "description": "d", "input_schema": SCHEMA}
    added = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": later}}
    body = {
        "system": [{"type": "text", "text": "be"}, {"type": "text", "text": "good"}],
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [thought, used]},
            {"role": "user", "content": [result, {"type": "text", "text": "and now?"}]},
            {"role": "system", "content": [added]},
        ],
        "tools": [
            {"name": "Bash", "input_schema": SCHEMA},
            {"type": "web_search_20250305", "name": "web_search"},  # runs at its maker
        ],
    }
    assert apis.MESSAGES.asked(body) == {
        "messages": [
            {"role": "system", "content": "be\ngood"},
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "content": "",
                "reasoning_content": "hm",
                "tool_calls": [call("t1", "Bash", '{"command":"ls"}')],
            },
            {"role": "tool", "tool_call_id": "t1", "content": "a.py"},
            {"role": "user", "content": "and now?"},
        ],
        "tools": [tool("Bash", SCHEMA), tool("Later", SCHEMA, "d")],
    }


def test_an_answer_of_messages_whole_and_streamed_is_the_same() -> None:
    used = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "l\u2028s"}}
    content = [{"type": "text", "text": "look"}, used]
    usage = {"input_tokens": 3, "cache_read_input_tokens": 40, "output_tokens": 7}
    head = {"type": "message", "role": "assistant", "id": "gen_1"}
    whole = {**head, "content": content, "stop_reason": "tool_use", "usage": usage}
    begun = {**head, "content": [], "usage": {**usage, "output_tokens": 0}}

    def delta(index: int, **told: str) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": index, "delta": told}

    events = [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        delta(0, type="text_delta", text="lo"),
        delta(0, type="text_delta", text="ok"),
        {"type": "content_block_start", "index": 1, "content_block": {**used, "input": {}}},
        delta(1, type="input_json_delta", partial_json='{"command":'),
        delta(1, type="input_json_delta", partial_json='"l\u2028s"}'),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}},
        {"type": "message_stop"},
    ]
    at_once = apis.MESSAGES.read(json.dumps(whole).encode(), {}, 2.0)
    streamed = apis.MESSAGES.read(stream(*events), STREAM, 2.0)
    assert at_once == streamed
    assert (at_once.generation_id, at_once.finish_reason, at_once.usage, at_once.seconds) == (
        "gen_1",
        "tool_calls",
        Usage(43, 7),
        2.0,
    )
    assert at_once.message["content"] == "look"
    assert at_once.message["tool_calls"] == [call("t1", "Bash", '{"command":"l\u2028s"}')]
    with pytest.raises(ValueError, match="broke off"):
        apis.MESSAGES.read(stream(*events[:-1]), STREAM, 2.0)


def test_a_request_of_responses() -> None:
    body = {
        "instructions": "be",
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "good"}]},
            {"role": "user", "content": "go"},
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}], "summary": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "look"}]},
            {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** Begin"},
            {"type": "function_call", "call_id": "c2", "name": "say", "namespace": "mcp__x"},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
            {"type": "function_call_output", "call_id": "c2", "output": [{"type": "text", "text": "hi"}]},
            {"type": "additional_tools", "tools": [{"type": "function", "name": "more"}]},
        ],
        "tools": [
            {"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}},
            {"type": "namespace", "name": "mcp__x", "tools": [{"type": "function", "name": "say"}]},
            {"type": "web_search"},
        ],
    }
    given = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    calls = [call("c1", "apply_patch", '{"input": "*** Begin"}'), call("c2", "mcp__x__say", "")]
    assert apis.RESPONSES.asked(body) == {
        "messages": [
            {"role": "system", "content": "be"},
            {"role": "system", "content": "good"},
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": "look", "reasoning_content": "hm", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c1", "content": "done"},
            {"role": "tool", "tool_call_id": "c2", "content": "hi"},
        ],
        "tools": [
            tool("apply_patch", given),
            tool("mcp__x__say", {"type": "object"}),
            tool("more", {"type": "object"}),
        ],
    }
    assert apis.RESPONSES.asked({"input": "go"})["messages"] == [{"role": "user", "content": "go"}]


def test_an_answer_of_responses_whole_and_streamed_is_the_same() -> None:
    thought = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}], "summary": []}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "look"}]}
    patch = {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** Begin"}
    usage = {"input_tokens": 3, "output_tokens": 7}
    whole = {"id": "gen_1", "status": "completed", "output": [thought, said, patch], "usage": usage}
    at_once = apis.RESPONSES.read(json.dumps(whole).encode(), {}, 2.0)
    begun = {"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}}
    events = [begun, {"type": "response.completed", "response": whole}]
    assert at_once == apis.RESPONSES.read(stream(*events), STREAM, 2.0)
    assert (at_once.generation_id, at_once.finish_reason) == ("gen_1", "tool_calls")
    assert at_once.usage == Usage(3, 7)
    assert at_once.message == {
        "role": "assistant",
        "content": "look",
        "reasoning_content": "hm",
        "tool_calls": [call("c1", "apply_patch", '{"input": "*** Begin"}')],
    }
    cut = {**whole, "status": "incomplete"}
    assert apis.RESPONSES.read(json.dumps(cut).encode(), {}, 2.0).finish_reason == "length"
    with pytest.raises(ValueError, match="broke off"):
        apis.RESPONSES.read(stream(begun), STREAM, 2.0)
    nothing = apis.RESPONSES.read(json.dumps({**whole, "output": []}).encode(), {}, 2.0)
    assert (nothing.message, nothing.usage) == ({"role": "assistant", "content": ""}, Usage(3, 7)), (
        "it is an answer"
    )
    with pytest.raises(ValueError, match="no message"):
        apis.RESPONSES.read(json.dumps({"error": {"message": "no"}}).encode(), {}, 2.0)


def test_what_goes_to_the_server_reaches_no_further_than_the_model() -> None:
    """A model without a network could have the server look its task up, or a stronger model do it."""
    kept = [
        {"name": "Bash", "input_schema": SCHEMA},
        {"type": "custom", "name": "x"},
        {"type": "bash_20250124"},
    ]
    far = [
        {"type": "web_search_20250305", "name": "web_search"},
        {"type": "mcp", "server_url": "u"},
        {"type": 1},
    ]
    space = {"type": "namespace", "name": "n", "tools": [kept[1], far[1]]}
    added = {"type": "additional_tools", "tools": far}
    body = {
        "input": [added, {"role": "user", "content": "go"}],
        "tools": [*kept, *far, space],
        "models": ["a-stronger-one"],
        "context_window_fallbacks": [{"m": ["a-stronger-one"]}],
        "content_policy_fallbacks": [{"m": ["a-stronger-one"]}],
        "extra_body": {"models": ["a-stronger-one"]},
        "mcp_servers": [{"url": "u"}],
        "background": True,
        "user": "eve",
        "metadata": {"rtrl_user": "eve", "mine": 1},
        "temperature": 0.5,
    }
    assert passed(body) == {
        "input": [{"type": "additional_tools"}, {"role": "user", "content": "go"}],
        "tools": [*kept, {**space, "tools": [kept[1]]}],
        "metadata": {"mine": 1},
        "temperature": 0.5,
    }
    assert passed({"tools": far, "input": "go", "metadata": "m"}) == {"input": "go", "metadata": "m"}
    assert passed({"tools": []}) == {"tools": []}


@pytest.mark.parametrize(
    ("list_of", "part", "text"),
    [
        ("messages", {"type": "image_url", "image_url": {"url": "ADDRESS"}}, "text"),
        ("messages", {"type": "video_url", "video_url": {"url": "ADDRESS", "detail": "low"}}, "text"),
        ("messages", {"type": "image", "source": {"type": "url", "url": "ADDRESS"}}, "text"),
        ("messages", {"type": "document", "source": {"type": "url", "url": "ADDRESS"}}, "text"),
        ("messages", {"type": "file", "file": {"file_id": "ADDRESS", "format": "image/png"}}, "text"),
        ("messages", {"type": "file", "file": {"file_data": "ADDRESS"}}, "text"),
        ("input", {"type": "input_image", "image_url": "ADDRESS"}, "input_text"),
        ("input", {"type": "input_file", "file_url": "ADDRESS"}, "input_text"),
    ],
)
def test_nothing_is_fetched_for_a_trial(list_of: str, part: dict[str, Any], text: str) -> None:
    """A server fetches the image at an address: a sandbox without a network had one."""

    def body(part: dict[str, Any]) -> dict[str, Any]:
        said = {"type": "text", "text": "https://x.org is a text"}
        result = {"type": "tool_result", "tool_use_id": "t", "content": [said, part]}
        used = {"type": "tool_use", "id": "t", "name": "get", "input": {"image_url": "https://x.org"}}
        found = {"type": "search_result", "source": "https://x.org", "content": [said]}
        given = {"type": "function_call_output", "call_id": "t", "output": [part]}
        return {list_of: [{"role": "user", "content": [result, part]}, {"content": [used, found]}, given]}

    def at(address: str) -> dict[str, Any]:
        return json.loads(json.dumps(part).replace("ADDRESS", address))  # type: ignore[no-any-return]

    here = body(at("data:image/png;base64,AAAA"))
    assert passed(here) == here
    word = {"type": text, "text": "[an address: nothing is fetched in a trial]"}
    for address in ("https://x.org/a.png", "http://169.254.169.254/", "file:///etc/passwd", " data:,"):
        assert passed(body(at(address))) == body(word)
    for within, left in ((at("https://x.org"), word), (at("data:,a"), at("data:,a"))):
        given, kept = ({"type": "content", "content": [one]} for one in (within, left))
        whole = passed(body({"type": "document", "source": given}))
        assert whole == body({"type": "document", "source": kept})
    plain = {"messages": [{"role": "user", "content": "see https://x.org"}], "source": "https://x.org"}
    assert passed(plain | {"input": "https://x.org"}) == plain | {"input": "https://x.org"}


NAMES = st.sampled_from(
    [
        *("messages", "system", "tools", "input", "instructions", "role", "content", "type", "name"),
        *("call_id", "arguments", "namespace", "tool", "definition", "input_schema", "parameters", "output"),
        *("usage", "input_tokens", "output_tokens", "message", "delta", "index", "content_block", "response"),
    ]
)
KINDS = st.sampled_from(
    [
        *("user", "assistant", "system", "function_call", "custom_tool_call", "namespace"),
        *(
            "additional_tools",
            "reasoning",
            "tool_use",
            "tool_result",
            "message_start",
            "content_block_start",
            "message_stop",
        ),
        *("content_block_delta", "message_delta", "response.completed", "function_call_output", "text"),
    ]
)
ANY = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | KINDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from([apis.MESSAGES, apis.RESPONSES]),
    st.dictionaries(NAMES, ANY, max_size=5),
    st.lists(st.dictionaries(NAMES, ANY, max_size=5), max_size=4),
)
def test_whatever_is_asked_is_recorded_and_what_is_no_answer_is_none(
    api: apis.Api, body: dict[str, Any], events: list[dict[str, Any]]
) -> None:
    passed(body)
    asked = api.asked(body)
    assert asked == json.loads(json.dumps(asked))
    assert all(one["tool_calls"] for one in asked["messages"] if "tool_calls" in one)
    told = [{**one, "type": one.get("type", "message_stop")} for one in events]
    for content, headers in ((json.dumps(body).encode(), {}), (stream(*told), STREAM)):
        with contextlib.suppress(ValueError):
            found = api.read(content, headers, 1.0)
            assert found.message["role"] == "assistant"
