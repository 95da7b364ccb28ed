"""The tools that a call of a model was offered, as spans have them. For `otel`.

`gen_ai.tool.definitions` of the conventions, and what OpenLLMetry, OpenInference, Vercel's AI SDK, Logfire's
clients and the SDKs of Langfuse and LangSmith have of their own. Not for: checking calls (`definitions.py`).
"""

from __future__ import annotations

import re
from typing import Any

from cursorbench.sessions import otel_whole
from cursorbench.sessions.reading import json_value, table_of

_FIELD = re.compile(r"llm\.request\.functions\.([0-9]{1,4})\.(name|parameters)")  # OpenLLMetry's
_SCHEMA = re.compile(r"llm\.tools\.([0-9]{1,4})\.tool\.json_schema")  # OpenInference's
_REQUESTS = ("request_data", "langfuse.observation.input")


def offered(told: dict[str, Any]) -> list[object]:
    """What defines them, as `KnownDefinitions` takes it."""
    found = [told.get("gen_ai.tool.definitions"), told.get("ai.prompt.tools")]
    found += [table_of(json_value(told.get(name))).get("tools") for name in _REQUESTS]
    found.append(otel_whole.inputs(told).get("tools"))
    fields: dict[int, dict[str, Any]] = {}
    schemas = list[object]()
    for key, value in told.items():
        if parts := _FIELD.fullmatch(key):
            of = fields.setdefault(int(parts[1]), {})
            of[parts[2]] = value if parts[2] == "name" else json_value(value)
        elif _SCHEMA.fullmatch(key):
            schemas.append(value)
    return [*found, schemas, [one for _, one in sorted(fields.items())]]
