"""Calls in tags, as Qwen3-Coder writes them."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorbench.harness import call_parser
from cursorbench.harness.chat import assistant_message

PROPERTIES: dict[str, Any] = {
    "path": {"type": "string"},
    "line": {"type": "integer"},
    "all": {"type": "boolean"},
    "marks": {"type": "array"},
    "more": {"type": "object"},
    "note": {"type": ["string", "null"]},
    "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    "linked": {"$ref": "#/$defs/a"},
    "level": {"$ref": "#/$defs/Level~1of"},
    "maybe": {"anyOf": [{"$ref": "#/$defs/Level~1of"}, {"type": "null"}]},
    "all of": {"allOf": [{"$ref": "#/$defs/Level~1of"}]},
    "listed": {"enum": [1, 2.5, None]},
    "word": {"enum": ["a b", " c"]},
    "fixed": {"const": True},
    "any": {},
    "round": {"$ref": "#/$defs/Round"},
}
DEFS = {"Level/of": {"enum": [1, 2]}, "Round": {"anyOf": [{"$ref": "#/$defs/Round"}, {"type": "number"}]}}
ARGUMENTS = {
    "type": "object",
    "properties": PROPERTIES,
    "$defs": DEFS,
    "additionalProperties": {"type": "null"},
}
TOOL = {"type": "function", "function": {"name": "edit", "parameters": ARGUMENTS}}
PARAMETERS = call_parser.ToolSet([TOOL]).parameters


def call(**values: str) -> str:
    """As the models' templates write it."""
    told = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function=edit>\n{told}</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("path", "a.py", "a.py"),
        ("path", "12", "12"),
        ("path", "", ""),
        ("path", "\n  two\nlines\n", "\n  two\nlines\n"),
        (
            "path",
            "see </parameter> and <tool_call></tool_call>",
            "see </parameter> and <tool_call></tool_call>",
        ),
        ("line", " 12 ", 12),
        ("line", "twelve", "twelve"),
        ("line", "NaN", "NaN"),
        ("all", "True", True),
        ("all", "false", False),
        ("all", "yes", "yes"),
        ("marks", '[1, "b"]', [1, "b"]),
        ("more", '{"a": null}', {"a": None}),
        ("more", "{'a': 1}", "{'a': 1}"),
        ("note", "null", None),
        ("note", "7", "7"),
        ("either", "7", 7),
        ("either", "null", None),
        ("linked", '{"a": 1}', {"a": 1}),
        ("linked", "7", "7"),
        ("level", "2", 2),
        ("maybe", "2", 2),
        ("maybe", "null", None),
        ("all of", "2", 2),
        ("listed", "2.5", 2.5),
        ("listed", "null", None),
        ("word", " a b\n", "a b"),
        ("word", " c", " c"),
        ("word", " d", " d"),
        ("fixed", "true", True),
        ("round", "7", 7),
        ("any", "7", "7"),
        ("of nothing known", "null", None),
    ],
)
def test_a_value_has_the_type_that_the_schema_has_for_it(key: str, text: str, value: Any) -> None:
    (found,) = call_parser.parse(call(**{key: text}), PARAMETERS).calls
    assert (found.name, found.error, json.loads(found.arguments)) == ("edit", "", {key: value})


def test_calls_and_the_text_around_them() -> None:
    text = f"First.\n{call(path='a')}\nThen.{call(path='b', line='3')}"
    parsed = call_parser.parse(text, PARAMETERS)
    assert parsed.content == "First.\n\nThen."
    assert [json.loads(one.arguments) for one in parsed.calls] == [{"path": "a"}, {"path": "b", "line": 3}]
    assert [text[one.start : one.end] for one in parsed.calls] == [call(path="a"), call(path="b", line="3")]


def test_values_are_text_to_who_does_not_know_the_tools() -> None:
    (found,) = call_parser.parse(call(line="3")).calls
    assert json.loads(found.arguments) == {"line": "3"}


def test_the_last_call_may_lack_its_closing_tag_and_a_call_may_have_no_values() -> None:
    (found,) = call_parser.parse("<tool_call>\n<function=edit>\n</function>\n").calls
    assert (found.name, found.arguments, found.error) == ("edit", "{}", "")


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call><function=></function></tool_call>",
        "<tool_call><function=edit>path</function></tool_call>",
        "<tool_call><function=edit><parameter=path>a.py</function></tool_call>",
        "<tool_call><function=edit><parameter=path>a.py</parameter></tool_call>",
        "<tool_call><function=edit></function> so</tool_call>",
        "<tool_call><function=edit",
        "<tool_call><func",
    ],
)
def test_what_does_not_parse_stays_text_and_is_told(text: str) -> None:
    parsed = call_parser.parse(f"{text}{call(path='a')}", PARAMETERS)
    assert [one.error for one in parsed.calls] == ["unparsable", ""]
    assert parsed.content == text


def test_a_call_is_checked_as_any_other() -> None:
    tools = call_parser.ToolSet([TOOL])
    found = [call_parser.parse(text, PARAMETERS).calls[0] for text in (call(line="3"), call(line="x"))]
    assert [tools.check(one) for one in found] == ["", "schema"]
    message = assistant_message(call(line="3"), tools=[TOOL])
    assert message["tool_calls"][0]["function"] == {"name": "edit", "arguments": '{"line": 3}'}


@given(st.dictionaries(st.sampled_from(["path", "note"]), st.text(st.characters(exclude_characters="<"))))
def test_any_text_comes_back_as_it_was_written(values: dict[str, str]) -> None:
    (found,) = call_parser.parse(call(**values)).calls
    assert json.loads(found.arguments) == values


@pytest.mark.parametrize(
    "unit",
    [
        "<tool_call><function=a><parameter=b>",
        "</parameter>",
        "<parameter=b>",
        "<function=",
        "</function>",
        " ",
    ],
)
def test_no_answer_takes_long(unit: str) -> None:
    seconds = {}
    for count in (2_000, 8_000):
        text = f"<tool_call><function=a><parameter=b>{unit * count}"
        began = time.process_time()
        call_parser.parse(text, PARAMETERS)
        seconds[count] = time.process_time() - began
    assert seconds[8_000] < 20 * seconds[2_000] + 0.2
