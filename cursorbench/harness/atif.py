"""Episodes as trajectories in ATIF, Harbor's Agent Trajectory Interchange Format, version 1.7. Pure.

After RFC 0001 of Harbor (docs/rfcs/0001-trajectory-format.md) and its models of version 0.25. A step is a
message of system or user, or one model call with its tool calls and what came of them. An episode that
summed itself up is one trajectory: the summary is a step like any other, and the conversation that goes on
from it follows, its repeated system prompt marked as copied. What ATIF has no place for (why an episode
ended, classes of errors, generation ids) stands under `extra`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from cursorbench.harness.episode import CallRecord, Episode, Message, Turn
from cursorbench.harness.results import printable

SCHEMA_VERSION = "ATIF-v1.7"
SUMMED = (
    "The agent summed up its conversation and went on from the summary, or had helpers: "
    "see `segment` of the steps."
)

Step = dict[str, Any]
_SOURCES = {"system": "system", "developer": "system", "user": "user", "assistant": "agent"}


def trajectory(
    episode: Episode,
    *,
    agent: str = "rtrl",
    version: str = "",
    model: str = "",
    session_id: str = "",
    trajectory_id: str = "",
) -> dict[str, Any]:
    """The trajectory as plain JSON values.

    Args:
        agent, version: of the harness, or of the outside agent.
        model: name of the model that answered.
        session_id: of the run; several trajectories may share it.
        trajectory_id: of this one.
    """
    steps = list(_steps(episode))
    for number, step in enumerate(steps, 1):
        step["step_id"] = number
    named = {"model_name": model, "tool_definitions": [_definition(tool) for tool in episode.tools]}
    found: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "session_id": session_id,
        "trajectory_id": trajectory_id,
        "agent": {"name": agent, "version": version or "unknown", **_there(named)},
        "steps": steps,
        "notes": SUMMED if any(turn.summary or turn.segment for turn in episode.turns) else "",
        "final_metrics": {
            "total_prompt_tokens": episode.prompt_tokens,
            "total_completion_tokens": episode.output_tokens,
            "total_steps": len(steps),
            "extra": {
                "seconds": episode.seconds,
                "tool_calls": len(episode.calls),
                "invalid_tool_calls": episode.invalid_calls,
            },
        },
        "extra": _there({"stop": str(episode.stop or ""), "failure": printable(episode.failure)}),
    }
    return _there(found)


def _steps(episode: Episode) -> Iterator[Step]:
    if not episode.turns:
        for source, said in (("system", episode.system), ("user", episode.request)):
            yield {"source": source, "message": printable(said)}
    calls: dict[int, list[CallRecord]] = {}
    for call in episode.calls:
        calls.setdefault(call.turn, []).append(call)
    told: dict[tuple[str, str], int] = {}  # messages, by the segment in which they were told first
    for turn in episode.turns:
        yield from _asked(turn, told)
        yield _answered(turn, calls.get(turn.number, []), episode.began)


def _asked(turn: Turn, told: dict[tuple[str, str], int]) -> Iterator[Step]:
    """Messages that are new in a prompt. Those of tools are in the steps whose calls they answer.

    Copied is what was answered before, and what another conversation of the episode began with.
    """
    sources = [_SOURCES.get(str(message.get("role"))) for message in turn.asked]
    for place, (source, message) in enumerate(zip(sources, turn.asked, strict=True)):
        if source is None:
            continue
        step: Step = {"source": source, "message": _text(message)}
        answered = source == "agent" or (source == "user" and "agent" in sources[place:])
        repeated = told.setdefault((source, step["message"]), turn.segment) < turn.segment
        yield {**step, "is_copied_context": True} if answered or repeated else step


def _answered(turn: Turn, calls: list[CallRecord], began: float) -> Step:
    """One model call and what its tool calls came to."""
    known = [call for call in calls if call.error != "unparsable"]
    extra = {
        "generation_id": turn.generation_id,
        "segment": turn.segment,
        "finish_reason": turn.finish_reason,
        "summary": turn.summary or None,
        "unparsable_calls": len(calls) - len(known) or None,
        "model_seconds": turn.model_s or None,
        "tools_seconds": turn.tools_s or None,
    }
    step: Step = {
        "source": "agent",
        "message": _text(turn.message),
        "metrics": {
            "prompt_tokens": turn.usage.prompt,
            "completion_tokens": turn.usage.output,
            **({} if turn.usage.told else {"extra": {"estimated": True}}),
        },
        "llm_call_count": 1,
        "extra": _there(extra),
    }
    if thought := turn.message.get("reasoning_content"):
        step["reasoning_content"] = printable(str(thought))
    if began:
        step["timestamp"] = datetime.fromtimestamp(began + turn.at_s, UTC).isoformat()
    if known:
        step["tool_calls"] = [_call(call) for call in known]
        step["observation"] = {"results": [_result(call) for call in known]}
    return step


def _call(call: CallRecord) -> dict[str, Any]:
    """A call; arguments that are no JSON object stand as text under `extra`."""
    try:
        arguments = json.loads(call.arguments)
        json.dumps(arguments, allow_nan=False)
    except (ValueError, RecursionError):
        arguments = None
    whole = isinstance(arguments, dict)
    extra = {"invalid": call.error, "raw_arguments": "" if whole else printable(call.arguments)}
    found = {
        "tool_call_id": call.id,
        "function_name": call.name,
        "arguments": _sendable(arguments) if whole else {},
    }
    return {**found, "extra": extra} if any(extra.values()) else found


def _result(call: CallRecord) -> dict[str, Any]:
    kind = call.error_class
    extra = {
        "error": call.tool_error,
        "error_class": "" if kind is None else str(kind),
        "seconds": call.seconds or None,
        "started_seconds": call.started_s or None,
    }
    found = {"source_call_id": call.id, "content": printable(call.result)}
    return {**found, "extra": _there(extra)} if _there(extra) else found


def _text(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return printable(str(content or ""))


def _definition(tool: Mapping[str, Any]) -> Any:
    """A tool as an agent declared it, whatever is in it: one that cannot be written down is an empty one.

    What a model runs can ask the relay too, and must not keep its own trial from being recorded.
    """
    try:
        return _sendable(dict(tool))
    except (ValueError, RecursionError):
        return {}


def _sendable(value: Any) -> Any:
    """The value without lone surrogates: JSON escapes hold them, files in UTF-8 cannot."""
    return json.loads(printable(json.dumps(value, ensure_ascii=False)))


def _there(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is not known: ATIF leaves fields out rather than empty."""
    return {name: value for name, value in fields.items() if value not in (None, "", [])}
