"""What Langfuse exports: observations of its APIs and its bucket, and a downloaded trace. For `exports`.

Its newer API, its exports to a bucket and its downloads tell inputs and outputs as the texts that they were
sent as, and the model as `providedModelName`. Not for: its SDK's spans (`otel.py`), rows of its tables.

Source: langfuse/langfuse (`fern/apis/server/definition`, `downloadTrace.ts`, `buildTraceExport.ts`).
"""

from __future__ import annotations

from typing import Any

from cursorbench.sessions import otel_vercel
from cursorbench.sessions.definitions import offered_in
from cursorbench.sessions.reading import list_of, milliseconds, nested_or_text, table_of, text_of
from cursorbench.sessions.records import first_text, number

_MODEL = ("model", "providedModelName", "provided_model_name")
_GENERATION = "GENERATION"


def is_observation(row: dict[str, Any]) -> bool:
    """Whether a row is an observation."""
    return "type" in row and bool(row.keys() & {"parentObservationId", "parent_observation_id"})


def is_call(row: dict[str, Any]) -> bool:
    """Whether an observation is a call of a model; others repeat what those tell."""
    return text_of(row["type"]).upper() == _GENERATION


def observations(document: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The observations of a trace in the order in which they ended, each of the trace's session, and a row
    that has what was scored of all; None where the document is no trace.

    A generation around others (`ai.generateText`, an agent's own) repeats them, and is none here.
    """
    found = [one for one in list_of(document.get("observations")) if isinstance(one, dict)]
    if not found or not all(map(is_observation, found)):
        return None
    trace = table_of(document.get("trace")) or document
    around = {text_of(one.get("parentObservationId")) for one in found if is_call(one)} - {""}
    scores = [*list_of(document.get("scores")), *list_of(table_of(document.get("trace")).get("scores"))]
    rows = []
    for one in sorted(found, key=lambda one: milliseconds(one.get("endTime") or one.get("startTime")) or 0):
        own = [score for score in map(table_of, scores) if score.get("observationId") == one.get("id")]
        told = {"sessionId": text_of(one.get("sessionId")) or trace.get("sessionId"), "scores": own}
        rows.append({**one, **told, **({"type": "SPAN"} if text_of(one.get("id")) in around else {})})
    whole = [score for score in map(table_of, scores) if not score.get("observationId")]
    about = {"type": "TRACE", "parentObservationId": None, "traceId": rows[-1].get("traceId")}
    return [*rows, {**about, "endTime": rows[-1].get("endTime"), "scores": whole}]


def scores_of(row: dict[str, Any]) -> tuple[dict[str, float], dict[str, int]]:
    """What people or programs said of an observation, those that are numbers, and when (ms); by name."""
    scores, scored = dict[str, float](), dict[str, int]()
    for one in map(table_of, list_of(row.get("scores"))):
        name, value, at = (
            text_of(one.get("name")),
            number(one.get("value")),
            milliseconds(one.get("timestamp")),
        )
        if name and value is not None:
            scores[name] = value
            scored |= {} if at is None else {name: at}
    return scores, scored


def call(row: dict[str, Any]) -> dict[str, Any]:
    """A generation as a logged request."""
    asked, given = nested_or_text(row.get("input")), nested_or_text(row.get("output"))
    told = dict(asked) if isinstance(asked, dict) else {}
    if "role" in told:
        asked = [told]
    elif isinstance(prompt := told.get("prompt"), str):  # of Vercel's AI SDK
        asked = [{"role": "user", "content": prompt}]
    else:
        lists = (nested_or_text(told.get(name)) for name in ("messages", "input"))
        asked = next((found for found in lists if isinstance(found, list)), asked)
    if isinstance(given, dict) and isinstance(given.get("message"), dict):
        given = given["message"]
    listed = [_message(one) for one in asked] if isinstance(asked, list) else asked
    answer = [_message(one) for one in given] if isinstance(given, list) else _message(given)
    tools = [found for one in list_of(listed) if (found := offered_in(table_of(one)))] or told.get("tools")
    more = {"input": listed, "output": answer, "model": first_text(row, *_MODEL)}
    return {**row, **more, **({"tools": tools} if tools else {})}


def _message(value: object) -> Any:
    """A message with the calls where OpenAI has them, and parts of Vercel's AI SDK as others write them."""
    if not isinstance(value, dict):
        return value
    if "toolCallId" in value and "type" not in value and "role" not in value:
        value = {"type": "tool-call", **value}
    more = table_of(value.get("additional_kwargs")).get("tool_calls")  # LangChain's
    told = {**value, "tool_calls": more} if more and not value.get("tool_calls") else value
    if isinstance(content := told.get("content"), list):
        told = {**told, "content": [otel_vercel.part(table_of(one) or {"text": one}) for one in content]}
    return otel_vercel.part(told) if "role" not in told else told
