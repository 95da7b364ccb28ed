"""Several engines: where requests go, and weights one after another."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from stages.errors import IntegrityError
from stages.gateway.arms import Arm, Arms
from stages.gateway.errors import ApiError, SwapError
from stages.gateway.pool import SLACK, Pool
from stages.gateway.rolling import Rolling, Way
from stages.gateway.served import Checkpoint, ServedState
from stages.gateway.swapper import Swapper

OLD, NEW = (Checkpoint(f"sha256:{name}", Path(f"/{name}"), f"d-{name}") for name in ("old", "new"))


class Engine:
    """Remembers what it was told to load; refuses what is in `bad`."""

    way = Way("in place", "a test")

    def __init__(self, name: str) -> None:
        self.served = ServedState("auto", "rtrl", OLD, engine="ready", name=name)
        self.loads: list[Path] = []
        self.bad: set[Path] = set()
        self.seen: list[list[str]] = []
        self.others: list[Engine] = []

    async def update(self, path: Path) -> str:
        self.loads.append(path)
        self.seen.append([each.served.checkpoint.digest for each in self.others])
        if path in self.bad:
            raise IntegrityError("it holds something else")
        return "proof"


def fleet(count: int = 3) -> tuple[list[Engine], Rolling]:
    engines = [Engine(str(number + 1)) for number in range(count)]
    for each in engines:
        each.others = engines
    return engines, Rolling([Swapper(e.served, e.update, 1.0) for e in engines], list(engines))


def pool(engines: list[Engine]) -> Pool:
    arms = [Arm(each.served, None) for each in engines]  # type: ignore[arg-type]
    made = Pool(arms[0])
    made.members = arms
    return made


def test_users_are_spread_over_all_engines_of_the_live_arm() -> None:
    engines, _ = fleet()
    arms = Arms(pool(engines).members[0])
    arms.pool = pool(engines)
    asked = Counter(arms.of("ada", key=str(n)).served.name for n in range(300))
    assert set(asked) == {"1", "2", "3"}
    assert min(asked.values()) > 50
    engines[0].served.engine = "down"
    assert {arms.of("ada", key=str(n)).served.name for n in range(300)} == {"2", "3"}


def test_conversations_stay_and_are_spread() -> None:
    engines, _ = fleet()
    made = pool(engines)
    chosen = {key: made.pick(key) for key in map(str, range(300))}
    assert all(made.pick(key) is arm for key, arm in chosen.items())
    counts = Counter(arm.served.name for arm in chosen.values())
    assert min(counts.values()) > 60
    engines[1].served.engine = "down"
    moved = [key for key, arm in chosen.items() if made.pick(key) is not arm]
    assert {chosen[key].served.name for key in moved} == {"2"}, "only its own conversations move"


def test_a_busy_engine_gives_to_the_idlest() -> None:
    engines, _ = fleet(2)
    made = pool(engines)
    own = made.pick("a")
    own.served.gate.in_flight = SLACK
    assert made.pick("a") is own
    own.served.gate.in_flight = SLACK + 1
    assert made.pick("a") is not own


async def test_engines_that_cannot_answer_are_asked_last() -> None:
    engines, _ = fleet(2)
    made = pool(engines)
    own = made.pick("a")
    async with own.served.gate.exclusive(1):
        assert made.pick("a") is not own
        assert made.other(own) is made.pick("a")
        made.pick("a").served.engine = "down"
        assert made.pick("a") is own, "rather one whose weights change than one that is down"
    own.served.health.breaker.trip("test")
    assert made.other(made.pick("a")) is None


async def test_weights_change_one_engine_after_another() -> None:
    engines, rolling = fleet()
    done = await rolling.swap(NEW)
    assert [each.served.checkpoint for each in engines] == [NEW] * 3
    assert (done.before, done.verification, done.restarting) == (OLD, "proof", False)
    assert engines[1].seen == [["sha256:new", "sha256:old", "sha256:old"]]
    assert [(each["engine"], each["way"]) for each in done.engines] == [
        (str(n), "in place") for n in (1, 2, 3)
    ]
    assert rolling.serves(NEW.digest)


async def test_one_that_refuses_puts_all_back() -> None:
    engines, rolling = fleet()
    engines[2].bad = {NEW.path}
    with pytest.raises(SwapError, match="engine 3: it holds something else") as caught:
        await rolling.swap(NEW)
    assert caught.value.cause is not None
    assert (caught.value.code, caught.value.cause.code) == ("swap_failed", 12)
    assert [each.served.checkpoint for each in engines] == [OLD] * 3
    assert [each.served.engine for each in engines] == ["ready"] * 3
    assert [each.loads for each in engines] == [[NEW.path, OLD.path]] * 3


async def test_a_bug_with_one_puts_all_back() -> None:
    """What raised no SwapError left the engines before it on the new weights."""
    engines, _ = fleet(2)

    async def prepare(path: Path) -> None:
        raise KeyError("a bug")

    first, second = engines
    swappers = [Swapper(first.served, first.update, 1.0), Swapper(second.served, second.update, 1.0)]
    swappers[1]._prepare = prepare
    with pytest.raises(KeyError, match="a bug"):
        await Rolling(swappers, list(engines)).swap(NEW)
    assert [each.served.checkpoint for each in engines] == [OLD, OLD]
    assert (first.loads, second.loads) == ([NEW.path, OLD.path], [])


async def test_one_that_cannot_go_back_starts_anew_on_the_old_weights() -> None:
    engines, rolling = fleet(2)
    engines[0].bad, engines[1].bad = {OLD.path}, {NEW.path}
    with pytest.raises(SwapError):
        await rolling.swap(NEW)
    assert [each.served.checkpoint for each in engines] == [OLD, OLD]
    assert [each.served.engine for each in engines] == ["unknown", "ready"], "the first is to be restarted"


async def test_engines_that_are_down_start_on_the_new_weights() -> None:
    engines, rolling = fleet()
    engines[0].served.engine = "down"
    done = await rolling.swap(NEW)
    assert engines[0].loads == []
    assert [each.served.checkpoint for each in engines] == [NEW] * 3
    assert done.engines[0]["way"] == "restart"
    for each in engines:
        each.served.engine = "down"
    with pytest.raises(ApiError):
        await rolling.swap(OLD)
    assert [each.served.checkpoint for each in engines] == [NEW] * 3


async def test_one_that_becomes_ready_meanwhile_gets_them_too() -> None:
    engines, rolling = fleet(2)
    engines[0].served.engine = "starting"

    async def slow(path: Path) -> str:
        engines[0].served.engine = "ready"  # its start has come to an end, on the old weights
        return "proof"

    engines[1].update = slow  # type: ignore[method-assign]
    rolling = Rolling([Swapper(e.served, e.update, 1.0) for e in engines], list(engines))
    await rolling.swap(NEW)
    assert engines[0].loads == [NEW.path], "loaded, not only said"


async def test_a_rollback_changes_all_at_a_time() -> None:
    engines, rolling = fleet(2)
    both = asyncio.Event()

    async def together(path: Path) -> str:
        if sum(each.served.engine == "unknown" for each in engines) == 2:
            both.set()
        await asyncio.wait_for(both.wait(), 5)
        return "proof"

    rolling = Rolling([Swapper(e.served, together, 1.0) for e in engines], list(engines))
    await rolling.swap(NEW, cut=True, limit_s=10)
    assert rolling.serves(NEW.digest)
