"""Who has which of the places that many ask for. Numbers are hand-computed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stages.gateway.admission import Admission
from stages.gateway.errors import ApiError
from stages.gateway.keys import ApiKeys
from stages.gateway.shares import Shares, Slots, Whose
from tests.stages.gateway.rig import running, until

A, B = Whose("a", "a"), Whose("b", "b")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def asked(shares: Shares, whose: Whose, times: int = 1) -> int:
    """How many of so many requests were given a place."""
    given = 0
    for _ in range(times):
        if shares.free(whose):
            shares.take(whose)
            given += 1
        else:
            shares.refused(whose)
    return given


def test_a_lone_key_may_have_all_and_leaves_others_what_they_want() -> None:
    clock = Clock()
    shares = Shares(8, 60.0, clock)
    assert asked(shares, A, 9) == 8
    assert asked(shares, B, 2) == 0
    for place in range(4):  # each answer of A's is followed by another request of A's
        shares.give_back(A)
        assert (place, asked(shares, A)) == (place, 0 if place < 2 else 1)  # two are kept for B
    assert asked(shares, B, 3) == 2  # A has 6, and wants no less than its share of 4
    shares.give_back(B)
    assert (asked(shares, A), asked(shares, B)) == (0, 1)  # B is not refused again for what it had
    shares.give_back(B), shares.give_back(B)
    clock.now = 59.0
    assert asked(shares, A, 2) == 0
    clock.now = 180.0  # nobody was refused in the last two minutes
    assert asked(shares, A, 3) == 2


def test_nobody_is_kept_more_than_an_equal_share() -> None:
    shares = Shares(8, 60.0, Clock())
    asked(shares, A, 8)
    asked(shares, B, 20)
    for _ in range(8):
        shares.give_back(A)
    assert (asked(shares, A, 8), asked(shares, B, 8)) == (4, 4)
    asked(shares, Whose("c", "c"))
    for _ in range(4):
        shares.give_back(A)
        shares.give_back(B)
    assert asked(shares, A, 8) == 5  # a third is 2: two are kept for B, one for C, who wants no more


def test_names_of_a_shared_key_share_what_the_key_has() -> None:
    """Many names take nothing from another key; one of them with all of the key's leaves the others some."""
    shares = Shares(8, 60.0, Clock())
    names = [Whose("shared", f"user{n}") for n in range(8)]
    for _ in range(8):
        asked(shares, names[0])
    assert [asked(shares, name) for name in (*names[1:], B)] == [0] * 8
    for _ in range(8):
        shares.give_back(names[0])
    assert asked(shares, names[0], 8) == 1  # of the key's 7 the seven others wanted one each, and B one
    assert [asked(shares, name) for name in (*names[1:], B)] == [1] * 6 + [0, 1]


def test_nothing_is_kept_where_far_more_ask_than_there_are_places() -> None:
    """Nor is anybody looked for among them: made-up names cost those who come after nothing."""
    shares = Shares(4, 60.0, Clock())
    for n in range(4):
        shares.take(Whose("shared", f"user{n}"))
    for n in range(10):
        assert asked(shares, Whose("shared", f"more{n}")) == 0
    for n in range(4):
        shares.give_back(Whose("shared", f"user{n}"))
    assert asked(shares, Whose("shared", "user0"), 5) == 4
    forgets = Shares(4, 0.0)
    assert asked(forgets, A, 5) == 4
    assert forgets._users == {}


@pytest.mark.parametrize(("fair_s", "given"), [(60.0, False), (0.0, True)])
def test_without_time_it_is_first_come_first_served(fair_s: float, given: bool) -> None:
    admission = Admission(running=1, queue=1, streams=1, fair_s=fair_s)
    with admission.admit(A):
        with admission.admit(A), pytest.raises(ApiError) as caught:
            admission.require_room("b")
        assert (caught.value.status, caught.value.code) == (429, "queue_full")
        assert admission.places.free(A) == given
        with admission.admit(B):
            pass


def test_the_shortest_time_that_a_setting_takes_is_over_at_once() -> None:
    """Each request was answered 500, "this is a bug": what had passed were infinitely many such times."""
    clock = Clock()
    shares = Shares(2, 5e-324, clock)
    assert [asked(shares, A, 3), asked(shares, B)] == [2, 0]
    clock.now = 1.0
    shares.give_back(A)
    assert asked(shares, A) == 1


def test_streams_are_shared_as_places_are() -> None:
    admission = Admission(running=4, queue=4, streams=2, fair_s=60.0)
    with admission.admit(A) as one, admission.admit(A) as two:
        one.stream(), two.stream()
        with admission.admit(B) as other, pytest.raises(ApiError) as caught:
            other.stream()
        assert caught.value.code == "too_many_streams"
    with admission.admit(A) as one:
        one.stream()
        with admission.admit(A) as two, pytest.raises(ApiError):
            two.stream()
        with admission.admit(B) as other:
            other.stream()


async def test_who_has_fewest_is_next() -> None:
    slots, order = Slots(3), list[str]()
    x, y = Whose("shared", "x"), Whose("shared", "y")

    async def ask(whose: Whose) -> None:
        await slots.acquire(whose)
        order.append(whose.user)

    for _ in range(3):
        await slots.acquire(A)
    waiting = [asyncio.create_task(ask(whose)) for whose in (A, A, x, x, y, B)]
    await asyncio.sleep(0)
    assert (slots.free, slots.waiting) == (0, 6)
    for whose in (A, A, A, B):
        slots.release(whose)
        await asyncio.sleep(0)
    assert order == ["x", "b", "a", "y"]
    slots.release(x)  # to the one that goes as it is let in
    waiting[3].cancel()
    waiting[1].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    for whose in (A, y):
        slots.release(whose)
    assert (slots.free, slots.waiting, dict(slots._held)) == (3, 0, {})


async def test_of_one_slot_keys_have_it_by_turns() -> None:
    """One that waits with many would have it until all of them were through."""
    slots, order = Slots(1), list[str]()

    async def ask(whose: Whose) -> None:
        await slots.acquire(whose)
        order.append(whose.key)

    await slots.acquire(A)
    waiting = [asyncio.create_task(ask(whose)) for whose in (A, A, A, B, B, Whose("c"))]
    await asyncio.sleep(0)
    slots.release(A)
    for _ in range(5):
        await asyncio.sleep(0)
        slots.release(Whose(order[-1], order[-1] if order[-1] != "c" else ""))
    await asyncio.gather(*waiting)
    assert order == ["a", "b", "c", "a", "b", "a"]


async def test_a_key_that_was_refused_has_its_place_next(tmp_path: Path) -> None:
    async with running(tmp_path, engine_connections=2, max_queue=0) as rig:
        other = {"authorization": f"Bearer {ApiKeys.create(tmp_path / 'keys', 'other')}"}
        rig.gateway._keys._next_check = 0.0
        for others in (429, 200):
            many = [asyncio.create_task(rig.chat(rig.hold(0))) for _ in range(2)]
            there = 2 if others == 429 else 1  # of those; the other is refused
            await until(lambda n=there: rig.served.gate.in_flight == n)
            await until(lambda n=there, all=many: sum(each.done() for each in all) == 2 - n)
            answer = asyncio.create_task(rig.chat("x", headers=other))
            await until(lambda n=there, one=answer: one.done() or rig.served.gate.in_flight > n)
            rig.let_go()
            answers = [each.status_code for each in await asyncio.gather(*many, answer)]
            assert (sorted(answers), answers[-1]) == ([200, 200, 429], others)
