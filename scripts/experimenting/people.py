"""A day of the simulated population against an engine in process: `evals/population/simulate.py`, unchanged
in who asks what and how they react, with `Edge` in the place of the HTTP client.

Also says which population it is: the digest of its files stands in every report.
"""

from __future__ import annotations

import ast
import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from cursorbench.errors import UsageError
from cursorbench.harness.completion import Attribution, Completion
from evals.population.episode import scratch
from evals.population.people import Case, day_of
from evals.population.simulate import Summary, Traffic, World, live, summary
from experimenting.edge import Edge, Engine, Waves

# who the people are, what they want, how they judge and react; not how they are connected
POPULATION = ("evaluator", "files", "intents", "judge", "people", "phrases", "reactions", "words")


@cache
def population_digest() -> str:
    """sha256 over the population's files, name and text, without the lines of their imports."""
    total = hashlib.sha256()
    folder = resources.files("evals.population")
    for name in POPULATION:
        text = without_imports(folder.joinpath(f"{name}.py").read_text("utf-8"))
        total.update(f"{name}.py\0{text}\0".encode())
    return "sha256:" + total.hexdigest()


def without_imports(source: str) -> str:
    """A module's text but for its import statements: where a name comes from is not what people do."""
    lines = source.splitlines(keepends=True)
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            first, last = node.lineno - 1, node.end_lineno or node.lineno
            lines[first:last] = [""] * (last - first)
    return "".join(lines)


class _Editor:
    """One session's connection: `simulate.Connection` over waves."""

    def __init__(self, edge: Edge, waves: Waves, name: str) -> None:
        self._edge, self._waves, self._name = edge, waves, name

    async def chat(self, body: Mapping[str, Any], attribution: Attribution) -> Completion:
        call, request = self._edge.begin(body, attribution)
        answer = await self._waves.ask(self._name, request)
        seconds, first = self._edge.timed(self._name, answer)
        return self._edge.finish(call, answer, seconds, first)

    async def events(self, events: Sequence[Mapping[str, Any]]) -> None:
        found = await self._edge.events(events)
        if found["rejected"]:
            raise UsageError(f"an event was rejected: {found['rejected'][0]}")


def live_a_day(edge: Edge, engine: Engine, traffic: Traffic, seed: int) -> Summary:
    """Let the population live `traffic.day`; everything is in the edge's spool when this returns.

    `seed` is of what the engine samples.
    """
    planned = day_of(traffic.split, traffic.seed, traffic.users, traffic.requests, traffic.day)
    sessions: dict[str, list[Case]] = {}
    for cases in planned:
        for case in cases:
            sessions.setdefault(f"{case.person.id}-{case.session}", []).append(case)
    edge.admit(sorted({cases[0].person.id for cases in sessions.values()}))
    waves = Waves(engine, list(sessions), seed)
    return asyncio.run(_live(edge, waves, traffic, sessions))


async def _live(edge: Edge, waves: Waves, traffic: Traffic, sessions: Mapping[str, list[Case]]) -> Summary:
    with scratch() as root:
        worlds: list[World] = []

        async def session(name: str) -> None:
            world = World(traffic, _Editor(edge, waves, name), edge.model, root, lambda n: None)
            worlds.append(world)
            try:
                await live(world, sessions[name])
            finally:
                waves.leave(name)

        async with asyncio.TaskGroup() as tasks:
            for name in sessions:
                tasks.create_task(session(name))
            tasks.create_task(waves.run())
        whole = World(traffic, worlds[0].client, edge.model, root, lambda n: None)
        whole.done = [one for world in worlds for one in world.done]
        whole.refused = sum(world.refused for world in worlds)
    return summary(whole)
