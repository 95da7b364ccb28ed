"""Caps on users and API keys, against numbers computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.contributor_cap import BARELY, Capped, cap_contributions, cap_factors, effective_cap


def factors(values: list[float], cap: float, exempt: list[bool] | None = None) -> list[float]:
    found = cap_factors(np.array(values), cap, None if exempt is None else np.array(exempt))
    assert ((found > 0) & (found <= 1)).all()
    return found.tolist()


def capped(episodes: list[tuple[str, str, float]], **options: Any) -> Capped:
    """Of (user, key, contribution) of each episode."""
    users, keys, sizes = zip(*episodes, strict=True)
    return cap_contributions(users, keys, np.array(sizes), **({"user_cap": 0.1, "key_cap": 0.25} | options))


def test_a_user_above_the_cap_is_scaled_to_exactly_the_cap() -> None:
    # others sum to 9, cap 0.1: L = 0.1 * 9 / 0.9 = 1
    assert factors([5.0] + [0.9] * 10, 0.1) == pytest.approx([0.2] + [1.0] * 10)


def test_two_users_above_the_cap_share_one_level() -> None:
    # cap 0.25, rest 2: L = 0.25 * 2 / 0.5 = 1
    assert factors([4.0, 2.0, 0.8, 0.7, 0.5], 0.25) == pytest.approx([0.25, 0.5, 1.0, 1.0, 1.0])


def test_as_many_above_the_cap_as_it_has_room_for_are_level() -> None:
    # three of a third each: all at the smallest, and no division by what rounding leaves of 1 - 3 * (1 / 3)
    assert factors([27.0, 22.0, 4.0], 1 / 3) == pytest.approx([4 / 27, 4 / 22, 1.0])


def test_the_exempt_count_in_the_total_and_stay() -> None:
    # the exempt 6 stay: L = 0.25 * 6 / 0.75 = 2 for the one that is capped
    assert factors([6.0, 8.0], 0.25, [True, False]) == pytest.approx([1.0, 0.25])
    # two are capped: L = 0.25 * 6 / 0.5 = 3
    assert factors([6.0, 8.0, 4.0], 0.25, [True, False, False]) == pytest.approx([1.0, 0.375, 0.75])


def test_small_teams_are_not_flattened() -> None:
    assert effective_cap(0.1, 1) == effective_cap(0.1, 2) == effective_cap(0.1, 0) == 1.0
    assert effective_cap(0.1, 5) == pytest.approx(0.4)
    assert effective_cap(0.1, 100) == 0.1
    assert factors([3.0, 0.0], 1.0) == [1.0, 1.0]


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30), st.floats(0.01, 1.0))
def test_no_share_exceeds_the_cap(values: list[float], cap: float) -> None:
    cap = effective_cap(cap, len(values))
    scaled = np.array(values) * factors(values, cap)
    assert scaled.max() <= cap * scaled.sum() * (1 + 1e-9)


def test_a_client_that_invents_users_is_capped_by_its_key() -> None:
    # key "bad" is eight users of 1 each, three others one user of 1 each: no user is loud, the key is.
    # key cap 0.5 (two of four): L = 0.5 * 3 / 0.5 = 3, so its episodes keep 3/8. Then a user of the other
    # three has 1/6 of the gradient, within the user cap of 2/11
    episodes = [(f"bad{i}", "bad", 1.0) for i in range(8)] + [(f"u{i}", f"k{i}", 1.0) for i in range(3)]
    found = capped(episodes)
    assert (found.key_cap, found.user_cap) == (0.5, pytest.approx(2 / 11))
    assert (found.keys, found.users) == ({"bad": pytest.approx(0.375)}, {})
    assert found.factor.tolist() == pytest.approx([0.375] * 8 + [1.0] * 3)
    assert found.kept == pytest.approx(6 / 11)
    one_key = capped([("a", "k", 1.0), ("b", "k", 2.0), ("c", "k", 3.0)], user_cap=1.0)
    assert (one_key.key_cap, one_key.keys, one_key.kept) == (1.0, {}, 1.0)


def test_keys_that_contribute_nothing_are_no_contributors() -> None:
    """Of two keys that do each may have all, and of three two thirds."""
    told = [("a", "k", 6.0), ("b", "l", 1.0), ("c", "m", 0.0)]
    assert capped(told, user_cap=1.0).key_cap == 1.0
    assert capped([*told, ("c", "m", 1.0)], user_cap=1.0).key_cap == pytest.approx(2 / 3)
    # of a shared key the users count, those that contribute
    assert capped([*told, ("d", "m", 1.0)], user_cap=1.0, shared=["m"]).key_cap == pytest.approx(2 / 3)


def test_both_caps_hold_at_once() -> None:
    # "bad" is ten users of 8, "u" alone 12, five others 1.6 each. Within caps of 0.2 and 0.4 the total T is
    # 8 + 0.4 T + 0.2 T = 20: 8 of "bad"'s 80, 4 of "u"'s 12. Users first and keys then would leave "u" more
    episodes = [(f"bad{i}", "bad", 8.0) for i in range(10)] + [("u", "k", 12.0)]
    episodes += [(f"u{i}", f"k{i}", 1.6) for i in range(5)]
    found = capped(episodes, user_cap=0.2, key_cap=0.4)
    assert found.factor.tolist() == pytest.approx([0.1] * 10 + [1 / 3] + [1.0] * 5, rel=1e-6)
    assert found.kept == pytest.approx(0.2)


def test_a_products_key_is_its_users_when_it_is_marked_as_shared() -> None:
    # 250 users through one key, four developers trying things out through theirs
    episodes = [(f"u{i}", "product", 4.0) for i in range(250)] + [(f"d{i}", f"k{i}", 1.0) for i in range(4)]
    found = capped(episodes, shared={"product"})
    assert (found.users, found.keys, found.kept) == ({}, {}, 1.0)
    # not marked it could be anybody's: what four others bring allows it next to nothing
    alone = capped(episodes)
    assert alone.kept < 0.01
    # a personal key of invented users beside it is one contributor: L = 0.25 * 1000 / 0.75
    fakes = [(f"x{i}", "bad", 4.0) for i in range(250)]
    found = capped(episodes[:250] + fakes, shared={"product"})
    assert found.keys == {"bad": pytest.approx(1 / 3)}


def test_a_few_heavy_users_among_occasional_ones_keep_a_tenth() -> None:
    # four users of 250, eight of 1. Within 2/12 the four would keep 4 * 2.67 of 1008. Relaxed to the cap c
    # with 8 / (1 - 4 c) = 100.8, that is c = 0.23
    episodes = [(f"heavy{i}", "k", 250.0) for i in range(4)] + [(f"u{i}", "k", 1.0) for i in range(8)]
    assert capped(episodes).kept == pytest.approx(24 / 1008)
    found = capped(episodes, least=0.1)
    assert found.kept == pytest.approx(0.1, abs=0.005)
    assert found.user_cap == pytest.approx(0.23, abs=0.001)
    assert found.relaxed == pytest.approx((0.23 - 1 / 6) / (1 - 1 / 6), abs=0.001)
    assert found.factor[0] == pytest.approx(0.1 * 1008 * 0.23 / 250, rel=0.05)
    assert found.factor[-1] == 1.0
    even = capped([(f"u{i}", "k", 1.0) for i in range(30)], least=0.1)
    assert (even.relaxed, even.user_cap) == (0.0, 0.1)


NAMES = st.integers(0, 6).map(str)


def test_caps_that_no_relaxing_makes_enough_are_lifted() -> None:
    found = capped([("a", "a", 1e3), ("b", "b", 1e-114), ("c", "c", 1e-114)], user_cap=0.02, least=0.01)
    assert (found.user_cap, found.kept) == (pytest.approx(1.0), pytest.approx(1.0))


@given(
    st.lists(st.tuples(NAMES, NAMES, st.floats(0, 1e3)), min_size=1, max_size=40),
    st.floats(0.02, 1.0),
    st.floats(0.02, 1.0),
    st.sets(NAMES),
)
def test_both_caps_hold_and_enough_is_kept(
    episodes: list[tuple[str, str, float]], user_cap: float, key_cap: float, shared: set[str]
) -> None:
    found = capped(episodes, user_cap=user_cap, key_cap=key_cap, shared=shared, least=0.01)
    assert found.user_cap >= user_cap
    assert found.key_cap >= key_cap
    left = np.array([size for _, _, size in episodes]) * found.factor
    if not left.any():
        return
    assert found.kept >= 0.01
    for cap, column, exempt in ((found.user_cap, 0, set()), (found.key_cap, 1, shared)):
        for name in {episode[column] for episode in episodes} - exempt:
            mine = sum(x for x, episode in zip(left, episodes, strict=True) if episode[column] == name)
            assert mine <= cap * left.sum() * (1 + 1e-6)


def test_caps_that_can_only_just_hold_are_relaxed_by_a_little() -> None:
    # two of four keys have nearly all, and half is the most that each may have
    sizes = [("0", "0", 216.0), ("0", "1", 1.0), ("0", "2", 1.0)]
    sizes += [("1", "1", 89.0), ("2", "3", 0.015625), ("3", "0", 0.0625)]
    found = capped(sizes, user_cap=0.5, key_cap=0.5)
    left = np.array([size for _, _, size in sizes]) * found.factor
    for cap, column in ((found.user_cap, 0), (found.key_cap, 1)):
        for name in {each[column] for each in sizes}:
            mine = sum(x for x, each in zip(left, sizes, strict=True) if each[column] == name)
            assert mine <= cap * left.sum() * (1 + 1e-6)
    assert 0 < found.relaxed < BARELY
    assert max(found.user_cap, found.key_cap) < 0.5025
