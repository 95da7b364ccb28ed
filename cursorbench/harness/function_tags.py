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
from collections.abc import Mapping
from typing import Any, NamedTuple

OPENING = "<function="
_PARAMETER, _VALUE_END, _END = "<parameter=", "</parameter>", "</function>"
_NAME = re.compile(r"=([^<>\n]{1,1000})>")
_CUT = re.compile(r"</(?:function|parameter)>[ \t\r\n]*</tool_call>")  # the block's end, a tag too early
_BLANK = re.compile(r"[ \t\r\n]*")
_BOOLEANS = {"true": True, "false": False}


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
    properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
    known = properties if isinstance(properties, Mapping) else {}
    typed = {key: _typed(text, _types(known.get(key))) for key, text in values.items()}
    return json.dumps(typed, ensure_ascii=False)


def _is_begun(rest: str, tag: str) -> bool:
    """Whether `rest`, up to the text's end, is the beginning of `tag` and a name."""
    if len(rest) <= len(tag):
        return tag.startswith(rest)
    return rest.startswith(tag) and len(rest) < 1000 and not set("<>\n") & set(rest[len(tag) :])


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


def _types(schema: object) -> frozenset[str]:
    """The types that a property may have; none where its schema does not say so itself."""
    if not isinstance(schema, Mapping):
        return frozenset()
    told = schema.get("type")
    if isinstance(told, str):
        return frozenset({told})
    if isinstance(told, list):
        return frozenset(one for one in told if isinstance(one, str))
    choices = schema.get("anyOf") or schema.get("oneOf")
    return frozenset().union(*map(_types, choices)) if isinstance(choices, list) else frozenset()


def _typed(text: str, types: frozenset[str]) -> Any:
    plain = text.strip()
    if "null" in types and plain == "null":
        return None
    if "string" in types or not (types or plain.startswith(("{", "["))):
        return text
    if "boolean" in types and plain.lower() in _BOOLEANS:
        return _BOOLEANS[plain.lower()]
    try:
        return json.loads(plain, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text


def _no_constant(name: str) -> None:
    raise ValueError(name)
