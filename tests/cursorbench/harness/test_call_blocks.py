"""Calls as each family of models writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorbench.harness import call_parser
from cursorbench.harness.call_blocks import ANY, Block, blocks_of

Render = Callable[[str, Mapping[str, Any]], str]
PARAMETERS = {"edit": {"properties": {"path": {"type": "string"}, "line": {"type": "integer"}}}}


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def glm(name: str, values: Mapping[str, Any]) -> str:
    told = "".join(
        f"<arg_key>{key}</arg_key>\n<arg_value>{text_of(value)}</arg_value>\n"
        for key, value in values.items()
    )
    return f"<tool_call>{name}\n{told}</tool_call>"


def glm_4_7(name: str, values: Mapping[str, Any]) -> str:
    return glm(name, values).replace("\n<", "<")


def minimax(name: str, values: Mapping[str, Any]) -> str:
    told = "".join(f'<parameter name="{key}">{text_of(value)}</parameter>\n' for key, value in values.items())
    return f'<invoke name="{name}">\n{told}</invoke>\n'


def seed(name: str, values: Mapping[str, Any]) -> str:
    told = "".join(f"<parameter={key}>{text_of(value)}</parameter>\n" for key, value in values.items())
    return f"<seed:tool_call>\n<function={name}>\n{told}</function>\n</seed:tool_call>"


def deepseek(name: str, values: Mapping[str, Any]) -> str:
    return f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{json.dumps(values)}<｜tool▁call▁end｜>"


def deepseek_r1(name: str, values: Mapping[str, Any]) -> str:
    fenced = f"{name}\n```json\n{json.dumps(values)}\n```"
    return f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{fenced}<｜tool▁call▁end｜>"


def dsml(name: str, values: Mapping[str, Any]) -> str:
    told = "".join(
        f'<｜DSML｜parameter name="{key}" string="{str(isinstance(value, str)).lower()}">'
        f"{text_of(value)}</｜DSML｜parameter>\n"
        for key, value in values.items()
    )
    return f'<｜DSML｜invoke name="{name}">\n{told}</｜DSML｜invoke>\n'


def mistral(name: str, values: Mapping[str, Any]) -> str:
    return f"[TOOL_CALLS]{name}[ARGS]{json.dumps(values)}"


def item(name: str, values: Mapping[str, Any]) -> str:
    return json.dumps({"name": name, "arguments": values, "id": "a1B2c3D4e"})


FAMILIES: dict[str, tuple[Render, str, str, str]] = {
    "glm": (glm, "", "", "<arg_key>"),
    "glm-4.7": (glm_4_7, "", "", "<arg_key>"),
    "minimax": (minimax, "<minimax:tool_call>\n", "</minimax:tool_call>", "<minimax:tool_call>"),
    "seed": (seed, "", "", "<seed:tool_call>"),
    "deepseek": (deepseek, "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁calls▁begin｜>"),
    "deepseek-r1": (deepseek_r1, "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁calls▁begin｜>"),
    "dsml": (dsml, "<｜DSML｜function_calls>\n", "</｜DSML｜function_calls>", "a ｜DSML｜ token"),
    "dsml-4": (dsml, "<｜DSML｜tool_calls>\n", "</｜DSML｜tool_calls>", "a ｜DSML｜ token"),
    "mistral": (mistral, "", "", "[TOOL_CALLS]"),
    "mistral-ids": (lambda *one: mistral(*one).replace("[A", "[CALL_ID]a1B2c3D4e[A"), "", "", "[TOOL_CALLS]"),
    "mistral-plain": (lambda *one: mistral(*one).replace("[ARGS]", ""), "", "", "[TOOL_CALLS]"),
    "mistral-v3": (item, "[TOOL_CALLS] [", "]", "[TOOL_CALLS]"),
    "mistral-tight": (item, "[TOOL_CALLS][", "]", "[TOOL_CALLS]"),
    "nemotron": (item, "<TOOLCALL>[", "]</TOOLCALL>", "<TOOLCALL>"),
    "hunyuan": (item, "<tool_calls>\n[", "]\n</tool_calls>", "<tool_calls>"),
    "phi": (item, "<|tool_call|>[", "]<|/tool_call|>", "<|tool_call|>"),
    "granite-3": (item, "<|tool_call|>[", "]", "<|tool_call|>"),
}


def of(family: str) -> tuple[Callable[..., str], tuple[Block, ...]]:
    """What writes calls as the family does, each given as (name, values), and its blocks."""
    render, begin, end, told = FAMILIES[family]

    def written(*calls: tuple[str, Mapping[str, Any]]) -> str:
        between = ", " if begin.endswith("[") else "" if begin else "\n"
        return begin + between.join(render(*call) for call in calls) + end

    return written, blocks_of(told)


@pytest.mark.parametrize("family", FAMILIES)
def test_two_calls_and_the_text_around_them(family: str) -> None:
    written, blocks = of(family)
    calls = [("edit", {"path": "a b.py", "line": 3}), ("look", {})]
    text = f"First.\n{written(*calls)}"
    parsed = call_parser.parse(text, PARAMETERS, blocks)
    assert [(one.name, json.loads(one.arguments), one.error) for one in parsed.calls] == [
        ("edit", {"path": "a b.py", "line": 3}, ""),
        ("look", {}, ""),
    ]
    assert parsed.content.strip() == "First."
    assert parsed.calls[-1].end == len(text)
    assert call_parser.parse(text, PARAMETERS).valid == (), (
        "to a model without such tags in its template it is text"
    )


@pytest.mark.parametrize("family", FAMILIES)
@given(
    values=st.dictionaries(
        st.sampled_from(["path", "line 2"]), st.text(st.characters(exclude_characters="<"))
    )
)
def test_any_text_comes_back_as_it_was_written(family: str, values: dict[str, str]) -> None:
    written, blocks = of(family)
    if family == "seed":  # whose values may stand on lines of their own
        values = {key: value for key, value in values.items() if value == value.strip("\n")}
    if FAMILIES[family][0] is item:  # half a pair is no JSON to whoever has to decode it
        values = {key: value.encode("utf-8", "replace").decode() for key, value in values.items()}
    told = {"look": {"additionalProperties": {"type": "string"}}}
    (found,) = call_parser.parse(written(("look", values)), told, blocks).calls
    assert json.loads(found.arguments) == values


@pytest.mark.parametrize("family", FAMILIES)
def test_one_that_is_cut_or_broken_is_told_and_stays_text(family: str) -> None:
    written, blocks = of(family)
    whole = written(("edit", {"path": "a", "line": 3}))
    for cut in range(len(blocks[0].open), len(whole) - len(blocks[0].close) - 2):
        parsed = call_parser.parse(whole[:cut], PARAMETERS, blocks)
        assert (parsed.content, [one.error for one in parsed.calls]) == (whole[:cut], ["unparsable"]), cut
    broken = whole.replace("edit", "<edit", 1).replace('"name": ', '"name" ')
    parsed = call_parser.parse(f"{broken}{whole}", PARAMETERS, blocks)
    assert [one.error for one in parsed.calls] == ["unparsable", ""]
    assert parsed.content == broken


def test_values_may_speak_of_their_tags() -> None:
    for family in FAMILIES:
        written, blocks = of(family)
        said = "see </arg_value>, </parameter>, </｜DSML｜parameter> and <｜tool▁call▁end｜>"
        (found,) = call_parser.parse(written(("edit", {"path": said})), PARAMETERS, blocks).calls
        assert json.loads(found.arguments) == {"path": said}, family


def test_a_value_without_its_end_takes_no_other_call_with_it() -> None:
    for family in ("glm", "minimax", "seed", "dsml"):
        written, blocks = of(family)
        wrong = written(("edit", {"path": "a"}))
        for end in ("</arg_value>", "</parameter>", "</｜DSML｜parameter>"):
            wrong = wrong.replace(end, "")
        parsed = call_parser.parse(wrong + written(("look", {"line": 2})), PARAMETERS, blocks)
        assert [(one.name, one.error) for one in parsed.calls] == [("", "unparsable"), ("look", "")], family


def test_a_model_of_another_family_writes_hermes_too() -> None:
    call = call_parser.render("edit", {"path": "a"})
    for family in FAMILIES:
        (found,) = call_parser.parse(call, PARAMETERS, of(family)[1]).calls
        assert (found.name, found.error) == ("edit", ""), family
    assert blocks_of("a template of Qwen's with <tool_call>") == ANY


@pytest.mark.parametrize(("value", "told"), [("3", 3), ("null", None), ("no", "no"), ('"3"', "3")])
def test_a_tag_tells_that_a_value_is_no_text(value: str, told: Any) -> None:
    text = dsml("look", {"at": "?"}).replace('string="true">?', f'string="false">{value}')
    text = f"<｜DSML｜function_calls>{text}</｜DSML｜function_calls>"
    (found,) = call_parser.parse(
        text, {"look": {"properties": {"at": {"type": "string"}}}}, of("dsml")[1]
    ).calls
    assert json.loads(found.arguments) == {"at": told}
