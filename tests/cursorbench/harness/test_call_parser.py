"""Hermes tool calls: what parses, what stays text, and that nothing the model writes raises."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorbench.errors import UsageError
from cursorbench.harness import call_parser

EDIT = {
    "type": "function",
    "function": {
        "name": "edit_file",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "old": {"type": "string"}, "new": {"type": "string"}},
            "required": ["path", "old", "new"],
            "additionalProperties": False,
        },
    },
}
GOOD = '<tool_call>{"name": "edit_file", "arguments": {"path": "a.py", "old": "x", "new": "y"}}</tool_call>'


def test_plain_text_is_content():
    assert call_parser.parse("Which rate?") == call_parser.Parsed("Which rate?", ())


def test_one_call_with_text_around_it():
    parsed = call_parser.parse(f"Sure.\n{GOOD} ok")
    assert parsed.content == "Sure.\n ok"
    (call,) = parsed.calls
    assert (call.name, call.error) == ("edit_file", "")
    assert call.arguments == '{"path": "a.py", "old": "x", "new": "y"}'
    assert f"Sure.\n{GOOD} ok"[call.start : call.end] == GOOD


def test_arguments_are_kept_to_the_letter():
    raw = '{ "b":1.50,  "a" : [1 ,2] }'
    text = f'<tool_call>\n{{"arguments": {raw}, "name": "t"}}\n</tool_call>'
    (call,) = call_parser.parse(text).calls
    assert call.arguments == raw


def test_parallel_calls():
    parsed = call_parser.parse(GOOD + GOOD)
    assert parsed.content == ""
    assert [call.name for call in parsed.calls] == ["edit_file", "edit_file"]


def test_a_closing_tag_inside_a_string_does_not_end_the_call():
    text = call_parser.render("edit_file", {"path": "a", "old": "</tool_call>", "new": "<tool_call>"})
    (call,) = call_parser.parse(text).calls
    assert call.error == ""
    assert json.loads(call.arguments)["old"] == "</tool_call>"


def test_an_unclosed_last_call_counts_as_vllm_counts_it():
    (call,) = call_parser.parse(GOOD.removesuffix("</tool_call>")).calls
    assert call.error == ""


@pytest.mark.parametrize(
    "body",
    [
        '{"name": "edit_file", "arguments": {"path": "a"}',
        '{"name": "edit_file"}',
        '{"name": 3, "arguments": {}}',
        '{"name": "t", "arguments": {"x": NaN}}',
        "edit_file(a, b)",
        "",
        "[" * 100_000,
        '{"name": "t", "arguments": {}} trailing',
        '{"name": "t", "arguments": ' + "9" * 5000 + "}",
        '{"name": "\ud800", "arguments": {}}',
    ],
)
def test_what_does_not_parse_stays_in_the_content(body):
    text = f"a<tool_call>{body}</tool_call>b"
    parsed = call_parser.parse(text)
    assert parsed.content == text
    assert [call.error for call in parsed.calls] == ["unparsable"]
    assert parsed.valid == ()


def test_a_broken_call_does_not_void_the_others():
    parsed = call_parser.parse(
        '<tool_call>{"name": <tool_call>' + GOOD.removeprefix("<tool_call>") + "<tool_call>{"
    )
    assert [call.error for call in parsed.calls] == ["unparsable", "", "unparsable"]
    assert parsed.content == '<tool_call>{"name": <tool_call>{'


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (GOOD, ""),
        (call_parser.render("edit_file", {"path": "a", "old": "x"}), "schema"),
        (call_parser.render("edit_file", {"path": "a", "old": "x", "new": 3}), "schema"),
        (call_parser.render("edit_file", '"a string"'), "schema"),
        (call_parser.render("edit_files", {"path": "a", "old": "x", "new": "y"}), "unknown_tool"),
        ("<tool_call>{</tool_call>", "unparsable"),
    ],
)
def test_check(text, error):
    (call,) = call_parser.parse(text).calls
    assert call_parser.check(call, [EDIT]) == error
    assert call_parser.ToolSet([EDIT]).check(call) == error


@pytest.mark.parametrize(
    "tool",
    [
        {},
        3,
        {"function": {"name": "x", "parameters": {"type": "no such type"}}},
        {"function": {"name": "x", "parameters": {"properties": {"path": {"required": "path"}}}}},
    ],
)
def test_malformed_tools_are_the_callers_fault(tool):
    with pytest.raises(UsageError) as caught:
        call_parser.ToolSet([tool])
    assert caught.value.code == 2
    assert caught.value.hint


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        ({"$ref": "http://127.0.0.1:1/schema.json"}, ""),
        ({"$ref": "#/$defs/none"}, ""),
        ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "schema"),
    ],
)
def test_a_schema_that_cannot_be_applied_fetches_nothing_and_judges_where_it_can(schema, error):
    """A reference that leads nowhere is the client's fault, and called every call wrong before. One that
    leads to itself takes too long, as others do that no call may come through."""
    tool = {"type": "function", "function": {"name": "edit_file", "parameters": schema}}
    (call,) = call_parser.parse(GOOD).calls
    assert call_parser.check(call, [tool]) == error


_pieces = st.lists(
    st.sampled_from(
        ["<tool_call>", "</tool_call>", '{"name": "a", "arguments": ', "{}", "}", '"', "\\", " ", "\n", "x"]
    )
    | st.text(max_size=5),
    max_size=12,
)


@given(_pieces.map("".join))
def test_any_text_is_accounted_for(text):
    parsed = call_parser.parse(text)
    rebuilt, at = [], 0
    for call in parsed.calls:
        assert at <= call.start < call.end <= len(text)
        rebuilt.append(text[at : call.start])
        if call.error:
            rebuilt.append(text[call.start : call.end])
        at = call.end
    assert "".join([*rebuilt, text[at:]]) == parsed.content


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.text(), st.dictionaries(st.text(), _json, max_size=4), st.text(alphabet="abc <\n"))
def test_what_is_rendered_is_read_back(name, arguments, before):
    parsed = call_parser.parse(before + call_parser.render(name, arguments))
    assert parsed.content == before
    (call,) = parsed.calls
    assert call.name == name
    assert json.loads(call.arguments) == arguments


def test_a_set_of_tools_is_compiled_in_bounded_work() -> None:
    """Each tool is within its own bound, so a hundred of them took a minute in which nobody was served."""
    properties = {f"p{n}": {"type": "string", "description": "x"} for n in range(1000)}
    tools = [
        {"type": "function", "function": {"name": f"f{n}", "parameters": {"properties": properties}}}
        for n in range(100)
    ]
    call_parser.ToolSet(tools[:1])
    began = time.process_time()
    with pytest.raises(UsageError, match="the schemas of 3 tools take too long"):
        call_parser.ToolSet(tools)
    assert time.process_time() - began < 10


def test_an_ordinary_set_of_many_tools_is_compiled() -> None:
    names = ("path", "old", "new", "limit", "offset", "recursive")
    schema = {"properties": {name: {"type": "string"} for name in names}, "required": list(names[:1])}
    tools = [{"type": "function", "function": {"name": f"f{n}", "parameters": schema}} for n in range(200)]
    assert len(call_parser.ToolSet(tools).names) == 200
