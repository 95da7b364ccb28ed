"""What services for traces export of model calls, as the logged requests that `openai_log` reads.

Runs of LangSmith (`list_runs`, `runs/query`), events of Braintrust (`fetch`, BTQL), observations of Langfuse
(`exports_langfuse.py`), requests of Helicone, calls of LiteLLM's proxy (`exports_litellm.py`), of TensorZero
(`exports_tensorzero.py`) and of W&B's Weave, batches of Anthropic. What else a trace has (chains, tools,
retrievers) is a program's own and tells what the calls tell; verdicts on it count for its last call. Not for:
spans of OpenTelemetry, pages (`records.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from cursorbench.sessions import exports_langfuse, exports_litellm, exports_tensorzero, langchain
from cursorbench.sessions.reading import list_of, milliseconds, table_of, text_of
from cursorbench.sessions.records import first_text, number

_BATCH = {"succeeded", "errored", "canceled", "expired"}
_THREAD = ("session_id", "thread_id", "conversation_id")  # by these LangSmith groups runs


class Exported(NamedTuple):
    """A row of an export.

    Attributes:
        record: the call as a logged request; None where the row is none.
        trace: the id of the trace that it is of.
        at: when it ended, or else began, ms.
        scores: what people or programs said of it, by name.
        scored: when they did, ms, by name, where that is told.
        untold: why the row tells nothing, where that is worth saying.
    """

    record: dict[str, Any] | None
    trace: str = ""
    at: int | None = None
    scores: Mapping[str, float] = MappingProxyType({})
    scored: Mapping[str, int] = MappingProxyType({})
    untold: str = ""


def inside(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a trace that is one document; any other row itself."""
    found = exports_langfuse.observations(row)
    return [row] if found is None else found


def exported(row: dict[str, Any]) -> Exported | None:
    """What a row tells; None where it is of no service's export that is known."""
    keys = row.keys()
    for fields, one_of, reader in _SERVICES:
        if keys >= fields and (not one_of or keys & one_of):
            return reader(row)
    return None


def _langfuse(row: dict[str, Any]) -> Exported:
    asked = exports_langfuse.call(row) if exports_langfuse.is_call(row) else None
    at = _time(row, "endTime", "end_time", "startTime", "start_time")
    trace, (scores, scored) = first_text(row, "traceId", "trace_id"), exports_langfuse.scores_of(row)
    return Exported(asked, trace, at, scores, scored)


def _asked_of_anthropic(row: dict[str, Any]) -> Exported | None:
    return Exported({**row, "request": row["params"]}) if isinstance(row["params"], dict) else None


def _answered_by_anthropic(row: dict[str, Any]) -> Exported | None:
    result = table_of(row["result"])
    if result.get("type") not in _BATCH:
        return None
    answer = result.get("message") or {"error": result.get("error") or result["type"]}
    return Exported({"custom_id": row["custom_id"], "response": answer})


def _langsmith(row: dict[str, Any]) -> Exported:
    """A run. Its `session_id` is its project, not a conversation."""
    stats = table_of(row.get("feedback_stats")).items()
    scores = {name: n for name, one in stats if (n := number(table_of(one).get("avg"))) is not None}
    trace = first_text(row, "trace_id", "id")
    at = _time(row, "end_time", "start_time")
    if row["run_type"] != "llm":
        return Exported(None, trace, at, scores)
    extra, asked = table_of(row.get("extra")), table_of(row.get("inputs"))
    metadata = table_of(extra.get("metadata"))
    with_ = table_of(extra.get("invocation_params"))
    request: dict[str, Any] = {name: with_[name] for name in ("tools", "functions") if name in with_}
    request |= asked
    if "messages" in asked:
        request["messages"] = [langchain.message(one) for one in langchain.flat(asked["messages"])]
    request["model"] = first_text(asked, "model") or first_text(metadata, "ls_model_name")
    request["model"] = request["model"] or first_text(with_, "model", "model_name")
    outputs = langchain.answer(table_of(row.get("outputs")))
    record = {
        "request": request,
        "response": {**outputs, "id": first_text(outputs, "id") or text_of(row.get("id"))},
        "metadata": {name: metadata[name] for name in _THREAD if name in metadata},
        **{name: row[name] for name in ("start_time", "end_time", "error") if row.get(name)},
    }
    return Exported(record, trace, at, scores)


def _helicone(row: dict[str, Any]) -> Exported:
    """A request of Helicone's, with its user's thumb."""
    told = table_of(row.get("scores")).items()
    scores = {name: n for name, one in told if (n := number(one)) is not None}
    rated = row.get("feedback_rating")
    if isinstance(rated, bool):
        scores["thumb"] = 1.0 if rated else -1.0
    when = _time(row, "feedback_created_at")
    scored = {"thumb": when} if when is not None else {}
    model = first_text(row, "response_model", "request_model", "model")
    return Exported({**row, "model": model}, "", _time(row, "request_created_at"), scores, scored)


def _litellm(row: dict[str, Any]) -> Exported:
    record = exports_litellm.call(row)
    if exports_litellm.is_other(record):
        return Exported(None)
    why = exports_litellm.untold(row)
    return Exported(None if why else record, "", _time(record, "startTime", "start_time"), untold=why)


def _tensorzero(row: dict[str, Any]) -> Exported:
    return Exported(exports_tensorzero.call(row), "", _time(row, "timestamp"))


def _weave(row: dict[str, Any]) -> Exported:
    """A call that W&B's Weave traced; those that are asked by messages are of a model."""
    asked, given, trace = table_of(row.get("inputs")), row.get("output"), text_of(row.get("trace_id"))
    at = _time(row, "ended_at", "started_at")
    called = "model" in asked and (list_of(asked.get("messages")) or asked.get("input"))
    if not called or not isinstance(given, dict):
        return Exported(None, trace, at)
    record = {
        "request": asked,
        "response": {**given, "id": first_text(given, "id") or text_of(row.get("id"))},
        "metadata": {"thread_id": row.get("thread_id")},
        "start_time": row["started_at"],
        "end_time": row.get("ended_at"),
    }
    return Exported(record, trace, at)


def _time(table: dict[str, Any], *names: str) -> int | None:
    return next((at for name in names if (at := milliseconds(table.get(name))) is not None), None)


def _braintrust(row: dict[str, Any]) -> Exported:
    """An event of a project's log; a call's input are its messages, its output OpenAI's choices."""
    told = table_of(row.get("scores")).items()
    scores = {name: n for name, one in told if (n := number(one)) is not None}
    trace = text_of(row["root_span_id"])
    metadata, metrics = table_of(row.get("metadata")), table_of(row.get("metrics"))
    at = _time(metrics, "end", "start") or _time(row, "created")
    if table_of(row["span_attributes"]).get("type") != "llm":
        return Exported(None, trace, at, scores)
    asked, given = row.get("input"), row.get("output")
    request = {**metadata, **(asked if isinstance(asked, dict) else {"messages": asked})}
    if isinstance(asked, str):
        request["messages"] = [{"role": "user", "content": asked}]
    first = table_of(next(iter(list_of(given)), None))
    response: dict[str, Any] = {"output": given} if isinstance(given, list) else table_of(given)
    if first.get("message") or first.get("role"):
        response = {"choices": [{"message": table_of(one).get("message", one)} for one in list_of(given)]}
    elif isinstance(given, str):
        response = {"role": "assistant", "content": given}
    record = {
        "request": request,
        "response": {**response, "id": first_text(response, "id") or first_text(row, "span_id", "id")},
        "metadata": {name: metadata[name] for name in _THREAD if name in metadata},
        "start_time": metrics.get("start") or row.get("created"),
        "end_time": metrics.get("end"),
        **{name: row[name] for name in ("error",) if row.get(name)},
    }
    return Exported(record, trace, at, scores)


_SERVICES: tuple[tuple[set[str], set[str], Callable[[dict[str, Any]], Exported | None]], ...] = (
    # a row has all of these fields, and one of those; more specific ones come first
    ({"run_type"}, {"inputs", "outputs"}, _langsmith),
    ({"span_attributes", "root_span_id"}, set(), _braintrust),
    ({"type"}, {"parentObservationId", "parent_observation_id"}, _langfuse),
    ({"request_created_at"}, {"feedback_rating", "scores"}, _helicone),
    ({"request_id", "call_type", "startTime"}, {"api_key", "spend"}, _litellm),
    ({"call_type", "trace_id", "model_parameters", "startTime"}, set(), _litellm),
    ({"standard_logging_object"}, set(), _litellm),
    ({"kwargs", "response_obj"}, set(), _litellm),
    (exports_tensorzero.FIELDS, {"inference_id", "id"}, _tensorzero),
    ({"op_name", "started_at"}, set(), _weave),
    ({"custom_id", "params"}, set(), _asked_of_anthropic),
    ({"custom_id", "result"}, set(), _answered_by_anthropic),
)
