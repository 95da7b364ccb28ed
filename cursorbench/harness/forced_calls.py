"""Answers that have to be calls of certain tools: the grammar that an engine binds them by.

A structural tag of XGrammar's (https://xgrammar.mlc.ai/docs/tutorials/structural_tag.html), as vLLM takes it
in `structured_outputs`. It holds both forms that are read of any model (`call_blocks.py`), so a model writes
the one it has learnt, and lets it think before that, between `<think>` and `</think>`. Not for: who asks for
it (`stages/gateway`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from cursorbench.harness import function_tags
from cursorbench.harness.call_blocks import CLOSE, OPEN

Format = dict[str, Any]

_UNKNOWN: dict[str, Any] = {"type": "object"}
_BLANKS = 32  # between two words of JSON, where they mean nothing: some models end in endless ones
_NUMBER = (int, float)
_LEFT_OUT: dict[str, type | tuple[type, ...]] = {
    "minProperties": _NUMBER,
    "maxProperties": _NUMBER,
    "description": str,
    "title": str,
}
_VALUES = ("const", "enum", "default", "examples")  # no schemas stand in them
_TAG_BREAKING = frozenset("<>\n")  # none of them may be in a name that stands in a tag


class ForcedCalls(msgspec.Struct, frozen=True):
    """At least one call, of one of the tools in `names`; `several`: of more, one after the other, too."""

    names: tuple[str, ...]
    several: bool = True


def structural_tag(forced: ForcedCalls | None, schemas: Mapping[str, object], text: object = None) -> str:
    """JSON of the grammar. `schemas` of arguments are by the tools' names; without one any object will do.

    `text`: the schema of what may be said in place of the calls, None where nothing may.
    """
    answers = [_sequence(_THOUGHTS, _calls(forced, schemas))] if forced is not None else []
    answers += [_json(text)] if text is not None else []
    return msgspec.json.encode({"type": "structural_tag", "format": _either(answers)}).decode()


def schema_of_text(response_format: object) -> dict[str, Any] | None:
    """The schema of text that has to be JSON; None for a `response_format` of another kind."""
    match response_format:
        case {"type": "json_object"}:
            return _UNKNOWN
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return schema
    return None


def _calls(forced: ForcedCalls, schemas: Mapping[str, object]) -> Format:
    forms = [form for name in forced.names for form in _forms(name, schemas.get(name, _UNKNOWN))]
    call = _sequence(_text(OPEN), _LINE, _either(forms), _LINE, _text(CLOSE))
    return {"type": "plus", "content": _sequence(call, _LINE)} if forced.several else call


def _forms(name: str, schema: object) -> list[Format]:
    """What may stand in a call's block: Hermes's form and, where tags can hold the names, Qwen3-Coder's."""
    arguments = _json(schema)
    head = f'{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": '
    hermes = _sequence(_text(head), arguments, _text("}"))
    if not all(map(_in_a_tag, (name, *_properties(schema)))):
        return [hermes]
    head, tagged = f"{function_tags.OPENING}{name}>\n", {**arguments, "style": "qwen_xml"}
    return [hermes, _sequence(_text(head), tagged, _LINE, _text("</function>"))]


def _in_a_tag(name: str) -> bool:
    """Whether it is read in a tag as it is written."""
    return 0 < len(name) <= function_tags.LONGEST and name == name.strip() and not _TAG_BREAKING & set(name)


def _properties(schema: object) -> Mapping[str, object]:
    found = schema.get("properties") if isinstance(schema, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _json(schema: object) -> Format:
    return {"type": "json_schema", "json_schema": _held(schema), "max_whitespace_cnt": _BLANKS}


def _held(schema: object) -> object:
    """What a grammar is made of: no counts of properties (for 300 of them XGrammar takes minutes, in which it
    makes no other grammar), and no descriptions, which bind nothing."""
    if isinstance(schema, list):
        return [_held(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    said = {name: part for name, part in schema.items() if not isinstance(part, _LEFT_OUT.get(name, ()))}
    return {name: part if name in _VALUES else _held(part) for name, part in said.items()}


def _either(elements: list[Format]) -> Format:
    return {"type": "or", "elements": elements}


def _sequence(*elements: Format) -> Format:
    return {"type": "sequence", "elements": list(elements)}


def _text(value: str) -> Format:
    return {"type": "const_string", "value": value}


_LINE = {"type": "regex", "pattern": "\\n?"}
_UNCALLED = {"type": "any_text", "excludes": [OPEN]}  # such a block of a thought would be read as a call
_THOUGHT = {"type": "tag", "begin": "<think>", "content": _UNCALLED, "end": "</think>"}
_THOUGHTS = {
    "type": "optional",
    "content": _sequence(_THOUGHT, {"type": "regex", "pattern": "\\n{0,2}"}),
}
