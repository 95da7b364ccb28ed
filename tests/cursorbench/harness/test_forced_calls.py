"""The grammar that forces a call, as XGrammar applies it, which vLLM does it with."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorbench.harness import call_parser
from cursorbench.harness.forced_calls import ForcedCalls, structural_tag

PATH = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "line": {"type": "integer"}},
    "required": ["path"],
    "additionalProperties": False,
}
NONE = {"type": "object", "properties": {}}
ODD = {"type": "object", "properties": {"a>b": {"type": "null"}}, "required": ["a>b"]}
SCHEMAS: dict[str, object] = {"read": PATH, "list": NONE, "we<ird": NONE, " spaced": NONE, "odd": ODD}
END = 0  # a byte that no text here has, as the token that ends an answer
READ = '{"name": "read", "arguments": {"path": "a b"}}'
TAGGED = "<function=read>\n<parameter=path>\na b\n</parameter>\n</function>"


@cache
def grammar(names: tuple[str, ...], several: bool, otherwise: bool) -> Any:
    import xgrammar  # with torch, which takes seconds

    vocabulary = xgrammar.TokenizerInfo([bytes([n]) for n in range(256)])
    tag = structural_tag(ForcedCalls(names, several), SCHEMAS, PATH if otherwise else None)
    return xgrammar.GrammarCompiler(vocabulary).compile_structural_tag(tag)


def fits(text: str, *names: str, several: bool = True, otherwise: bool = False) -> bool:
    """Whether an answer fits the grammar, and is complete."""
    from xgrammar import GrammarMatcher

    compiled = grammar(names or ("read", "list"), several, otherwise)
    matcher = GrammarMatcher(compiled, override_stop_tokens=[END])
    return bool(matcher.accept_string(text) and matcher.accept_token(END))


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>\n{READ}\n</tool_call>",
        f"<tool_call>{READ}</tool_call>",
        f"<tool_call>\n{TAGGED}\n</tool_call>",
        "<tool_call>\n<function=list>\n</function>\n</tool_call>",
        f"<think>\nWhich <file>?\n</think>\n\n<tool_call>\n{READ}\n</tool_call>",
        f"<think>\n\n</think>\n\n<tool_call>\n{TAGGED}\n</tool_call>",
    ],
)
def test_every_form_of_a_call_that_is_read_may_be_written(text: str) -> None:
    assert fits(text)
    assert fits(text, several=False)
    (call,) = call_parser.parse(text, SCHEMAS).calls
    tools = [{"function": {"name": name, "parameters": schema}} for name, schema in SCHEMAS.items()]
    assert call_parser.check(call, tools) == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I read it.",
        f"I read it. <tool_call>\n{READ}\n</tool_call>",
        f"<tool_call>\n{READ}\n</tool_call> Done.",
        "<tool_call>\n" + READ.replace("path", "file") + "\n</tool_call>",
        "<tool_call>\n" + READ.replace("read", "write") + "\n</tool_call>",
        "<tool_call>\n" + TAGGED.replace("path", "file") + "\n</tool_call>",
        f"<tool_call>\n{READ}",
        "<think>\nhm\n</think>\n\n",
        f"<think>\nA <tool_call> then.\n</think>\n\n<tool_call>\n{READ}\n</tool_call>",
    ],
)
def test_nothing_else_may(text: str) -> None:
    assert not fits(text)


def test_several_calls_only_where_they_may_be_several() -> None:
    two = f"<tool_call>\n{READ}\n</tool_call>\n<tool_call>\n{TAGGED}\n</tool_call>"
    assert fits(two)
    assert not fits(two, several=False)


def test_blanks_that_mean_nothing_come_to_an_end() -> None:
    for blanks, may in ((" " * 32, True), (" " * 33, False)):
        assert fits("<tool_call>" + READ.replace(' "a b"', f'{blanks}"a b"') + "</tool_call>") is may
        assert fits("<tool_call>" + READ.replace("a b", f"{blanks}a b") + "</tool_call>")
    assert fits("<tool_call>" + TAGGED.replace("a b", "\n" * 40) + "</tool_call>")


def test_json_in_their_place_where_it_may_be() -> None:
    assert fits('{"path": "a"}', otherwise=True)
    assert fits(f"<think>\nhm\n</think>\n\n<tool_call>\n{READ}\n</tool_call>", otherwise=True)
    assert not fits('{"line": 3}', otherwise=True)
    assert not fits('<think>\nhm\n</think>\n\n{"path": "a"}', otherwise=True)
    assert not fits('{"path": "a"}')


def test_only_the_tools_that_are_named() -> None:
    text = f"<tool_call>\n{READ}\n</tool_call>"
    assert fits(text, "read")
    assert not fits(text, "list")


@pytest.mark.parametrize(
    ("name", "arguments", "inner"),
    [
        ("we<ird", "{}", ""),
        (" spaced", "{}", ""),
        ("odd", '{"a>b": null}', "<parameter=a>b>\nnull\n</parameter>\n"),
    ],
)
def test_a_name_that_no_tag_can_hold_is_written_as_json_alone(name: str, arguments: str, inner: str) -> None:
    assert fits(f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>', name)
    assert not fits(f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>", name)


def test_what_no_grammar_is_made_of_is_left_out_of_schemas_alone() -> None:
    kept = {
        "properties": {
            "title": {"type": "string"},
            "minProperties": {"const": {"title": "a", "minProperties": 1}},
        }
    }
    told = {"title": "T", "description": "D", "minProperties": 1, "maxProperties": 2}
    more = {"anyOf": [kept, {"type": "object"} | told]} | told
    tag = json.loads(structural_tag(None, {}, more))
    assert tag["format"]["elements"][0]["json_schema"] == {"anyOf": [kept, {"type": "object"}]}


def test_arguments_of_an_unknown_schema_may_be_any_object() -> None:
    assert fits('<tool_call>{"name": "new", "arguments": {"a": [1, {"b": null}]}}</tool_call>', "new")


@given(st.text(st.characters(codec="utf-8"), max_size=20), st.none() | st.integers(-9, 9**9))
def test_what_the_harness_writes_fits(path: str, line: int | None) -> None:
    arguments: dict[str, Any] = {"path": path} | ({} if line is None else {"line": line})
    assert fits(call_parser.render("read", arguments))
    assert fits(f'<tool_call>\n{{"name": "read", "arguments": {json.dumps(arguments)}}}\n</tool_call>')
