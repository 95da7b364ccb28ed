"""Calls in tags, of which each value has its own: Qwen3-Coder's, and those of other families of models.

    <function=NAME>
    <parameter=KEY>
    value, as many lines as it takes
    </parameter>
    </function>

Values are plain text; of what type, the tool's schema tells, or the tag itself. A value ends at the first
end tag that another value's tag or the end of the function follows, so it may speak of these tags. Where the
block ends before, a tag was left out and the call is none: what follows would be taken for its value. Source:
the templates of Qwen3-Coder and Qwen3.5, GLM-4.5 and 4.7, MiniMax-M2, Seed-OSS and DeepSeek-V3.2. Not for:
the block around it (`call_blocks.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import unquote

OPENING = "<function="
LONGEST = 1000  # characters of a name
_BLANK = re.compile(r"[ \t\r\n]*")
_BOOLEANS = {"true": True, "false": False}
_TYPES = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
_PARTS, _LISTED = 200, 1000  # of a property's schema, and values of an enum, that are looked at


class Form(NamedTuple):
    """The tags of a family of models.

    Attributes:
        head: how a call begins, whatever its name.
        name: the whole tag with its name.
        key_head: how a value's tag begins.
        key: the whole tag: the key, and "true" or "false" where it tells whether the value is text.
        value_end: behind a value.
        end: behind the last value; `inside` says whether it belongs to the call.
        cut: two ends with an end tag left out between them.
        lined: a value stands on lines of its own: one line end on either side of it is not part of it.
    """

    head: str
    name: re.Pattern[str]
    key_head: str
    key: re.Pattern[str]
    value_end: str
    end: str
    cut: re.Pattern[str]
    inside: bool = True
    lined: bool = False


def _form(
    head: str,
    close: str,
    key_head: str,
    key_close: str,
    ends: tuple[str, str],
    block_end: str,
    *,
    lined: bool = False,
) -> Form:
    """One whose tags have the name and the key in them, `close` and `key_close` behind these."""
    value_end, end = ends
    either = "|".join(map(re.escape, (end, value_end)))
    named = rf"([^<>\n]{{1,{LONGEST}}}?)"
    return Form(
        head,
        re.compile(f"{re.escape(head)}{named}{close}"),
        key_head,
        re.compile(f"{re.escape(key_head)}{named}{key_close}"),
        value_end,
        end,
        re.compile(rf"(?:{either})[ \t\r\n]*{re.escape(block_end)}"),
        lined=lined,
    )


def qwen(block_end: str) -> Form:
    """Qwen3-Coder's, in blocks that end with `block_end`."""
    ends = ("</parameter>", "</function>")
    return _form(OPENING, ">", "<parameter=", ">", ends, block_end, lined=True)


MINIMAX = _form(
    '<invoke name="', '">', '<parameter name="', '">', ("</parameter>", "</invoke>"), "</minimax:tool_call>"
)


def dsml(block_end: str) -> Form:
    """DeepSeek's since V3.2, in blocks that end with `block_end`."""
    ends = ("</｜DSML｜parameter>", "</｜DSML｜invoke>")
    head, key = '<｜DSML｜invoke name="', '<｜DSML｜parameter name="'
    return _form(head, '">', key, '"(?: string="(true|false)")?>', ends, block_end)


GLM = Form(
    "",
    re.compile(rf"([^<>{{}}\"\s][^<>{{}}\"\n]{{0,{LONGEST}}}?)[ \t\r]*(?=\n|<arg_key>|</tool_call>)"),
    "<arg_key>",
    re.compile(rf"<arg_key>([^<>\n]{{1,{LONGEST}}})</arg_key>[ \t\r\n]*<arg_value>"),
    "</arg_value>",
    "</tool_call>",
    re.compile(r"</tool_call>[ \t\r\n]*<tool_call>"),
    inside=False,
)


class Function(NamedTuple):
    """A call: its name, its values as they were written, whether they are text where their tags tell it, and
    the offset behind it."""

    name: str
    values: dict[str, str]
    told: dict[str, bool]
    end: int


def read(text: str, begin: int, form: Form) -> Function | bool:
    """The call that begins at `begin`; else whether more text could make it one."""
    name = form.name.match(text, begin)
    if name is None:
        return _is_begun(text[begin : begin + 2 * LONGEST], form.head)
    values: dict[str, str] = {}
    told: dict[str, bool] = {}
    at = _behind_blanks(text, name.end())
    while not text.startswith(form.end, at):
        key = form.key.match(text, at)
        if key is None:
            rest = text[at : at + 2 * LONGEST]
            return form.end.startswith(rest) or _is_begun(rest, form.key_head)
        end, behind = _value_end(text, key.end(), form)
        cut = form.cut.search(text, key.end(), end if end >= 0 else len(text))
        if cut is not None or end < 0:
            return cut is None
        called = key[1].strip()
        value = text[key.end() : end]
        values[called] = value.removeprefix("\n").removesuffix("\n") if form.lined else value
        if key.lastindex == 2:
            told[called] = key[2] == "true"
        at = behind
    return Function(name[1].strip(), values, told, at + len(form.end) * form.inside)


def arguments(function: Function, parameters: object) -> str:
    """JSON of a call's values, each of a type that its tag or `parameters`, the tool's schema, has for it.

    A value that is none of these types stays text: it fails the schema then.
    """
    root = parameters if isinstance(parameters, Mapping) else {}
    properties = root.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    others = root.get("additionalProperties")
    typed = {}
    for key, text in function.values.items():
        said = _said(known.get(key, others), root)
        if key in function.told:
            said = _Said({"string"} if function.told[key] else {"array"}, set())
        typed[key] = _typed(text, said)
    return json.dumps(typed, ensure_ascii=False)


def _is_begun(rest: str, tag: str) -> bool:
    """Whether `rest`, up to the text's end or longer than a name, may be the begin of `tag` and a name."""
    if len(rest) <= len(tag):
        return tag.startswith(rest)
    return rest.startswith(tag) and len(rest) < LONGEST and "\n" not in rest[len(tag) :]


def _behind_blanks(text: str, at: int) -> int:
    return _BLANK.match(text, at).end()  # type: ignore[union-attr]  # matches the empty string


def _value_end(text: str, begin: int, form: Form) -> tuple[int, int]:
    """Where the value that begins at `begin` ends, and where what follows it begins; (-1, -1) if nowhere."""
    end = begin
    while (end := text.find(form.value_end, end)) >= 0:
        behind = _behind_blanks(text, end + len(form.value_end))
        if text.startswith((form.key_head, form.end), behind):
            return end, behind
        end += len(form.value_end)
    return -1, -1


class _Said(NamedTuple):
    """What a property's schema says of its value: of which types it may be (none where it does not say), and
    the texts that are listed."""

    types: set[str]
    texts: set[str]


def _said(schema: object, root: Mapping[str, Any]) -> _Said:
    said = _Said(set(), set())
    for part in islice(_parts(schema, root), _PARTS):
        told = part.get("type")
        said.types.update(one for one in (told if isinstance(told, list) else [told]) if isinstance(one, str))
        listed = part.get("enum")
        values = listed[:_LISTED] if isinstance(listed, list) else []
        values += [part["const"]] if "const" in part else []
        said.types.update(_TYPES[type(one)] for one in values if type(one) in _TYPES)
        said.texts.update(one for one in values if isinstance(one, str))
    return said


def _parts(schema: object, root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The schema, and those that it refers to or chooses from. Ends, whatever refers to what."""
    waiting, met = [schema], set()
    while waiting:
        one = waiting.pop()
        if not isinstance(one, Mapping):
            continue
        yield one
        for choices in map(one.get, ("anyOf", "oneOf", "allOf")):
            waiting += choices if isinstance(choices, list) else ()
        reference = one.get("$ref")
        if isinstance(reference, str) and reference.startswith("#") and reference not in met:
            met.add(reference)
            waiting.append(_at(root, reference))


def _at(root: Mapping[str, Any], reference: str) -> object:
    """What a reference into the schema itself leads to; None where it leads nowhere."""
    found: object = root
    for step in unquote(reference).removeprefix("#").split("/")[1:]:
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found


def _typed(text: str, said: _Said) -> Any:
    plain, types = text.strip(), said.types
    if "null" in types and plain == "null":
        return None
    if "string" in types or not (types or plain.startswith(("{", "["))):
        return plain if plain in said.texts and text not in said.texts else text
    if "boolean" in types and plain.lower() in _BOOLEANS:
        return _BOOLEANS[plain.lower()]
    try:
        return json.loads(plain, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text


def _no_constant(name: str) -> None:
    raise ValueError(name)
