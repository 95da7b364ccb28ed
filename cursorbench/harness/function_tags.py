"""What stands in a `<tool_call>` block of Qwen3-Coder and of models that write calls as it does: tags.

    <function=NAME>
    <parameter=KEY>
    value, as many lines as it takes
    </parameter>
    </function>

Values are plain text; of what type, the tool's schema tells. A value ends at the first `</parameter>` that
another parameter or the end of the function follows, so it may speak of these tags. Where the block ends
before, a tag was left out and the call is none: what follows would be taken for its value. Source: the
templates of Qwen3-Coder and Qwen3.5. Not for: the block around it (`hermes.py`).
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
_PARAMETER, _VALUE_END, _END = "<parameter=", "</parameter>", "</function>"
_NAME = re.compile(rf"=([^<>\n]{{1,{LONGEST}}})>")
_CUT = re.compile(r"</(?:function|parameter)>[ \t\r\n]*</tool_call>")  # the block's end, a tag too early
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


class Function(NamedTuple):
    """A call: its name, its values as they were written, and the offset behind it."""

    name: str
    values: dict[str, str]
    end: int


def read(text: str, begin: int) -> Function | bool:
    """The call that begins at `begin`, with OPENING; else whether more text could make it one."""
    name = _NAME.match(text, begin + len(OPENING) - 1)
    if name is None:
        return _is_begun(text[begin:], OPENING)
    values: dict[str, str] = {}
    at = _behind_blanks(text, name.end())
    while not text.startswith(_END, at):
        key = _NAME.match(text, at + len(_PARAMETER) - 1) if text.startswith(_PARAMETER, at) else None
        if key is None:
            rest = text[at : at + 2000]
            return _END.startswith(rest) or _is_begun(rest, _PARAMETER)
        end, behind = _value_end(text, key.end())
        cut = _CUT.search(text, key.end(), end if end >= 0 else len(text))
        if cut is not None or end < 0:
            return cut is None
        values[key[1].strip()] = text[key.end() : end].removeprefix("\n").removesuffix("\n")
        at = behind
    return Function(name[1].strip(), values, at + len(_END))


def arguments(values: Mapping[str, str], parameters: object) -> str:
    """JSON of a call's values, each of a type that `parameters`, the tool's schema, has for it.

    A value that is none of these types stays text: it fails the schema then.
    """
    root = parameters if isinstance(parameters, Mapping) else {}
    properties = root.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    others = root.get("additionalProperties")
    typed = {key: _typed(text, _said(known.get(key, others), root)) for key, text in values.items()}
    return json.dumps(typed, ensure_ascii=False)


def _is_begun(rest: str, tag: str) -> bool:
    """Whether `rest`, up to the text's end, is the beginning of `tag` and a name."""
    if len(rest) <= len(tag):
        return tag.startswith(rest)
    return rest.startswith(tag) and len(rest) < LONGEST and not set("<>\n") & set(rest[len(tag) :])


def _behind_blanks(text: str, at: int) -> int:
    return _BLANK.match(text, at).end()  # type: ignore[union-attr]  # matches the empty string


def _value_end(text: str, begin: int) -> tuple[int, int]:
    """Where the value that begins at `begin` ends, and where what follows it begins; (-1, -1) if nowhere."""
    end = begin
    while (end := text.find(_VALUE_END, end)) >= 0:
        behind = _behind_blanks(text, end + len(_VALUE_END))
        if text.startswith((_PARAMETER, _END), behind):
            return end, behind
        end += len(_VALUE_END)
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
