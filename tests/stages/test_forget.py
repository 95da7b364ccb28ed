"""`rtrl forget` on a workspace that has used the user's data everywhere, and on its backup."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import select

from stages.forget import names
from stages.forget.forget import Forgotten, forget, restored
from stages.forget.names import UnknownUserError
from stages.gateway.keys import ApiKeys
from stages.progress import Silent
from stages.registry import gc
from stages.registry.models import EventRow
from stages.registry.verify import verify
from stages.spool import Spool
from stages.spool.pending import pending_user
from stages.spool.verify import verify_spool
from stages.vault import UserForgottenError, Vault
from tests import processes
from tests.stages.forget_world import OTHER, TOKENS, WORD, backed_up, episode, opened, traces, used
from tests.stages.world import HOUR, World

USERS = {"eve", "ada", "eve2"}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def forgotten(world: World, user: str = "eve", **options: Any) -> Forgotten:
    return forget(world.workspace, world.store, user, by="test", **options)


def wrapped(world: World, user: str) -> bytes:
    with sqlite3.connect(world.workspace.keys_dir / "vault.db") as db:
        query = "SELECT wrapped FROM user_keys WHERE user = ? AND forgotten IS NULL"
        return bytes(db.execute(query, (user,)).fetchone()[0])


def events(world: World) -> list[EventRow]:
    with world.store.read() as session:
        return list(session.exec(select(EventRow).where(EventRow.entity == "user")))


def test_nothing_of_the_user_can_be_read_again_here_or_in_the_backup(world: World, tmp_path: Path) -> None:
    used(world)
    backup = backed_up(world, tmp_path / "backup")
    root, keys = world.workspace.root, world.workspace.keys_dir
    key, waiting = wrapped(world, "eve"), wrapped(world, pending_user("not-there-yet"))
    before = opened(backup, keys, USERS)
    assert before["eve"] >= 8  # the search finds what can be found
    assert before["ada"] >= 6
    assert any(key in path.read_bytes() for path in keys.iterdir())

    result = forgotten(world)
    assert (result.destroyed, result.waiting, result.recorded, result.noop) == (2, 1, True, False)
    after = {place: opened(place, keys, USERS) for place in (root, backup)}
    for place, counts in after.items():
        assert counts["eve"] == 0, place
        assert (counts["ada"], counts["eve2"]) == (before["ada"], before["eve2"]), place
        assert traces(place) == []
        for path in (one for one in place.rglob("*") if one.is_file()):
            content = path.read_bytes()
            assert key not in content, path
            assert waiting not in content, path
    world.vault._next_check = 0.0  # a second has passed
    with pytest.raises(UserForgottenError):
        world.vault.seal("eve", b"x", b"", like=_blob(root))

    checked = verify(world.store, "full", Silent())
    assert checked.problems == []
    assert verify_spool(world.workspace.spool_dir, deep=True).problems == []


def _blob(root: Path) -> bytes:
    import pyarrow.parquet as pq

    path = next(iter(sorted(root.rglob("generations.parquet"))))
    return next(row["sealed"] for row in pq.read_table(path).to_pylist() if row["user"] == "eve")


def test_the_search_finds_what_is_not_sealed(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"x" + WORD.encode("utf-16-le"))
    (tmp_path / "b.bin").write_bytes(b"".join(token.to_bytes(4, "little") for token in TOKENS))
    (tmp_path / "c.log").write_text(OTHER)
    assert traces(tmp_path) == ["a.log", "b.bin"]


def test_what_held_and_what_learned_is_listed(world: World) -> None:
    used(world)
    world.store.move_alias("chat", "live", world.store.resolve("checkpoint@v2").digest, reason="test")
    planned = forgotten(world, dry_run=True)
    assert (planned.destroyed, planned.recorded) == (2, False)
    assert events(world) == []
    found = forgotten(world).holdings
    assert found == planned.holdings
    held = {one.ref: one for one in found.artifacts}
    assert set(held) == {"interactions@v1", "experience@v1"}
    assert (held["interactions@v1"].generations, held["interactions@v1"].episodes) == (3, 3)
    assert held["interactions@v1"].events >= 6
    assert held["experience@v1"].episodes == 3
    trained, child = found.checkpoints
    assert (trained.ref, trained.episodes, trained.through) == ("checkpoint@v2", 3, "")
    assert trained.marks == ("live of chat",)
    assert (child.ref, child.episodes, child.through, child.marks) == (
        "checkpoint@v3", 0, trained.digest, ("live",),
    )  # fmt: skip
    assert forgotten(world, "clock").holdings.checkpoints == []


def test_what_gc_removed_is_listed_as_long_as_anything_tells(world: World) -> None:
    used(world)
    trained = world.store.resolve("checkpoint@v2").digest
    for n in range(5):  # so many deployments ago that nothing holds them
        world.promote(world.checkpoint(parent=world.live if n == 0 else None))
    gc.collect(world.store, 0, by="test")
    assert world.store.artifact(trained) is None
    found = forgotten(world).holdings.checkpoints
    assert (found[0].digest, found[0].marks, found[0].episodes) == (trained, ("removed",), 3)

    experience = world.store.resolve("experience@v1")
    shutil.rmtree(experience.path)
    with sqlite3.connect(world.store.dir / "registry.db") as db:
        db.execute("UPDATE artifact SET state = 'tombstoned' WHERE digest = ?", (experience.digest,))
    found = forgotten(world).holdings.checkpoints
    assert (found[0].digest, found[0].episodes) == (trained, None)
    assert (found[1].through, found[1].episodes) == (trained, None)
    assert all("removed" in one.note for one in found)


def test_a_line_state_tells_what_a_removed_experience_no_longer_can(world: World) -> None:
    used(world)
    experience = world.store.resolve("experience@v1")
    shutil.rmtree(experience.path)
    with sqlite3.connect(world.store.dir / "registry.db") as db:
        db.execute("UPDATE artifact SET state = 'tombstoned' WHERE digest = ?", (experience.digest,))
    assert [one.episodes for one in forgotten(world).holdings.checkpoints] == [3, 0]
    assert forgotten(world, "clock").holdings.checkpoints == []


def test_a_second_time_says_so_and_a_user_who_comes_back_is_forgotten_again(world: World) -> None:
    used(world)
    forgotten(world, reason="asked by eve@corp.io")
    again = forgotten(world)
    assert again.noop
    assert (again.destroyed, len(again.before)) == (0, 1)
    assert again.before[0].forgotten.startswith("20")
    (event,) = events(world)
    assert (event.entity_id, event.to_state, event.by) == ("eve", "forgotten", "test")
    data = json.loads(event.data)
    assert (data["epochs"], data["reason"]) == ([1], "asked by [redacted:email]")

    world.vault._next_check = 0.0
    blob = world.vault.seal("eve", b"back", b"id")
    assert world.vault.epoch("eve") == 2
    assert world.vault.unseal("eve", blob, b"id") == b"back"
    third = forgotten(world)
    assert (third.destroyed, len(third.before)) == (1, 1)
    assert [json.loads(one.data)["epochs"] for one in events(world)] == [[1], [2]]


def test_names_are_exact_and_those_alike_are_shown(world: World) -> None:
    used(world)
    ApiKeys.create(world.workspace.keys_dir, "Team")
    identity = ApiKeys.listed(world.workspace.keys_dir)[0].id
    world.generation("g-key", "e-key", 5 * HOUR, user=identity, key_id=identity, session="s-key")
    world.writer.flush()
    for wrong, meant in (("ev", "eve"), ("EVE", "eve"), ("team", identity), ("adaa", "ada")):
        with pytest.raises(UnknownUserError) as caught:
            forgotten(world, wrong)
        assert caught.value.code == 5
        assert meant in caught.value.hint
    with pytest.raises(UnknownUserError) as caught:
        forgotten(world, "\x1fpending/not-there-yet")
    assert "API key" in caught.value.hint
    result = forgotten(world)
    assert result.alike == ("eve2",)
    assert not world.vault.forgotten("eve2")


def test_a_name_in_another_form_of_unicode_is_shown(world: World) -> None:
    """A Mac's file system writes an é as two characters; a person types one, or none."""
    recorded = "Jose\u0301"
    episode(world, recorded, "e", 0)
    world.writer.flush()
    for typed in ("Jos\u00e9", "jose", "\uff2aos\u00e9"):
        with pytest.raises(UnknownUserError) as caught:
            forgotten(world, typed)
        assert repr(recorded) in caught.value.hint, typed
    episode(world, "Jos\u00e9", "f", 0)
    world.writer.flush()
    assert forgotten(world, "Jos\u00e9").alike == (recorded,)


def test_waiting_events_of_a_shared_key_are_told_not_destroyed(world: World) -> None:
    used(world)
    world.generation("g-x", "e-x", HOUR, user="bob", key_id="key-eve", session="s-bob")
    world.writer.flush()
    result = forgotten(world)
    assert (result.destroyed, result.waiting, result.waiting_shared) == (1, 0, 1)
    assert not world.vault.forgotten(pending_user("not-there-yet"))


def test_of_a_shared_key_nobody_is_alone_whatever_the_spool_has_left(world: World) -> None:
    """Once gc had deleted what Ben had done, his waiting event went with Eve's key."""
    ApiKeys.create(world.workspace.keys_dir, "team", shared=True)
    ApiKeys.create(world.workspace.keys_dir, "hers")
    team, hers = (key.id for key in ApiKeys.listed(world.workspace.keys_dir))
    for n, key in enumerate((team, hers)):
        world.generation(f"g{n}", f"e{n}", n, user="eve", key_id=key, session=f"s{n}")
        world.event(f"next-{n}", "user_message", 50, key=key, text="words")
    world.writer.flush()
    result = forgotten(world)
    assert (result.waiting, result.waiting_shared) == (1, 1)
    assert world.vault.forgotten(pending_user("next-1"))
    assert not world.vault.forgotten(pending_user("next-0"))


def test_a_no_train_user_is_known_and_nothing_is_sealed(world: World) -> None:
    world.generation("g1", "e1", 0, user="shy", no_train=True)
    world.writer.flush()
    result = forgotten(world, "shy")
    assert (result.destroyed, result.spool_generations, result.noop) == (0, 1, True)


def test_an_older_vault_put_back_is_noticed(world: World, tmp_path: Path) -> None:
    used(world)
    with sqlite3.connect(world.workspace.keys_dir / "vault.db") as source:
        old = sqlite3.connect(tmp_path / "old.db")
        source.backup(old)
        forgotten(world)
        assert restored(world.workspace, world.store) == ()
        old.backup(source)
        old.close()
    assert names.living_epochs(world.workspace)["eve"] == 1
    seen = processes.rtrl("verify", "--depth", "present", "-w", str(world.workspace.root))
    assert (seen.returncode, "forget` each of them again: eve\n" in seen.stderr) == (12, True), seen.stderr
    assert forgotten(world, "ada").restored == ("eve",)
    assert forgotten(world, "eve").restored == ()


POINTS = (
    "vault.forget.before", "vault.forget.after", "vault.rewrite.after", "vault.empty.after",
    "forget.commit.before", "forget.commit.after",
)  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere_the_next_call_completes_it(world: World, point: str) -> None:
    """The keys of waiting events go in the same transaction as the user's: there is no second one to pass."""
    used(world)
    key = wrapped(world, "eve")
    root = str(world.workspace.root)
    killed = processes.rtrl("forget", "eve", "--json", "-w", root, env={"RTRL_FAULT": point})
    assert killed.returncode == -signal.SIGKILL
    forgotten(world)
    assert len(events(world)) == 1
    assert not any(key in path.read_bytes() for path in world.workspace.keys_dir.iterdir())
    assert forgotten(world).noop


def test_a_vault_that_is_open_elsewhere_notices(world: World) -> None:
    used(world)
    serving = Vault.open(world.workspace.keys_dir)
    blob = serving.seal("eve", b"x", b"")
    forgotten(world)
    serving._next_check = 0.0  # a second has passed
    with pytest.raises(UserForgottenError):
        serving.unseal("eve", blob, b"")
    assert not serving.has_key("eve")
    assert serving.epoch("eve") == 2
    serving.close()


def test_a_gateway_that_writes_goes_on_under_a_new_key(world: World) -> None:
    """Another process forgets; the writer's own vault notices, and nothing new extends what is forgotten."""
    used(world)
    root, keys = world.workspace.root, world.workspace.keys_dir
    forgotten(world)
    world.vault._next_check = 0.0  # a second has passed
    episode(world, "eve", "eve-again", 6 * HOUR)
    world.writer.flush()
    spool = Spool.open(world.workspace.spool_dir)
    generation, blob = spool.record("eve-again.1")
    spool.close()
    assert (generation.prompt_base, generation.prompt_prefix) == ("", 0)
    assert world.vault.unseal("eve", blob, b"eve-again.1")
    assert opened(root, keys, USERS)["eve"] == 3  # the new generation and its two events
    assert forgotten(world).destroyed == 1
    assert opened(root, keys, USERS)["eve"] == 0
