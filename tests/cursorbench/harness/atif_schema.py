"""ATIF 1.7 as a JSON schema, after Harbor's RFC 0001; what a schema cannot say is code."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from jsonschema import Draft202012Validator


def closed(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


TEXT, COUNT, NUMBER, EXTRA = (
    {"type": "string"},
    {"type": "integer", "minimum": 0},
    {"type": "number"},
    {"type": "object"},
)
CALL = closed(
    ["tool_call_id", "function_name", "arguments"],
    tool_call_id=TEXT,
    function_name=TEXT,
    arguments={"type": "object"},
    extra=EXTRA,
)
RESULT = closed([], source_call_id=TEXT, content=TEXT, extra=EXTRA)
METRICS = closed(
    [],
    prompt_tokens=COUNT,
    completion_tokens=COUNT,
    cached_tokens=COUNT,
    cost_usd=NUMBER,
    prompt_token_ids={"type": "array", "items": COUNT},
    completion_token_ids={"type": "array", "items": COUNT},
    logprobs={"type": "array", "items": NUMBER},
    extra=EXTRA,
)
STEP = closed(
    ["step_id", "source", "message"],
    step_id={"type": "integer", "minimum": 1},
    timestamp=TEXT,
    source={"enum": ["system", "user", "agent"]},
    model_name=TEXT,
    message=TEXT,
    reasoning_content=TEXT,
    tool_calls={"type": "array", "items": CALL},
    observation=closed(["results"], results={"type": "array", "items": RESULT}),
    metrics=METRICS,
    is_copied_context={"type": "boolean"},
    llm_call_count=COUNT,
    extra=EXTRA,
)
TRAJECTORY = closed(
    ["schema_version", "agent", "steps"],
    schema_version={"const": "ATIF-v1.7"},
    session_id=TEXT,
    trajectory_id=TEXT,
    agent=closed(
        ["name", "version"],
        name=TEXT,
        version=TEXT,
        model_name=TEXT,
        tool_definitions={"type": "array", "items": {"type": "object"}},
        extra=EXTRA,
    ),
    steps={"type": "array", "items": STEP, "minItems": 1},
    notes=TEXT,
    final_metrics=closed(
        [],
        total_prompt_tokens=COUNT,
        total_completion_tokens=COUNT,
        total_cached_tokens=COUNT,
        total_cost_usd=NUMBER,
        total_steps=COUNT,
        extra=EXTRA,
    ),
    continued_trajectory_ref=TEXT,
    extra=EXTRA,
)
_VALIDATOR = Draft202012Validator(TRAJECTORY)


def check(found: dict[str, Any]) -> None:
    """Raises AssertionError or ValidationError for what is no ATIF 1.7."""
    _VALIDATOR.validate(found)
    for number, step in enumerate(found["steps"], 1):
        assert step["step_id"] == number
        if step["source"] != "agent":
            assert not {"model_name", "reasoning_content", "tool_calls", "metrics"} & set(step)
        ids = {call["tool_call_id"] for call in step.get("tool_calls", [])}
        for result in step.get("observation", {"results": []})["results"]:
            assert result.get("source_call_id") in {None, *ids}
        if "timestamp" in step:
            assert datetime.fromisoformat(step["timestamp"]).tzinfo is not None
    try:
        from harbor.models.trajectories import Trajectory  # where Harbor is installed, its own word counts
    except ImportError:
        return
    Trajectory(**found)
