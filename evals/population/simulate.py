"""A day of simulated people's work with a served model, over HTTP; event time is virtual.

People work side by side, each one request after another; a reaction may lead to a follow-up (the answer
to a question, the request once more). What they did is reported as events and summed up for a person to
read; what the learner gets to know is what the gateway was told, nothing else.
"""

from __future__ import annotations

import asyncio
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from cursorbench.errors import RtrlError
from cursorbench.harness.completion import Attribution, Completion, RefusedError
from evals.population.client import PATIENCE_S, Client
from evals.population.episode import Episode, begin, follow_up, scratch
from evals.population.people import Case, Split, day_of
from evals.population.reactions import Outcome, Reaction
from evals.stats.intervals import Estimate, clustered

TURN_S = 2.0  # event time a model call takes
MAX_FOLLOW_UPS = 2
LINGER_S = 120.0  # event time between the last message and the end of a session


@dataclass(frozen=True)
class Traffic:
    """What is to be simulated.

    Attributes:
        base_url: the gateway's public address.
        key: API key.
        users: people.
        requests: planned requests of the day; follow-ups come on top.
        seed: which population of the split.
        split: "train", or "heldout" for people nobody trains on.
        day: which day of these people's lives, from 0; each has requests of its own, and a later date.
        concurrency: people at work at a time.
        temperature: of sampling; None asks for none, so that people get what the gateway serves with.
        patience_s: how long the service may be away before the day is given up.
    """

    base_url: str
    key: str
    users: int = 200
    requests: int = 1600
    seed: int = 0
    split: Split = "train"
    day: int = 0
    concurrency: int = 48
    temperature: float | None = None
    patience_s: float = PATIENCE_S


@dataclass(frozen=True)
class Done:
    """One episode as the people saw it."""

    user: str
    kind: str
    persisted: float | None
    dissatisfied: bool
    invalid: bool
    asked: bool
    edited: bool
    outcome: str
    seconds: float
    tokens: int


@dataclass(frozen=True)
class Summary:
    """A day in figures; shares are over episodes, intervals clustered by user.

    Attributes:
        planned: requests people had in mind.
        episodes: those and the follow-ups, answered.
        refused: episodes the service refused (HTTP 4xx); in no figure but this one.
        figures: edit_persistence (over edits), dissatisfied_followup, invalid_calls, ask_rate, edit_rate.
        outcomes: what people found, counted.
        latency_s: median wall-clock seconds of an episode's model calls.
        tokens: mean output tokens of an episode.
    """

    planned: int
    episodes: int
    refused: int
    figures: dict[str, Estimate]
    outcomes: dict[str, int]
    latency_s: float | None
    tokens: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain fields."""
        return {**vars(self), "figures": {name: found.to_json() for name, found in self.figures.items()}}


class Connection(Protocol):
    """What people's editors need of a service; `Client` is the one over HTTP."""

    async def chat(self, body: Mapping[str, Any], attribution: Attribution) -> Completion: ...
    async def events(self, events: Sequence[Mapping[str, Any]]) -> None: ...


@dataclass
class World:
    """What all people share while a day passes."""

    traffic: Traffic
    client: Connection
    model: str
    root: Path
    on_progress: Callable[[int], None]
    done: list[Done] = field(default_factory=list)
    refused: int = 0


@dataclass
class _Session:
    """One person's session: where its clock stands, and what its editor will report."""

    name: str
    clock: float
    events: list[dict[str, Any]] = field(default_factory=list)
    generation: str = ""
    episodes: int = 0

    def report(self, generation: str, kind: str, at: float, data: dict[str, Any]) -> None:
        name = f"{generation}:{len(self.events)}"
        self.events.append({"id": name, "generation_id": generation, "type": kind, "at": at, "data": data})


async def simulate(traffic: Traffic, on_progress: Callable[[int], None] = lambda n: None) -> Summary:
    """Let a population live one day.

    Args:
        traffic: who, how much, where.
        on_progress: told how many planned requests were finished since the last call.

    Raises:
        DependencyDownError: the gateway stays away.
        UsageError: it refuses the key.
    """
    planned = day_of(traffic.split, traffic.seed, traffic.users, traffic.requests, traffic.day)
    # the busiest people first, else one of them works on alone at the end
    waiting = iter(sorted((cases for cases in planned if cases), key=len, reverse=True))
    with scratch() as root:
        async with Client(traffic.base_url, traffic.key, traffic.concurrency, traffic.patience_s) as client:
            world = World(traffic, client, await client.model(), root, on_progress)

            async def work() -> None:
                for cases in waiting:
                    await live(world, cases)

            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(traffic.concurrency):
                        group.create_task(work())
            except* RtrlError as errors:
                raise first_of(errors) from None
    return summary(world)


def first_of(group: BaseExceptionGroup[RtrlError]) -> RtrlError:
    """One of several people's like errors, for the one line a person reads."""
    first = group.exceptions[0]
    return first_of(first) if isinstance(first, BaseExceptionGroup) else first


async def live(world: World, cases: Sequence[Case]) -> None:
    """One person's day, or some sessions of it, session by session."""
    for number in sorted({case.session for case in cases}):
        plan = [case for case in cases if case.session == number]
        session = _Session(f"{plan[0].person.id}-{world.traffic.day}-{number}", plan[0].at)
        for place, case in enumerate(plan):
            session.clock = max(session.clock, case.at)
            following = plan[place + 1].intent.request if place + 1 < len(plan) else ""
            await _request(world, session, case, following)
            world.on_progress(1)
        if session.generation:
            session.report(session.generation, "session_closed", session.clock + LINGER_S, {})
        await world.client.events(session.events)


async def _request(world: World, session: _Session, case: Case, following: str) -> None:
    """A planned request and what it leads to."""
    for _ in range(1 + MAX_FOLLOW_UPS):
        episode = begin(case, world.root, world.traffic.temperature)
        try:
            reaction = await _episode(world, session, episode, following)
        finally:
            episode.close()
        if reaction is None or not reaction.follow:
            return
        case = follow_up(case, reaction.said, reaction.follow, episode.loop.final_text)


async def _episode(world: World, session: _Session, episode: Episode, following: str) -> Reaction | None:
    """One episode and its events; None when it was refused."""
    loop = episode.loop
    person = episode.case.person
    name = f"{session.name}-{session.episodes}"
    session.episodes += 1
    generations: list[str] = []
    seconds, tokens = 0.0, 0
    while (request := loop.next_request()) is not None:
        who = Attribution(person.id, session.name, name, session.clock)
        try:
            answer = await world.client.chat(request.body(world.model), who)
        except RefusedError:
            world.refused += 1
            loop.abort()
            return None
        generations.append(answer.generation_id)
        seconds += answer.seconds
        tokens += answer.tokens
        session.clock += TURN_S
        calls = len(loop.calls)
        await asyncio.to_thread(loop.receive, answer.message, answer.finish_reason)
        for call in loop.calls[calls:]:
            if call.error != "unparsable":
                data = {
                    "tool_call_id": call.id,
                    "name": call.name,
                    "ok": not call.tool_error,
                    "duration_ms": round(call.seconds * 1000, 3),
                }
                session.report(answer.generation_id, "tool_result", session.clock, data)
    reaction = episode.react(following)
    _report(session, generations, reaction)
    world.done.append(_done(episode, reaction, seconds, tokens))
    return reaction


def _report(session: _Session, generations: Sequence[str], reaction: Reaction) -> None:
    """The reaction as events; the session's clock moves on to what the person does next."""
    start = session.clock
    for event in reaction.happenings:
        session.report(generations[event.turn], event.type, round(start + event.after_s, 3), event.data)
    session.clock = start + reaction.said_after_s + 0.001
    session.generation = generations[-1]


def _done(episode: Episode, reaction: Reaction, seconds: float, tokens: int) -> Done:
    return Done(
        user=episode.case.person.id,
        kind=episode.case.kind,
        persisted=reaction.persisted,
        dissatisfied=reaction.dissatisfied,
        invalid=episode.loop.invalid_calls > 0,
        asked=reaction.outcome is Outcome.ASKED,
        edited=reaction.persisted is not None,
        outcome=str(reaction.outcome),
        seconds=seconds,
        tokens=tokens,
    )


def summary(world: World) -> Summary:
    """The day so far."""
    done = sorted(world.done, key=lambda one: one.user)  # people finish in any order
    users = [one.user for one in done]

    def share(values: Sequence[float], over: Sequence[float] | None = None) -> Estimate:
        return clustered(values, over or [1.0] * len(values), users, bounds=(0.0, 1.0))

    return Summary(
        planned=world.traffic.requests,
        episodes=len(done),
        refused=world.refused,
        figures={
            "edit_persistence": share(
                [one.persisted or 0.0 for one in done], [float(one.persisted is not None) for one in done]
            ),
            "dissatisfied_followup": share([float(one.dissatisfied) for one in done]),
            "invalid_calls": share([float(one.invalid) for one in done]),
            "ask_rate": share([float(one.asked) for one in done]),
            "edit_rate": share([float(one.edited) for one in done]),
        },
        outcomes=dict(sorted(Counter(one.outcome for one in done).items())),
        latency_s=statistics.median(one.seconds for one in done) if done else None,
        tokens=statistics.fmean(one.tokens for one in done) if done else None,
    )
