"""Kills at fault points: before and after every write, sync, rename and commit that a command makes."""

from __future__ import annotations

import random
import shutil
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from killsweeps.bases import Bases
from killsweeps.kills import Book, Kill, say, unique
from killsweeps.scenarios import SCENARIOS, Scenario, by_name
from killsweeps.strike import points_of, strike

WORKERS = 2


def hits_of(count: int, most: int) -> list[int]:
    """Which of `count` passings of a point to kill at: the first, the last, those between evenly spread."""
    most = min(most, count)
    if most <= 1:
        return [1][:most]
    return sorted({1 + round(i * (count - 1) / (most - 1)) for i in range(most)})


def plan(found: dict[str, Counter[str]], seed: int) -> list[tuple[str, str, int]]:
    """(scenario, point, n-th hit) in the order to go through: every point of every scenario once, then
    further hits of each. The same seed gives the same order.
    """
    chooser = random.Random(seed)
    rounds: list[list[tuple[str, str, int]]] = []
    for name, points in sorted(found.items()):
        for point, count in sorted(points.items()):
            for turn, n in enumerate(hits_of(count, by_name(name).hits)):
                while len(rounds) <= turn:
                    rounds.append([])
                rounds[turn].append((name, point, n))
    chosen: list[tuple[str, str, int]] = []
    for one_round in rounds:
        chooser.shuffle(one_round)
        chosen += one_round
    return chosen


def only(text: str) -> tuple[Scenario, str, int]:
    """`SCENARIO/POINT:N` as printed with a failure. Raises KeyError or ValueError."""
    name, _, rest = text.partition("/")
    point, _, n = rest.partition(":")
    if not point:
        raise ValueError(f"{text!r} is not SCENARIO/POINT:N")
    return by_name(name), point, int(n or 1)


class Aimed:
    """The aimed half of a sweep."""

    def __init__(
        self,
        bases: Bases,
        folder: Path,
        book: Book,
        seed: int,
        scenarios: Sequence[Scenario] = SCENARIOS,
    ) -> None:
        self._bases, self._folder, self._book, self._seed = bases, folder, book, seed
        self._scenarios = scenarios

    def run(self, wanted: int) -> None:
        """Kill `wanted` times. Points that were not reached are replaced by others while there are any."""
        if wanted <= len(self._book.of("aimed")):
            return
        found = {}
        for scenario in self._scenarios:
            points = found[scenario.name] = points_of(scenario, self._bases, self._folder)
            say(f"{scenario.name}: {len(points)} points, passed {points.total()} times")
        queue = plan(found, self._seed)
        lock = threading.Lock()

        def work() -> None:
            while True:
                with lock:
                    if not queue or len(self._book.of("aimed")) + running[0] >= wanted:
                        return
                    name, point, n = queue.pop(0)
                    running[0] += 1
                try:
                    self.one(by_name(name), point, n)
                finally:
                    with lock:
                        running[0] -= 1

        running = [0]
        with ThreadPoolExecutor(WORKERS) as pool:
            for each in [pool.submit(work) for _ in range(WORKERS)]:
                each.result()

    def one(self, scenario: Scenario, point: str, n: int) -> None:
        """One kill, unless the book has it."""
        name = f"{scenario.name}/{point}:{n}"
        if self._book.has(name):
            return
        workspace = self._folder / "aimed" / name.replace("/", "-").replace(":", "-")
        struck = strike(scenario, point, n, self._bases, workspace)
        if struck.moment is None:
            self._book.miss(name)
            return
        stage = scenario.arguments[0]
        problems = unique(struck.problems)
        self._book.add(Kill("aimed", name, stage, struck.moment, f"--only {name}", problems))
        if not problems:
            shutil.rmtree(workspace, ignore_errors=True)
