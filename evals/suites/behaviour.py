"""Behaviour probes: does the checkpoint still act where it should, ask where it should, and call cleanly?

Each probe is one request in a folder of its own, answered by the production agent loop with the small set of
tools; nothing of what the model writes is executed. Whether the result is right is not judged here: that is
the benchmark's. Clustered by probe. Not here: what is asked (`probes.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

from cursorbench.errors import UsageError
from cursorbench.graders.interaction import Did, did
from cursorbench.harness.budget import StopReason
from cursorbench.harness.loop import DEFAULT_BUDGET, AgentLoop
from cursorbench.harness.toolbox import Toolbox
from cursorbench.harness.tools import SMALL_TOOLS
from cursorbench.harness.workplace import Folder
from cursorbench.scratch import scratch
from evals.cases import Attempt, Metric, SuiteSpec
from evals.population.people import SYSTEM, message
from evals.suites.base import Advance, CompleteBatch, Subject, refused
from evals.suites.probes import Probe

ATTEMPTS = 10  # answers a probe: a few dozen probes say little once
MAX_TOKENS = 256  # of one model call
BUDGET = replace(DEFAULT_BUDGET, wall_s=math.inf)  # in step, one's time is also the others'

METRICS = (
    Metric("edits_when_clear", "higher", 0.15, "share", "clear requests that changed code", bounds=(0, 1)),
    Metric("asks_when_clear", "lower", 0.15, "share", "clear requests answered by asking", bounds=(0, 1)),
    Metric("invalid_calls", "lower", 0.1, "share", "requests with a broken call", bounds=(0, 1)),
    Metric(
        "asks_when_ambiguous", "higher", 0.2, "share", "of ambiguous requests", bounds=(0, 1), gated=False
    ),
    Metric("edit_rate", "higher", 0.1, "share", "requests that changed code", bounds=(0, 1), gated=False),
    Metric("ask_rate", "lower", 0.1, "share", "requests answered by asking", bounds=(0, 1), gated=False),
    Metric("tokens", "lower", 50.0, "tokens", "written per request", gated=False),
    Metric("turns", "lower", 0.5, "calls", "model calls per request", gated=False),
)


@dataclass
class _Asked:
    """A probe being answered."""

    probe: Probe
    loop: AgentLoop
    tokens: int = 0


class BehaviourSuite:
    """Probes for an agent.

    Args:
        load: gives the probes; called once, when they are needed.
        attempts: answers a probe.
        temperature: of sampling; None for the engine's own, which is what users are served with.
        max_tokens: of one model call; None for `MAX_TOKENS`.
    """

    name = "behaviour"
    batch = 32  # probes at once

    def __init__(
        self,
        load: Callable[[], Sequence[Probe]],
        attempts: int = ATTEMPTS,
        temperature: float | None = None,
        max_tokens: int | None = None,
    ) -> None:
        self._load, self._attempts, self._temperature = load, attempts, temperature
        self._max_tokens = max_tokens or MAX_TOKENS

    @property
    def spec(self) -> SuiteSpec:
        """What needs clear requests is gated only where there are some."""
        clear = any(probe.kind == "clear" for probe in self._probes.values())
        metrics = tuple(
            replace(metric, gated=metric.gated and (clear or not metric.name.endswith("_when_clear")))
            for metric in METRICS
        )
        return SuiteSpec(self.name, metrics, self._attempts, "probe")

    def cases(self) -> Sequence[str]:
        """The probes' ids."""
        return list(self._probes)

    def run(self, subject: Subject, cases: Sequence[str], advance: Advance, first: int = 0) -> list[Attempt]:
        """Ask the named probes. Raises UsageError for one that is not in the suite."""
        unknown = [case for case in cases if case not in self._probes]
        if unknown:
            raise UsageError(f"{unknown[0]} is no probe of this suite")
        found: list[Attempt] = []
        for number in range(first, first + self._attempts):
            with self._begun([self._probes[case] for case in cases]) as asked:
                while any(one.loop.stop is None for one in asked):
                    _turn([one for one in asked if one.loop.stop is None], subject.complete_batch)
                found += [_attempt(one, number) for one in asked]
            advance(len(cases))
        return found

    @cached_property
    def _probes(self) -> dict[str, Probe]:
        return {probe.id: probe for probe in self._load()}

    @contextmanager
    def _begun(self, probes: Sequence[Probe]) -> Iterator[list[_Asked]]:
        """The probes' folders, there as long as they are worked in."""
        with scratch("rtrl-probes-") as root:
            asked = []
            for number, probe in enumerate(probes):
                folder = root / str(number)
                folder.mkdir()
                for name, text in probe.files.items():
                    path = folder / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(text, encoding="utf-8")
                tools = Toolbox(Folder(folder), SMALL_TOOLS)
                loop = AgentLoop(
                    tools,
                    SYSTEM,
                    _request(probe),
                    BUDGET,
                    max_tokens=self._max_tokens,
                    temperature=self._temperature,
                )
                asked.append(_Asked(probe, loop))
            yield asked


def _request(probe: Probe) -> str:
    """The user's words, after the file where there is just one: what an editor has open."""
    if len(probe.files) != 1:
        return probe.prompt
    ((name, text),) = probe.files.items()
    return message(name, text, probe.prompt)


def _turn(running: Sequence[_Asked], complete_batch: CompleteBatch) -> None:
    """One model call for each."""
    pairs = [(one, request) for one in running if (request := one.loop.next_request()) is not None]
    answers = complete_batch([request for _, request in pairs]) if pairs else []
    if len(answers) != len(pairs):
        raise ValueError(f"{len(pairs)} requests, {len(answers)} answers")
    for (one, _), answer in zip(pairs, answers, strict=True):
        if answer is None:
            one.loop.abort("no answer")
        elif refused(answer):
            one.loop.overflow()
        else:
            one.tokens += int(answer.get("output_tokens", 0))
            one.loop.receive(answer, str(answer.get("finish_reason") or "stop"))


def _attempt(one: _Asked, number: int) -> Attempt:
    probe, loop = one.probe, one.loop
    if loop.stop is StopReason.ABORTED:
        return Attempt(probe.id, probe.id, number, {}, failure="no answer")
    what: Did = did("edited" if loop.edits else "", loop.final_text)
    asked, edited = float(what == "asked"), float(what == "acted")
    clear, ambiguous = float(probe.kind == "clear"), float(probe.kind == "ambiguous")
    values = {
        "edits_when_clear": (edited * clear, clear),
        "asks_when_clear": (asked * clear, clear),
        "asks_when_ambiguous": (asked * ambiguous, ambiguous),
        "invalid_calls": (float(loop.invalid_calls > 0), 1.0),
        "edit_rate": (edited, 1.0),
        "ask_rate": (asked, 1.0),
        "tokens": (float(one.tokens), 1.0),
        "turns": (float(loop.turns), 1.0),
    }
    detail = {"kind": probe.kind, "did": what, "stop": str(loop.stop)}
    return Attempt(probe.id, probe.id, number, values, detail=detail)
