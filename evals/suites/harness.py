"""Held-out users and their requests, answered by the agent in batches: what people would notice.

Every case is one request of one simulated person (`evals/population/`); what the person does about
the answer is judged as in production: is the edit still there, is the next message a complaint, do
calls break. Clustered by person. Not the benchmark (its tasks come from real repositories).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from cursorbench.errors import UsageError
from evals.cases import Attempt, Metric, SuiteSpec
from evals.population import replay as population
from evals.population.people import Case
from evals.suites.base import Advance, Subject

# Margins are several standard errors of 1,500 requests, so that an equal model passes; see docs/gate.md.
METRICS = (
    Metric("edit_persistence", "higher", 0.07, "share", "of edits, the part kept", bounds=(0, 1)),
    Metric("dissatisfied_followup", "lower", 0.05, "share", "next message complains", bounds=(0, 1)),
    Metric("invalid_calls", "lower", 0.03, "share", "requests with a broken call", bounds=(0, 1)),
    Metric("edit_rate", "higher", 0.1, "share", "requests that changed code", bounds=(0, 1), gated=False),
    Metric("ask_rate", "lower", 0.1, "share", "requests answered by asking", bounds=(0, 1), gated=False),
    Metric("tokens", "lower", 10.0, "tokens", "written per request", gated=False),
    Metric("turns", "lower", 0.5, "calls", "model calls per request", gated=False),
)


class HarnessSuite:
    """The agent on held-out requests.

    Args:
        requests: how many.
        seed: which held-out people.
        attempts: answers per request.
        temperature: of sampling; None for the engine's own, which is what users are served with.
        max_tokens: of one model call; None for the population's own.
    """

    name = "harness"
    batch = 256  # as many as an engine answers at once

    def __init__(
        self,
        requests: int,
        seed: int,
        attempts: int = 1,
        temperature: float | None = None,
        max_tokens: int | None = None,
    ) -> None:
        self._requests, self._seed = requests, seed
        self._attempts, self._temperature, self._max_tokens = attempts, temperature, max_tokens

    @property
    def spec(self) -> SuiteSpec:
        """Persistence, dissatisfaction and broken calls are gated, the rest is reported."""
        return SuiteSpec(self.name, METRICS, self._attempts, "user")

    def cases(self) -> Sequence[str]:
        """Case ids, person by person."""
        return list(self._by_id)

    def run(self, subject: Subject, cases: Sequence[str], advance: Advance, first: int = 0) -> list[Attempt]:
        """Answer the named requests. Raises UsageError for a case that is not in the suite."""
        unknown = [case for case in cases if case not in self._by_id]
        if unknown:
            raise UsageError(f"{unknown[0]} is no held-out request of this suite")
        chosen = [self._by_id[case] for case in cases]
        return [
            _attempt(result, number)
            for number in range(first, first + self._attempts)
            for result in population.replay(
                chosen,
                subject.complete_batch,
                temperature=self._temperature,
                max_tokens=self._max_tokens,
                attempt=number,
                on_progress=advance,
            )
        ]

    @cached_property
    def _by_id(self) -> dict[str, Case]:
        return {case.id: case for case in population.heldout(self._seed, self._requests)}


def _attempt(result: population.CaseResult, number: int) -> Attempt:
    if result.failure:
        return Attempt(result.case_id, result.cluster, number, {}, failure=result.failure)
    kept = result.persisted
    values = {
        "edit_persistence": (0.0, 0.0) if kept is None else (float(kept), 1.0),
        "dissatisfied_followup": (float(result.dissatisfied), 1.0),
        "invalid_calls": (float(result.invalid_calls > 0), 1.0),
        "edit_rate": (float(result.edited), 1.0),
        "ask_rate": (float(result.asked), 1.0),
        "tokens": (float(result.tokens), 1.0),
        "turns": (float(result.turns), 1.0),
    }
    detail = {"kind": result.kind, "outcome": result.outcome, "stop": result.stop, "calls": result.calls}
    return Attempt(result.case_id, result.cluster, number, values, detail=detail)
