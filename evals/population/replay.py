"""Held-out people against an engine called in batches: what the gate's harness suite measures.

Every case is one request and its reaction; a question is not answered here, so that each case is one
episode for every checkpoint. The same cases with the same luck meet candidate and baseline.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from cursorbench.harness.chat import ChatRequest
from evals.population.episode import Episode, begin, scratch
from evals.population.people import Case, day_of
from evals.population.reactions import Outcome

CompleteBatch = Callable[[list[ChatRequest]], Sequence[Mapping[str, Any] | None]]
BATCH = 512  # cases worked on at a time


@dataclass(frozen=True)
class CaseResult:
    """One held-out request, answered once.

    Attributes:
        cluster: the person.
        persisted: share of the edit left at the horizon; None when the code did not change.
        dissatisfied: the next message complains (silence counts as no complaint).
        invalid_calls: calls that do not parse, name no tool or fail its schema.
        calls: all calls, invalid ones included.
        asked: ended in a question, the code unchanged.
        edited: the code changed.
        outcome: the person's finding; the learner never sees it.
        tokens: output tokens over the chain, 0 where the engine does not tell.
        latency_s: seconds of the batches the case was in, over their sizes; comparable within a run only.
        failure: why there is no result ("" when there is one): the engine gave no answer.
    """

    case_id: str
    cluster: str
    kind: str
    persisted: float | None
    dissatisfied: bool
    invalid_calls: int
    calls: int
    asked: bool
    edited: bool
    outcome: str
    stop: str
    turns: int
    tokens: int
    latency_s: float
    failure: str = ""


def heldout(seed: int, requests: int) -> list[Case]:
    """The held-out requests of a population seed, six a person."""
    return list(chain.from_iterable(day_of("heldout", seed, max(1, requests // 6), requests)))


@dataclass
class _Running:
    episode: Episode
    tokens: int = 0
    seconds: float = 0.0


def _result(running: _Running, attempt: int) -> CaseResult:
    case, loop = running.episode.case, running.episode.loop
    reaction = None if loop.stop == "aborted" else running.episode.react(attempt=attempt)
    outcome = reaction.outcome if reaction else None
    return CaseResult(
        case_id=case.id,
        cluster=case.person.id,
        kind=case.kind,
        persisted=reaction.persisted if reaction else None,
        dissatisfied=reaction is not None and reaction.dissatisfied,
        invalid_calls=loop.invalid_calls,
        calls=len(loop.calls),
        asked=outcome is Outcome.ASKED,
        edited=outcome in (Outcome.RIGHT, Outcome.WRONG),
        outcome=str(outcome or ""),
        stop=str(loop.stop),
        turns=loop.turns,
        tokens=running.tokens,
        latency_s=running.seconds,
        failure="" if reaction else "no answer",
    )


def _turn(active: list[_Running], complete_batch: CompleteBatch) -> None:
    """One model call for each running case."""
    requests = [request for one in active if (request := one.episode.loop.next_request()) is not None]
    started = time.perf_counter()
    answers = complete_batch(requests)
    share = (time.perf_counter() - started) / max(1, len(requests))
    if len(answers) != len(requests):
        raise ValueError(f"{len(requests)} requests, {len(answers)} answers")
    for one, answer in zip(active, answers, strict=True):
        one.seconds += share
        if answer is None:
            one.episode.loop.abort()
            continue
        if answer.get("finish_reason") == "error":
            one.episode.loop.overflow()
            continue
        one.tokens += int(answer.get("output_tokens", 0))
        one.episode.loop.receive(answer, str(answer.get("finish_reason") or "stop"))


def replay(
    cases: Sequence[Case],
    complete_batch: CompleteBatch,
    *,
    temperature: float | None = None,
    max_tokens: int | None = None,
    attempt: int = 0,
    on_progress: Callable[[int], None] | None = None,
) -> list[CaseResult]:
    """Answer every case once and see how its person reacts.

    Args:
        cases: see `heldout`.
        complete_batch: model calls in, OpenAI assistant messages out, in order; None where the engine
            failed. A message may also carry `output_tokens` and `finish_reason`; "error" is a conversation
            that does not fit the model, which is no failure but where the model's words led.
        temperature: of sampling; None leaves it to the engine.
        max_tokens: of one model call; None for what an edit of a small file takes.
        attempt: number of this attempt at the cases; part of the people's luck.
        on_progress: told how many cases were finished since the last call.
    """
    results: list[CaseResult] = []
    with scratch() as root:
        for start in range(0, len(cases), BATCH):
            batch = cases[start : start + BATCH]
            running = [_Running(begin(case, root, temperature, max_tokens)) for case in batch]
            while active := [one for one in running if one.episode.loop.stop is None]:
                _turn(active, complete_batch)
            results += [_result(one, attempt) for one in running]
            for one in running:
                one.episode.close()
            if on_progress is not None:
                on_progress(len(running))
    return results
