"""Answers that have to be calls of certain tools: the grammar that an engine binds them by.

A structural tag of XGrammar's (https://xgrammar.mlc.ai/docs/tutorials/structural_tag.html), as vLLM takes it
in `structured_outputs`. It holds every form that `hermes.py` reads, so a model writes the one it has learnt,
and lets it think before that, between `<think>` and `</think>`. Not for: who asks for it (`stages/gateway`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from cursorbench.harness import function_tags
from cursorbench.harness.hermes import CLOSE, OPEN

Format = dict[str, Any]

_UNKNOWN = {"type": "object"}
_TAG_BREAKING = frozenset("<>\n")  # none of them may be in a name that stands in a tag


class ForcedCalls(msgspec.Struct, frozen=True):
    """At least one call, of one of the tools in `names`; `several`: of more, one after the other, too."""

    names: tuple[str, ...]
    several: bool = True


def structural_tag(forced: ForcedCalls, schemas: Mapping[str, object]) -> str:
    """JSON of the grammar. `schemas` of arguments are by the tools' names; without one any object will do."""
    forms = [form for name in forced.names for form in _forms(name, schemas.get(name, _UNKNOWN))]
    call = _sequence(_text(OPEN), _LINE, {"type": "or", "elements": forms}, _LINE, _text(CLOSE))
    calls = {"type": "plus", "content": _sequence(call, _LINE)} if forced.several else call
    tag = {"type": "structural_tag", "format": _sequence(_THOUGHTS, calls)}
    return msgspec.json.encode(tag).decode()


def _forms(name: str, schema: object) -> list[Format]:
    """What may stand in a call's block: Hermes's form and, where tags can hold the names, Qwen3-Coder's."""
    arguments = {"type": "json_schema", "json_schema": schema}
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
