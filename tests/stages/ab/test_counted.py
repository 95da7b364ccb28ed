"""Who is one user of an A/B: by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from evals.ab.arms import Users
from evals.ab.decision import AbMetric, AbRules, look
from stages.ab.counted import Columns, Counted, is_key, joined, of_many, weights_of
from stages.ab.observe import SIGNALS, arm_of
from stages.gateway.keys import ApiKeys


@pytest.mark.parametrize(
    ("names", "revoked", "users"),
    [((), (), []), (("one",), (), ["one"]), (("one", "two"), (), []), (("one", "two"), ("one",), ["two"])],
)
def test_names_of_the_only_key_there_is_are_users(
    tmp_path: Path, names: list[str], revoked: list[str], users: list[str]
) -> None:
    """Its holder has nobody else's users to outvote. One that is shared is so whatever else there is."""
    for name in names:
        ApiKeys.create(tmp_path, name)
    for name in revoked:
        ApiKeys.revoke(tmp_path, name)
    ids = {key.name: key.id for key in ApiKeys.listed(tmp_path)} if names else {}
    assert of_many(tmp_path) == {ids[name] for name in users}
    if names:
        ApiKeys.create(tmp_path, "product", shared=True)
        assert of_many(tmp_path) == set(ApiKeys.shared_ids(tmp_path))
        assert len(of_many(tmp_path)) == 1


def columns(*rows: tuple[str, str]) -> Columns:
    return {"key_id": [key for key, _ in rows], "user": [user for _, user in rows]}


def test_names_of_a_shared_key_are_users_and_those_of_another_are_the_key() -> None:
    live = columns(("product", "ann"), ("product", "bob"), ("mine", "cid"), ("mine", "dan"), ("k", "ann"))
    canary = columns(("mine", "eve"), ("one", "fay"), ("one", "fay"), ("k", "ann"))
    counted = Counted([live, canary], {"product"})
    seen = [counted.of(each) for each in (live, canary)]
    assert seen[0]["unit"] == ["ann", "bob", "\0mine", "\0mine", "ann"]  # `k` names nobody but ann
    assert seen[1]["unit"] == ["\0mine", "fay", "fay", "ann"]
    assert [is_key(str(unit)) for unit in seen[1]["unit"]] == [True, False, False, False]
    assert joined(seen[0], range(5)) == {"mine": 2}
    assert joined(seen[0], [0, 3]) == joined(seen[1], range(4)) == {"mine": 1}
    earlier = counted.of(columns(("mine", "gil"), ("one", "hal")))
    assert earlier["unit"] == ["\0mine", "hal"], "as what was read says, not as the past does"
    two = columns(("two", "ivy"), ("two", "jay"))
    assert Counted([two], {"product"}).of(two)["unit"] == ["\0two", "\0two"]


def test_a_key_has_the_say_of_the_median_user() -> None:
    """Five users with 1, 1, 2, 3 and 4 edits, half of which stay, and a key with 40, none of which do."""
    edits = {"ann": 1, "bob": 1, "cid": 2, "dan": 3, "eve": 4, "\0many": 40}
    rows = [(unit, unit.startswith("\0")) for unit, n in edits.items() for _ in range(n)]
    told: dict[str, list[float | None]] = {name: [None] * len(rows) for name in SIGNALS.values()}
    told["edit_persistence"] = [0.0 if key else 0.5 for _, key in rows]
    ids = [str(n) for n in range(len(rows))]
    units = [unit for unit, _ in rows]
    seen = arm_of(set(ids), {**told, "episode_id": ids, "user": ids, "unit": units}, {})
    kept = seen.metrics["edit_persistence"]
    assert kept.counts.tolist() == [2.5, 1, 1, 2, 3, 4]  # of 1, 1, 2, 3, 4 and 40
    assert kept.mean == pytest.approx(5.5 / 13.5)
    assert (seen.users, seen.episodes, seen.joined) == (5, 51, {"many": 40})
    few = weights_of(["\0a", "\0b"], np.array([1, 3]))
    assert few.tolist() == [1.0, pytest.approx(2 / 3)]
    assert weights_of(["\0a", "b"], np.array([1, 1])).tolist() == [1.0, 1.0]
    heavy = weights_of(["a", "b", "c", "d", "\0e"], np.array([1, 2, 10, 40, 0]))  # the median is 6
    assert heavy.tolist() == [1.0, 1.0, 1.0, 0.75, 1.0]
    assert weights_of(["a"], np.array([0])).tolist() == [1.0]


@pytest.mark.parametrize("heavy", ["\0many", "job"])
def test_none_that_has_most_promotes_what_is_worse(heavy: str) -> None:
    """100 users an arm with five edits each, of which four stay, or 3.5 with the canary; and a key, or user,
    with 95 in 100 of either arm's edits: none stays with the live checkpoint, all do with the canary."""
    random = np.random.default_rng(1)

    def action(share: float, weight: float) -> str:
        arms = []
        for kept, key in ((0.8, 0.0), (0.7, 1.0)):
            sums = np.append(random.binomial(5, kept, 100), key * share * weight)
            arms.append(Users.of(sums, np.append(np.full(100, 5.0), share * weight)))
        metric = AbMetric("kept", "higher", 0.0, 0.03, 1.0)
        both, even = {"kept": (arms[0], arms[1])}, (0.5, 0.5)
        return look(
            [metric], both, (100, 100), even, AbRules(), planned={"kept": 1e4}, at_horizon=True
        ).action

    weight = weights_of(["ann", "bob", "cid", heavy], np.array([5, 5, 5, 10_000]))[-1]
    assert action(10_000, 1.0) == "promote"
    assert action(10_000, float(weight)) != "promote"
