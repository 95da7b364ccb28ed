"""Every way in which a trial can end, whose matter it is, whether it is tried again, and what its grade is.

One table for all. `grade`: `tests`, the tests decided (a solution counts however the agent stopped); `zero`,
what the model did cannot be a solution; `none`, infrastructure: no grade, never a zero, counted apart. What a
model can bring about is never infrastructure, or a candidate could void its own gate; who failed when an
outside agent's command did is asked of the engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cursorbench.harness.budget import StopReason

Grade = Literal["tests", "zero", "none"]
Whose = Literal["", "model", "agent", "tests", "infrastructure"]


@dataclass(frozen=True)
class Cause:
    """One row: whose matter it is, how often it is tried again, the grade, and a line for people."""

    whose: Whose
    retries: int
    grade: Grade
    what: str


TABLE: dict[str, Cause] = {
    "solved": Cause("", 0, "tests", "every expected test passed, and the report is believed"),
    # what the model did
    "no_answer": Cause("model", 0, "tests", "an empty answer: no text, no call, no change"),
    "broken_call": Cause("model", 0, "tests", "every call of its last message was broken"),
    "truncated": Cause("model", 0, "tests", "out of tokens before it answered or called"),
    "output_flood": Cause("model", 0, "tests", "its commands were ended for their output or memory"),
    "max_turns": Cause("model", 0, "tests", "the budget's model calls were over: going round in circles"),
    "max_output_tokens": Cause("model", 0, "tests", "the budget's output tokens were over"),
    "max_total_tokens": Cause("model", 0, "tests", "the budget's tokens were over"),
    "max_seconds": Cause("model", 0, "tests", "the budget's time was over"),
    "max_tool_calls": Cause("model", 0, "tests", "the budget's tool calls were over"),
    "context_full": Cause("model", 0, "tests", "the conversation no longer fitted the model"),
    "no_summary": Cause("model", 0, "tests", "asked to sum up, it wrote nothing"),
    "too_large": Cause("model", 0, "zero", "it changed more than a patch can hold"),
    "refused_request": Cause("model", 0, "tests", "the engine refuses what the conversation has become"),
    # an agent run by its own command; its model can end it: no second try for one that dislikes the first
    "agent_failed": Cause("agent", 0, "tests", "the agent's command ended with another status than 0"),
    # what the tests said
    "failed": Cause("tests", 0, "tests", "an expected test did not pass"),
    "missing": Cause("tests", 0, "tests", "an expected test is not in the report"),
    "no_report": Cause("tests", 0, "zero", "the tests wrote no report"),
    "timeout": Cause("tests", 0, "zero", "the tests did not end in their time"),
    "memory": Cause("tests", 0, "zero", "the tests took more memory than they may"),
    "output": Cause("tests", 0, "zero", "the tests wrote more than they may"),
    "patch": Cause("tests", 0, "zero", "the change does not apply to the base"),
    "forged": Cause("tests", 0, "zero", "the report says what cannot be"),
    # infrastructure
    "sandbox_died": Cause("infrastructure", 2, "none", "the sandbox died, or none could be made"),
    "engine_down": Cause("infrastructure", 1, "none", "the engine did not answer"),
    "engine_timeout": Cause("infrastructure", 1, "none", "an answer of the engine took too long"),
    "agent_unstarted": Cause(
        "infrastructure", 1, "none", "the agent's command came to nothing before the model had said anything"
    ),
    "environment": Cause("infrastructure", 1, "none", "the task's environment could not be made"),
    "grader_died": Cause("infrastructure", 2, "none", "grading broke off"),
    "worker_died": Cause("infrastructure", 1, "none", "the process that made the trial died"),
    "worker_hung": Cause("infrastructure", 0, "none", "the trial was killed long after its time"),
}

_STOPS = {
    StopReason.BROKEN_CALL: "broken_call",
    StopReason.TRUNCATED: "truncated",
    StopReason.MAX_TURNS: "max_turns",
    StopReason.MAX_OUTPUT_TOKENS: "max_output_tokens",
    StopReason.MAX_TOTAL_TOKENS: "max_total_tokens",
    StopReason.MAX_SECONDS: "max_seconds",
    StopReason.MAX_TOOL_CALLS: "max_tool_calls",
    StopReason.CONTEXT_FULL: "context_full",
    StopReason.NO_SUMMARY: "no_summary",
    StopReason.CANCELLED: "max_seconds",
    StopReason.AGENT_FAILED: "agent_failed",
}


def of_stop(stop: StopReason | None) -> str:
    """The cause of the harness's reason to stop, "" for an answer. Infrastructure is not decided here."""
    return _STOPS.get(stop, "") if stop is not None else ""


def infrastructure(cause: str) -> bool:
    """Whether a cause says nothing about the model."""
    return TABLE[cause].grade == "none"
