"""Who the people of the experiments are, and in what company their requests are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from experimenting.edge import SERVICE, Waves
from experimenting.people import population_digest, without_imports
from experimenting.service import fit

from cursorbench.harness.chat import ChatRequest

# of evals/population as it was committed with the demo; figures of other people are other figures
COMMITTED = "sha256:f322e0b97470a558c862824e1597c207569e0251401e23ca33f4e57a317c1ae0"


def test_the_population_is_the_one_that_was_committed_first() -> None:
    assert population_digest() == COMMITTED


def test_only_imports_are_left_out_of_the_digest() -> None:
    rest = "\nX = 1\n\n\ndef f():\n    import e\n    return e\n"
    source = '"""What."""\n\nimport a\nfrom b import (\n    c,\n    d,\n)\n' + rest
    assert without_imports(source) == '"""What."""\n\n' + rest


class _Names:
    """Answers with the wave's requests."""

    def __init__(self) -> None:
        self.waves: list[list[str]] = []
        self.seeds: list[int | None] = []

    def chat(self, batch: Sequence[ChatRequest], *, seed: int | None = None) -> list[dict[str, Any]]:
        self.seeds.append(seed)
        self.waves.append([str(request.messages[0]["content"]) for request in batch])
        return [{"text": name} for name in self.waves[-1]]


def test_a_wave_is_answered_when_all_wait_and_never_by_the_clock() -> None:
    engine = _Names()
    turns = {"a": 3, "b": 1, "c": 2, "d": 2, "e": 1}

    async def live(waves: Waves, name: str, delay: float) -> None:
        for turn in range(turns[name]):
            await asyncio.sleep(delay)
            request = ChatRequest(({"role": "user", "content": f"{name}{turn}"},), (), 8)
            assert (await waves.ask(name, request))["text"] == f"{name}{turn}"
        waves.leave(name)

    async def day(delays: dict[str, float]) -> list[list[str]]:
        engine.waves = []
        waves = Waves(engine, list(turns), seed=5)
        async with asyncio.TaskGroup() as tasks:
            for name, delay in delays.items():
                tasks.create_task(live(waves, name, delay))
            tasks.create_task(waves.run())
        return engine.waves

    one = asyncio.run(day({"a": 0.0, "b": 0.02, "c": 0.0, "d": 0.0, "e": 0.01}))
    two = asyncio.run(day({"e": 0.0, "d": 0.02, "c": 0.01, "b": 0.0, "a": 0.0}))
    assert one == two == [["a0", "b0", "c0", "d0", "e0"], ["a1", "c1", "d1"], ["a2"]]
    assert engine.seeds == 2 * [5, None, None], "a day begins anew, whatever the engine answered before"


def test_service_time_is_that_of_the_tokens_alone() -> None:
    alone = SERVICE.seconds(fresh=100, output=10)
    assert alone == SERVICE.call + 100 * SERVICE.prompt + 10 * SERVICE.output
    assert SERVICE.first_token_s(100) == SERVICE.seconds(100, 1)


def test_service_constants_are_found_again_from_calls_and_a_busy_neighbour_is_left_out() -> None:
    measured = [(0.01 + 1e-4 * n + 2e-3 * m, float(n), float(m)) for n in (10, 80, 150) for m in range(5, 45)]
    measured[7] = (3.0, *measured[7][1:])
    assert fit(measured) == pytest.approx((0.01, 1e-4, 2e-3), rel=1e-6)
