"""What a checkpoint is worth to people nobody trains on: the same held-out requests for every checkpoint.

One row per request; service seconds as in `edge.py`. The learner never sees these people.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from cursorbench.harness.chat import ChatRequest
from evals.population.people import Case
from evals.population.replay import CaseResult, heldout, replay
from evals.stats.intervals import clustered
from experimenting.edge import Engine, Service

PEOPLE = 7_000_001  # held-out population seed: neither the gate's nor the demo's

# figure -> what it is; in tables, plots and documents
FIGURES: Mapping[str, str] = {
    "edit_persistence": "of edits, the part still there after an hour",
    "dissatisfied_followup": "requests whose next message complains",
    "latency_s": "seconds of a request's model calls, alone on the engine",
    "broken_calls": "requests with a call that does not parse, names no tool or fails its schema",
    "ask_rate": "requests answered by a question, code unchanged",
    "edit_rate": "requests that changed code",
    "right_edits": "requests after which the code does what was meant",
    "tokens": "output tokens of a request",
    "turns": "model calls of a request",
    "parallel_calls": "of requests with several calls, the share that made them side by side",
}

Row = dict[str, Any]


def measure(engine: Engine, requests: int, service: Service, seed: int) -> list[Row]:
    """Answer the first `requests` held-out requests with what the engine holds; one row each."""
    cases = heldout(PEOPLE, requests)
    seconds: defaultdict[str, float] = defaultdict(float)
    known: defaultdict[str, int] = defaultdict(int)
    fresh_seed: list[int | None] = [seed]

    def complete(batch: list[ChatRequest]) -> Sequence[Mapping[str, Any] | None]:
        answers = engine.chat(batch, seed=fresh_seed.pop() if fresh_seed else None)
        for request, answer in zip(batch, answers, strict=True):
            if answer["finish_reason"] == "error":
                continue
            text = str(request.messages[1]["content"])
            prompt, output = int(answer["prompt_tokens"]), int(answer["output_tokens"])
            seconds[text] += service.seconds(max(0, prompt - known[text]), output)
            known[text] = prompt + output
        return [None if answer["finish_reason"] == "error" else answer for answer in answers]

    found = replay(cases, complete)
    return [_row(case, one, seconds[case.text]) for case, one in zip(cases, found, strict=True)]


def _row(case: Case, one: CaseResult, seconds: float) -> Row:
    return {
        "case": one.case_id,
        "user": one.cluster,
        "kind": case.kind,
        "persisted": one.persisted,
        "dissatisfied": one.dissatisfied,
        "broken": one.invalid_calls > 0,
        "asked": one.asked,
        "edited": one.edited,
        "outcome": one.outcome,
        "tokens": one.tokens,
        "turns": one.turns,
        "calls": one.calls,
        "seconds": round(seconds, 5),
        "failure": one.failure,
    }


def columns(rows: Sequence[Row]) -> dict[str, tuple[list[float], list[float]]]:
    """Numerators and denominators by figure, over the requests that were answered."""
    ones = [1.0] * len(rows)

    def share(name: str) -> tuple[list[float], list[float]]:
        return [float(row[name]) for row in rows], ones

    several = [float(row["calls"] > 1) for row in rows]
    return {
        "edit_persistence": (
            [float(row["persisted"] or 0.0) for row in rows],
            [float(row["persisted"] is not None) for row in rows],
        ),
        "dissatisfied_followup": share("dissatisfied"),
        "latency_s": share("seconds"),
        "broken_calls": share("broken"),
        "ask_rate": share("asked"),
        "edit_rate": share("edited"),
        "right_edits": ([float(row["outcome"] == "right") for row in rows], ones),
        "tokens": share("tokens"),
        "turns": share("turns"),
        # calls beyond one a turn were made side by side
        "parallel_calls": (
            [float(row["calls"] > 1 and row["calls"] >= row["turns"]) for row in rows],
            several,
        ),
    }


def answered(rows: Sequence[Row]) -> list[Row]:
    """Without what the engine could not answer."""
    return [row for row in rows if not row["failure"]]


def figures(rows: Sequence[Row]) -> dict[str, dict[str, float | int | None]]:
    """Every figure with its 95 % interval, clustered by person."""
    kept = answered(rows)
    users = [row["user"] for row in kept]
    open_ended = {"latency_s", "tokens", "turns"}
    return {
        name: clustered(values, over, users, bounds=None if name in open_ended else (0.0, 1.0)).to_json()
        for name, (values, over) in columns(kept).items()
    }
