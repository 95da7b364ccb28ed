"""What LiteLLM's proxy tells of its calls: rows of its spend logs, its standard payload. For `exports`.

The payload is what its callbacks are given (`standard_logging_object`), and what it writes to buckets and
sends to addresses. `trace_id`, which spend logs call `session_id`, is made anew for each request where the
client names no session. Not for: its spans (`otel.py`), its lines on the terminal.

Source: BerriAI/litellm (`schema.prisma`, `spend_tracking_utils.py`, `StandardLoggingPayload`).
"""

from __future__ import annotations

import re
from typing import Any

from cursorbench.sessions.reading import json_or_text, table_of, text_of

TRACE = "litellm_trace_id"  # by which `openai_log` knows such a name
NO_TEXTS = "LiteLLM kept no prompts in its spend logs (store_prompts_in_spend_logs)"
_ROW = {"request_id", "call_type", "startTime"}
_PAYLOAD = {"call_type", "trace_id", "model_parameters", "startTime"}
_OTHER = re.compile(r"embedding|moderation|transcription|speech|rerank|image|ocr|search|batch|file|mcp")
_TEXTS = ("messages", "proxy_server_request", "response")


def is_row(row: dict[str, Any]) -> bool:
    """Whether it is a row of the spend logs."""
    return row.keys() >= _ROW and bool(row.keys() & {"api_key", "spend"})


def call(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the spend logs, a payload, or a callback's arguments with one, as a logged request."""
    if is_row(row):
        return {**{name: row[name] for name in row if name != "session_id"}, TRACE: row.get("session_id")}
    given = table_of(row.get("kwargs"))
    told = table_of(row.get("standard_logging_object")) or table_of(given.get("standard_logging_object"))
    told = told or row
    if not told.keys() >= _PAYLOAD:
        asked = {**given, **table_of(given.get("optional_params"))}
        return {**row, "request": asked, "response": row.get("response_obj")}
    parameters = table_of(told.get("model_parameters"))
    offered: dict[str, Any] = {
        name: parameters[name] for name in ("tools", "functions") if name in parameters
    }
    return {**told, **offered, TRACE: told.get("trace_id")}


def is_other(row: dict[str, Any]) -> bool:
    """Whether it is of a call that is no answer's."""
    return _OTHER.search(text_of(row.get("call_type"))) is not None


def untold(row: dict[str, Any]) -> str:
    """Why a row tells nothing: the spend logs have no texts unless they are told to."""
    return NO_TEXTS if is_row(row) and not any(json_or_text(row.get(name)) for name in _TEXTS) else ""
