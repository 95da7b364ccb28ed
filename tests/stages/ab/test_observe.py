"""The arms of a canary out of a spool: whoever was given to it is seen, wherever it is in the tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from stages.ab.look import take_look
from stages.gateway.arms import assigned
from stages.progress import Silent
from stages.registry.deployments import Deployment
from stages.registry.holdbacks import open_holdback
from tests.stages.world import HOUR, World

SETTINGS = '[collect]\nclock = "events"\n[ab]\nmin_users = 10\n'
SHARE, USERS = 0.5, 40


def canary_of(world: World, checkpoint: str) -> Deployment:
    """An open one; nobody has used it yet."""
    deployments = world.store.deployments
    data = {"canary": {"share": SHARE, "opened_seq": 1}}
    made = deployments.create("auto", checkpoint, by="test", reason="test", data=data)
    for before, after in (("staged", "verifying"), ("verifying", "canary")):
        deployments.transition(made.id, before, after)
    return deployments.get(made.id)


@pytest.mark.parametrize("steps", [1, 2, 3], ids=["child", "sibling", "of an older one"])
def test_a_canary_is_seen_however_far_it_is_from_live(tmp_path: Path, steps: int) -> None:
    """Imported with a parent named, or made before another was promoted: nobody was seen in it.

    The tree is live's two ancestors and live; the canary is a child of what is `steps` - 1 above live. Its
    users are those whom its salt draws: who is not is nobody of an arm since.
    """
    world = World(tmp_path, SETTINGS)
    above = [world.live]
    for _ in range(2):
        above.insert(0, world.checkpoint(above[0]))
        world.promote(above[0])
    canary = world.checkpoint(above[steps - 1])
    assert world.store.lag(canary, world.live) == steps
    world.shared_key("k1")
    world.generation("before", "before", 0, user="user-0", checkpoint=above[1])
    salt = canary_of(world, canary).salt
    users = [f"user-{number}" for number in range(1000)]
    arms = [[user for user in users if assigned(user, salt, SHARE) == mine] for mine in (False, True)]
    for number in range(USERS):
        mine = number % 2 == 1
        world.generation(
            f"g-{number}", f"e-{number}", HOUR, user=arms[mine][number // 2], session=f"s-{number}",
            arm="canary" if mine else "live", checkpoint=canary if mine else world.live,
        )  # fmt: skip
    world.tick(9 * HOUR)
    world.writer.flush()
    seen = take_look(world.workspace, world.store, Silent(), by="test", deciding=False)
    assert seen.data["users"] == {"live": USERS // 2, "canary": USERS // 2}
    assert seen.data["sample_ratio_p"] == 1.0
    assert list((world.store.dir / "tmp").iterdir()) == []
    world.close()


def test_whom_the_live_engine_answered_in_its_place_is_nobody_of_the_live_arm(tmp_path: Path) -> None:
    """While the canary's engine, or the holdback's, starts again. Such users were counted in both arms, and
    many of them looked as if users were missing."""
    world = World(tmp_path, SETTINGS)
    canary = world.checkpoint(world.live)
    held = open_holdback(world.store, "auto", world.live, 0.2, 1, by="test")
    salt = canary_of(world, canary).salt
    world.shared_key("k1")
    world.generation("before", "before", 0, user="user-0")
    everybody = [f"user-{number}" for number in range(1000)]
    back = [user for user in everybody if assigned(user, held.salt, held.share)]
    others = [user for user in everybody if user not in back]
    arms = [[user for user in others if assigned(user, salt, SHARE) == mine][:50] for mine in (False, True)]
    for user in [*arms[0], *arms[1], *back[:50]]:
        world.generation(
            f"g-{user}", f"e-{user}", HOUR, user=user, session=f"s-{user}", checkpoint=world.live
        )
    for user in arms[1]:
        world.generation(
            f"h-{user}",
            f"f-{user}",
            2 * HOUR,
            user=user,
            session=f"t-{user}",
            arm="canary",
            checkpoint=canary,
        )
    world.tick(9 * HOUR)
    world.writer.flush()
    seen = take_look(world.workspace, world.store, Silent(), by="test", deciding=False)
    assert seen.data["users"] == seen.data["episodes"] == {"live": 50, "canary": 50}
    assert seen.data["sample_ratio_p"] == 1.0
    world.close()


def test_what_a_killed_look_left_is_removed_by_the_next(tmp_path: Path) -> None:
    """As they were made below `debug/`, each with a copy of the registry; a repeated run's stays."""
    world = World(tmp_path, SETTINGS)
    canary_of(world, world.checkpoint(world.live))
    for name in ("ab-090022231196", "collect-20261123T090022-0a1b2c3d-090022231196"):
        (world.workspace.debug_dir / name / "objects").mkdir(parents=True)
    take_look(world.workspace, world.store, Silent(), by="test", deciding=False)
    assert [path.name[:8] for path in world.workspace.debug_dir.iterdir()] == ["collect-"]
    world.close()


def test_a_canary_whose_completions_nobody_takes_is_rolled_back(tmp_path: Path) -> None:
    """Of 50 users an arm four in five take theirs, one in five of the canary's: a line of nothing else."""
    world = World(tmp_path, SETTINGS)
    canary = world.checkpoint(world.live)
    world.shared_key("k1")
    world.generation("before", "before", 0, user="user-0")
    salt = canary_of(world, canary).salt
    users = [f"user-{number}" for number in range(1000)]
    arms = [[user for user in users if assigned(user, salt, SHARE) == mine][:50] for mine in (False, True)]
    for mine, own in enumerate(arms):
        for number, user in enumerate(own):
            world.generation(
                f"g-{user}", f"e-{user}", HOUR, user=user, session=f"s-{user}",
                arm=("live", "canary")[mine], checkpoint=(world.live, canary)[mine],
            )  # fmt: skip
            taken = (number % 5 == 0) == bool(mine)
            end = "completion_accepted" if taken else "completion_rejected"
            world.event(f"g-{user}", end, HOUR + 1000)
    world.tick(9 * HOUR)
    world.writer.flush()
    seen = take_look(world.workspace, world.store, Silent(), by="test", deciding=False)
    assert seen.data["metrics"]["completion_accepted"]["gain"] == pytest.approx(-0.6)
    assert seen.action == "roll_back"
    assert seen.reason.startswith("completion_accepted is worse by 0.6")
    world.close()


@pytest.mark.parametrize("shared", [False, True], ids=["personal", "shared"])
def test_a_key_that_names_many_users_is_one_unless_it_is_shared(tmp_path: Path, shared: bool) -> None:
    """Ten people an arm with a key each, four in five of whose completions are taken; and a key that names
    forty users an arm, takes what the live checkpoint answers to them and refuses what the canary does."""
    world = World(tmp_path, SETTINGS)
    world.shared_key(*["many"] * shared)
    canary = world.checkpoint(world.live)
    world.generation("before", "before", 0, user="user-0", key_id="user-0")
    salt = canary_of(world, canary).salt
    users = [f"user-{number}" for number in range(1, 1000)]
    for mine in (False, True):
        own = [user for user in users if assigned(user, salt, SHARE) == mine]
        for number, user in enumerate(own[:50]):
            forged = number >= 10
            key = "many" if forged else user
            world.generation(
                f"g-{user}", f"e-{user}", HOUR, user=user, session=f"s-{user}", key_id=key,
                arm=("live", "canary")[mine], checkpoint=(world.live, canary)[mine],
            )  # fmt: skip
            taken = not mine if forged else number % 5 != 0
            end = "completion_accepted" if taken else "completion_rejected"
            world.event(f"g-{user}", end, HOUR + 1000, key=key)
    world.tick(9 * HOUR)
    world.writer.flush()
    seen = take_look(world.workspace, world.store, Silent(), by="test", deciding=False)
    each = seen.data["metrics"]["completion_accepted"]
    users_of = 50 if shared else 10  # and the key, once in each arm
    assert seen.data["users"] == {"live": users_of, "canary": users_of}
    assert seen.data["episodes"] == {"live": 50, "canary": 50}
    assert each["users"] == [50, 50] if shared else [11, 11]
    assert each["gain"] == pytest.approx((8 - 48) / 50 if shared else (8 - 9) / 11)  # one completion of its
    assert seen.action == ("roll_back" if shared else "hold")
    assert seen.data["joined"] == ([] if shared else [{"key": "many", "name": "many", "users": 80}])
    world.close()
