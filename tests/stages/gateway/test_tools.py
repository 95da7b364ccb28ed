"""Tool calls out of text: streamed and whole read the same."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cursorbench.harness.call_blocks import ANY, Block, blocks_of
from cursorbench.harness.call_parser import ToolSet, render
from cursorbench.harness.thoughts import Thoughts
from stages.gateway.offered_tools import _Compiled
from stages.gateway.tools import Answer, Sent, Thought, ToolStream, read_answer

TOOLS = ToolSet(
    [
        {
            "type": "function",
            "function": {
                "name": "read_file",
                "parameters": {
                    "type": "object",
                    "properties": {"path": {"type": "string"}},
                    "required": ["path"],
                },
            },
        }
    ]
)
PIECES = st.sampled_from(
    [
        "<tool_call>", "</tool_call>", '{"name": "read_file", "arguments": {"path": "a.py"}}', "\n", " ", "{",
        '{"name": "x", "arguments": {}}', '{"name": "read_file", "arguments": {"path": "</tool_call>', '"}}',
        "<function=read_file>", "<parameter=path>", "a.py</parameter>", "</function>", "<function=", "</para",
        "text", "<tool", "_call>", "</tool", '"', "\\", "\\u12", "}", "tru", '{"name": 1}', "[", "é",
        "<think>", "</think>", "</thi", "<arg_key>path</arg_key>", "<arg_value>", "</arg_value>", "read_file",
        "<minimax:tool_call>", '<invoke name="x">', '<parameter name="path">', "</parameter>", "</invoke>",
        "</minimax:tool_call>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]a1", "]", ",", "[TOOL_",
        "<TOOLCALL>", "</TOOLCALL>",
    ]
)  # fmt: skip


def streamed(
    text: str, cuts: list[int], thoughts: Thoughts | None = None, blocks: Sequence[Block] = ANY
) -> tuple[Answer, str, list[dict[str, Any]]]:
    stream = ToolStream(TOOLS, thoughts, blocks)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    out: list[Sent] = []
    for start, end in pairwise(places):
        out += stream.feed(text[start:end])
    out += stream.finish()
    content = "".join(piece for piece in out if isinstance(piece, str))
    assert "".join(piece.text for piece in out if isinstance(piece, Thought)) == stream.answer.thoughts
    return stream.answer, content, [piece for piece in out if isinstance(piece, dict)]


@settings(max_examples=300)
@given(
    st.lists(PIECES, max_size=12).map("".join),
    st.lists(st.integers(0, 200), max_size=30),
    st.sampled_from([None, False, True]),
    st.sampled_from(["", "<arg_key>", "<minimax:tool_call>", "[TOOL_CALLS] or <TOOLCALL>"]),
)
@example('<tool_call>{"name": "x", "arguments": {"a": "</tool_call>\\u12ab"}}</tool_call>', [59], None, "")
@example('<tool_call>{"name": "x", "arguments": {"a": "</tool_call>"}}</tool_call>', [63], None, "")
@example('<tool_call>{"name": "x", "arguments": {"a": "<tool_call>"}}\n</tool_call>', [59, 66], None, "")
@example(
    "<tool_call><function=x><parameter=a></tool_call></parameter></function></tool_call>", [47], None, ""
)
@example("<tool_call><function=x></tool_call></function></tool_call>", [23, 34], None, "")
def test_streamed_reads_as_whole(text: str, cuts: list[int], begun: bool | None, told: str) -> None:
    blocks = blocks_of(told)
    thoughts = [None, None] if begun is None else [Thoughts(begun=begun), Thoughts(begun=begun)]
    whole = read_answer(text, TOOLS, thoughts[0], blocks)
    answer, content, calls = streamed(text, cuts, thoughts[1], blocks)
    assert content == answer.content == whole.content
    assert answer.thoughts == whole.thoughts
    assert [c["function"] for c in calls] == [c["function"] for c in whole.calls]
    assert [(r.name, r.error) for r in answer.records] == [(r.name, r.error) for r in whole.records]


def test_a_closing_tag_that_comes_in_pieces_ends_a_call_that_tells_of_tags() -> None:
    """With a `stop` the engine holds back the last characters: the tag came cut, and the call became text."""
    for tag in ("<tool_call>", "</tool_call>"):
        text = render("read_file", {"path": f"x {tag} y"})
        for cut in range(len(text)):
            answer, content, calls = streamed(text, [cut, cut + 3])
            assert (content, len(calls), answer.invalid) == ("", 1, 0), (tag, cut)


@pytest.mark.parametrize(("marks", "form"), [("[TOOL_CALLS]", "[a-zA-Z0-9]{9}"), ("", "call_[0-9a-f]{24}")])
def test_an_id_is_one_that_the_models_template_takes_back(marks: str, form: str) -> None:
    """Mistral's templates refuse others: what an agent asked behind its first call got 400."""
    text = '<tool_call>{"name": "read_file", "arguments": {"path": "a"}}</tool_call>' * 2
    for calls in (
        read_answer(text, TOOLS, None, blocks_of(marks)).calls,
        streamed(text, [9], None, blocks_of(marks))[2],
    ):
        first, second = (call["id"] for call in calls)
        assert re.fullmatch(form, first)
        assert first != second


def test_what_is_no_call_is_not_held_back_longer_than_needed() -> None:
    broken = '<tool_call>{"name": 1}</tool_call>'
    assert ToolStream(TOOLS).feed(broken) == [broken]


def test_content_is_not_held_back_longer_than_needed() -> None:
    stream = ToolStream(TOOLS)
    assert stream.feed("Let me look <too") == ["Let me look "]
    assert stream.feed("lbox") == ["<toolbox"]


def test_each_kind_of_invalid_call_is_counted_and_kept() -> None:
    text = (
        '<tool_call>{"name": "read_file", "arguments": {"path": "a"}}</tool_call>'
        '<tool_call>{"name": "secret words", "arguments": {}}</tool_call>'
        '<tool_call>{"name": "read_file", "arguments": {"path": 1}}</tool_call>'
        "<tool_call>{broken</tool_call>"
    )
    answer = read_answer(text, TOOLS)
    assert [r.error for r in answer.records] == ["", "unknown_tool", "schema", "unparsable"]
    assert answer.invalid == 3
    assert answer.content == "<tool_call>{broken</tool_call>"
    assert [c["function"]["name"] for c in answer.calls] == ["read_file", "secret words", "read_file"]
    assert [r.name for r in answer.records] == ["read_file", "", "read_file", ""]  # model text is content
    assert all(r.arguments == "" for r in answer.records)


def test_a_call_that_is_thought_of_is_none() -> None:
    """It was run, and a broken one counted as the model's."""
    call = render("read_file", {"path": "a.py"})
    answer = read_answer(f"<think>\nA {call}? <tool_call>{{\n</think>\n\n{call}", TOOLS, Thoughts())
    assert (answer.thoughts, answer.content) == (f"A {call}? <tool_call>{{", "")
    assert [record.error for record in answer.records] == [""]


def test_without_tools_text_stays_text() -> None:
    text = '<tool_call>{"name": "read_file", "arguments": {}}</tool_call>'
    assert read_answer(text, None).content == text
    assert ToolStream(None).feed(text) == [text]


def test_calls_of_an_answer_are_checked_in_bounded_work() -> None:
    """A schema that doubles at each level, called as often as one likes, keeps the others waiting."""
    levels: dict[str, Any] = {"l0": {"type": "object"}}
    for n in range(1, 30):
        levels[f"l{n}"] = {"allOf": [{"$ref": f"#/$defs/l{n - 1}"}] * 2}
    schema = {"$defs": levels, "type": "object", "properties": {"a": {"$ref": "#/$defs/l29"}}}
    tools = ToolSet([{"type": "function", "function": {"name": "f", "parameters": schema}}])
    call = render("f", {"a": {}})
    answer = read_answer(call * 200, tools)
    assert answer.allowance.left <= 0
    assert [record.error for record in answer.records] == ["schema"] * 200
    stream = ToolStream(tools)
    stream.feed(call * 200)
    stream.finish()
    assert stream.answer.records[0].error == "schema"
    plain = {"properties": {"a": {"type": "object"}}}
    ordinary = ToolSet([{"type": "function", "function": {"name": "f", "parameters": plain}}])
    answer = read_answer(call * 1000, ordinary)
    assert answer.invalid == 0, "a thousand ordinary ones cost less"


def test_compiled_tools_are_kept_within_so_many_bytes() -> None:
    """Clients say how long a schema is: 256 of them were kept whatever they took."""

    def tools(name: str) -> bytes:
        return json.dumps([{"function": {"name": name, "parameters": {"description": "x" * 1000}}}]).encode()

    compiled, sets = _Compiled(2 * len(tools("a"))), {}
    for name in "ab":
        sets[name] = compiled.of(name, tools(name))
    assert compiled.of("a", tools("a")) is sets["a"]
    compiled.of("c", tools("c"))
    assert compiled.of("a", tools("a")) is sets["a"]
    assert compiled.of("b", tools("b")) is not sets["b"], "the least recently used has left"
    alone = _Compiled(10)
    assert alone.of("a", tools("a")).names == ("a",)
    assert alone._held == 0
