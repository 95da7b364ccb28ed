"""Recorded requests as an engine is asked again, and the tools that their prompts tell."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cursorbench.harness.hermes import ToolSet
from cursorbench.harness.tools import DEFAULT_TOOLS
from stages.records import Sampling
from stages.shadow.recorded import Recorded
from stages.shadow.replay import body, broken, recorded_answer
from stages.shadow.tools import KnownTools, digest, in_prompt

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "search",
        "parameters": {"type": "object", "properties": {"for": {"type": "string"}}, "required": ["for"]},
    },
}


def call(name: str, arguments: str) -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


def recorded(answer: str = "ok", tools_digest: str = "", **sampling: Any) -> Recorded:
    return Recorded("g1", "ann", [1, 2, 3], Sampling(**sampling), tools_digest, answer, 7, 70.0)


def test_a_request_is_asked_as_it_was() -> None:
    asked = body(recorded(temperature=0.5, top_k=3, max_tokens=50, stop=("x",)), "rtrl", 40)
    assert asked["prompt"] == [1, 2, 3]
    assert (asked["temperature"], asked["top_k"], asked["stop"]) == (0.5, 3, ["x"])
    assert asked["max_tokens"] == 37  # what the context leaves
    assert body(recorded(max_tokens=5), "rtrl", 40)["max_tokens"] == 5
    grammar = json.dumps({"response_format": {"type": "json_object"}})
    assert body(recorded(grammar=grammar), "rtrl", 40)["response_format"] == {"type": "json_object"}


@pytest.mark.parametrize(
    ("text", "form", "schema"),
    [
        (call("search", '{"for": "x"}'), 0, 0),
        (call("search", '{"far": "x"}'), 0, 1),
        (call("find", "{}"), 0, 1),
        ("<tool_call>{oh no</tool_call>", 1, 1),
        ("no call", 0, 0),
    ],
)
def test_calls_are_checked_as_far_as_their_tools_are_known(text: str, form: int, schema: int) -> None:
    assert broken(text, tools=None) == form
    assert broken(text, tools=ToolSet([TOOL])) == schema
    assert recorded_answer(recorded(text), ToolSet([TOOL])).broken_calls == schema


def test_tools_count_when_their_digest_is_the_recorded_one() -> None:
    wanted = digest([TOOL])
    prompt = f"<tools></tools> a tag in prose\n<tools>\n{json.dumps(TOOL)}\n</tools>"
    found = in_prompt(prompt, wanted)
    assert found is not None
    assert found.names == ("search",)
    assert in_prompt(prompt.replace("search", "sarch"), wanted) is None
    assert in_prompt("<tools>\n{not json\n</tools>", wanted) is None
    known = KnownTools(lambda _: prompt)
    assert known.of(recorded(tools_digest=wanted)) is not None
    assert known.of(recorded()) is None
    assert KnownTools(None).of(recorded(tools_digest=wanted)) is None
    assert KnownTools(None).of(recorded(tools_digest=digest(list(DEFAULT_TOOLS)))) is not None
