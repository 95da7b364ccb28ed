"""Assignment: sticky, by the share, independent of other salts; and the gate of an arm that ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from stages.gateway.arms import Arm, Arms, Canary, Holdback, assigned
from stages.gateway.errors import ApiError
from stages.gateway.served import Checkpoint, ServedState

ENGINE: Any = object()


def arm(name: str) -> Arm:
    return Arm(
        ServedState("auto", "rtrl", Checkpoint(f"sha256:{name}", Path("/")), engine="ready", arm=name), ENGINE
    )


def test_by_hand() -> None:
    # the first bytes of sha256("salt\0ann") are f91c4382, those of "salt\0bob" 8550e580
    for user, first in (("ann", 0xF91C4382), ("bob", 0x8550E580)):
        assert assigned(user, "salt", (first + 1) / 2**32)
        assert not assigned(user, "salt", first / 2**32)


@given(st.text(), st.text(), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_has_the_users_of_a_smaller_one(user: str, salt: str, one: float, two: float) -> None:
    if assigned(user, salt, min(one, two)):
        assert assigned(user, salt, max(one, two))
    assert not assigned(user, salt, 0.0)


def test_shares_are_kept_and_salts_independent() -> None:
    users = [f"user-{number}" for number in range(20_000)]
    one = [assigned(user, "one", 0.1) for user in users]
    two = [assigned(user, "two", 0.1) for user in users]
    assert stats.binomtest(sum(one), len(users), 0.1).pvalue > 1e-4
    both = sum(a and b for a, b in zip(one, two, strict=True))
    assert stats.binomtest(both, len(users), 0.01).pvalue > 1e-4


async def test_who_waits_at_a_canary_that_ends_is_answered_by_the_live_arm() -> None:
    arms = Arms(arm("live"))
    second = arm("canary")
    arms.open(Canary(second, "d", "salt", 1.0))
    assert arms.of("ann") is second
    with pytest.raises(ValueError, match="d is the canary"):
        arms.open(Canary(second, "e", "salt", 1.0))
    async with second.served.gate.exclusive(1):
        waiting = asyncio.create_task(arms.enter("ann", 5))
        await asyncio.sleep(0.01)
        assert arms.close() is not None
    entered = await waiting
    assert entered is arms.live
    assert (arms.live.served.gate.in_flight, second.served.gate.in_flight) == (1, 0)


async def test_an_arm_that_is_not_asked_now_is_nobodys() -> None:
    """Nor is who is held back a canary's while the holdback's engine is down (docs/ab.md): he once was."""
    arms, second, third = Arms(arm("live")), arm("canary"), arm("holdback")
    arms.open(Canary(second, "d", "salt", 1.0))
    assert arms.of("ann") is second
    second.served.health.breaker.trip("its engine fails")
    assert arms.of("ann") is arms.live
    arms.holdback = Holdback(third, "salt", 1.0)
    assert arms.of("ann") is third
    third.served.engine = "down"
    assert arms.of("ann") is arms.live
    second.served.health.breaker.reset()
    assert arms.of("ann") is arms.live
    arms.holdback = None
    assert arms.of("ann") is second


def with_line() -> tuple[Arms, Arms]:
    """The main line's arms, and those of `acme`'s, which the keys of `acme-ide` are of."""
    main, own = Arms(arm("live")), Arms(arm("live"))
    main.route = {"acme-ide": "acme"}
    main.lines["acme"] = own
    return main, own


async def test_a_population_is_answered_by_its_line_while_that_serves() -> None:
    main, own = with_line()
    second = arm("canary")
    own.open(Canary(second, "d", "salt", 0.999999))
    assert main.of("ann") is main.live
    assert main.of("ann", "elsewhere") is main.live
    assert main.of("ann", "acme-ide") is second  # the canary of its own line
    own.live.served.engine = "unknown"  # its weights are being changed, or could not be
    assert main.of("ann", "acme-ide") is main.live
    async with own.live.served.gate.exclusive(1):
        assert main.of("ann", "acme-ide") is second
    own.live.served.engine = "ready"
    del main.lines["acme"]
    assert main.of("ann", "acme-ide") is main.live


async def test_who_waits_at_a_gate_whose_line_ends_is_answered_by_the_main_line() -> None:
    main, own = with_line()
    async with own.live.served.gate.exclusive(1):
        waiting = asyncio.create_task(main.enter("ann", 5, "acme-ide"))
        await asyncio.sleep(0.01)
        assert own.live.served.gate.waiting == 1
        del main.lines["acme"]
    assert await waiting is main.live
    assert (main.live.served.gate.in_flight, own.live.served.gate.in_flight) == (1, 0)


def test_the_held_back_are_never_in_a_canary() -> None:
    arms = Arms(arm("live"))
    held, second = arm("holdback"), arm("canary")
    arms.holdback = Holdback(held, "for good", 0.2)
    arms.open(Canary(second, "d", "salt", 0.5))
    users = [f"user-{number}" for number in range(2000)]
    found = {user: arms.of(user) for user in users}
    assert {user for user in users if found[user] is held} == {
        user for user in users if assigned(user, "for good", 0.2)
    }
    assert 0.15 < sum(one is held for one in found.values()) / 2000 < 0.25
    others = [one for one in found.values() if one is not held]
    assert 0.45 < sum(one is second for one in others) / len(others) < 0.55
    # `rtrl ab` draws the arms again, by the same function
    assert all(
        (one is second) == assigned(user, "salt", 0.5) for user, one in found.items() if one is not held
    )
    held.served.engine = "down"
    back = [user for user in users if found[user] is held]
    assert all(arms.of(user) is arms.live for user in back)
    assert all(arms.of(user) is found[user] for user in users if user not in back)
    assert [one.served.arm for one in arms.all()] == ["live", "canary", "holdback"]
    assert arms.as_dict()["holdback"]["share"] == 0.2
    arms.holdback = Holdback(None, "for good", 0.2)  # its engine starts, or none is needed
    assert all(arms.of(user) is arms.live for user in back)
    assert [one.served.arm for one in arms.all()] == ["live", "canary"]
    assert "holdback" not in arms.as_dict()


async def test_a_canary_that_does_not_serve_costs_nobody_an_answer() -> None:
    arms = Arms(arm("live"))
    second = arm("canary")
    arms.open(Canary(second, "d", "salt", 1.0))
    second.served.engine = "down"
    assert await arms.enter("ann", 1) is arms.live
    arms.live.served.engine = "down"
    with pytest.raises(ApiError):
        await arms.enter("ann", 1)
    assert arms.live.served.gate.in_flight == 1  # only the first


async def test_who_waits_at_a_lines_canary_that_ends_is_answered_by_its_line() -> None:
    main, own = with_line()
    second = arm("canary")
    own.open(Canary(second, "d", "salt", 1.0))
    async with second.served.gate.exclusive(1):
        waiting = asyncio.create_task(main.enter("ann", 5, "acme-ide"))
        await asyncio.sleep(0.01)
        own.close()
    assert await waiting is own.live
    assert (own.live.served.gate.in_flight, second.served.gate.in_flight) == (1, 0)


async def test_a_conversation_enters_where_it_belongs() -> None:
    """Of several engines that are ready, the one that has its prefix."""
    arms = Arms(arm("live"))
    arms.pool.members = [arms.live, arm("live")]
    arms.pool.members[1].served.name = "2"
    keys = [f"conversation-{n}" for n in range(8)]
    own = [arms.of("ann", key=key) for key in keys]
    assert set(own) == set(arms.pool.members)
    for key, mine in zip(keys, own, strict=True):
        assert await arms.enter("ann", 1, key=key) is mine
        mine.served.gate.leave()


@pytest.mark.parametrize("back", [True, False])
async def test_who_waited_at_one_of_several_that_is_lost_is_answered_by_another(back: bool) -> None:
    arms = Arms(arm("live"))
    other = arm("live")
    arms.pool.members = [arms.live, other]
    other.served.engine = "down"
    async with arms.live.served.gate.exclusive(1):
        waiting = asyncio.create_task(arms.enter("ann", 5))
        await asyncio.sleep(0.01)
        assert arms.live.served.gate.waiting == 1
        arms.live.served.engine = "unknown"  # its new weights could not be verified
        if back:
            other.served.engine = "ready"
    if back:
        assert await waiting is other
    else:
        with pytest.raises(ApiError, match="engine_unknown"):
            await waiting
    assert (arms.live.served.gate.in_flight, other.served.gate.in_flight) == (0, int(back))


def test_the_live_arm_is_healthy_while_one_of_its_engines_is() -> None:
    arms = Arms(arm("live"))
    other = arm("live")
    arms.pool.members = [arms.live, other]
    arms.live.served.engine = "down"
    arms.require_healthy()
    other.served.engine = "unknown"
    with pytest.raises(ApiError, match="engine_down"):  # what the first says
        arms.require_healthy()


def test_a_candidate_is_tried_without_users_and_then_has_its_share() -> None:
    """It is a canary that ended only where somebody was answered by it."""
    arms = Arms(arm("live"))
    assert (arms.collapsed(), arms.close(), arms.ended) == ("", None, "")
    assert arms.all() == [arms.live]
    plain = arms.live.served.as_dict() | {"canary": None}
    assert arms.as_dict() == plain
    arms.opening = "d"
    assert arms.as_dict() == plain | {"canary_opening": "d"}
    arms.opening = ""
    arms.lines["acme"] = Arms(arm("own"))
    assert arms.as_dict() == plain | {"lines": {"acme": arms.lines["acme"].as_dict()}}
    arms.pool.members = [arms.live, arm("live")]
    assert arms.as_dict()["engines"] == [each.served.as_dict() for each in arms.pool.members]
    arms.pool.members, arms.lines = [arms.live], {}
    with pytest.raises(ValueError, match="d is not the canary"):
        arms.share("d", 1.0)
    arms.open(Canary(arm("canary"), "d", "salt", 0.0))
    assert arms.of("ann") is arms.live
    assert arms.close() is not None
    assert (arms.ended, arms.as_dict()["canary"]) == ("", None)
    second = arm("canary")
    arms.open(Canary(second, "e", "salt", 0.0))
    with pytest.raises(ValueError, match="d is not the canary"):
        arms.share("d", 1.0)
    arms.share("e", 1.0)
    assert arms.of("ann") is second
    told = arms.as_dict()["canary"]
    assert (told["deployment"], told["share"], told["checkpoint"]) == ("e", 1.0, "sha256:canary")
    arms.close()
    assert (arms.ended, arms.as_dict()["canary_ended"]) == ("e", "e")
