"""Keys that are older than the data: `rtrl verify` names whose data has none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stages.inbox.writer import InboxWriter, Received
from stages.sealed_users import samples, sealed_users
from stages.spool import SpoolWriter
from stages.vault import DATABASE_FILE, MASTER_FILE, Vault
from stages.vault_check import VaultCheck, check_vault
from tests import processes
from tests.stages.world import HOUR, World

OLDER = "keys/ is older than the data, or lost"
OTHER = "vault: not the keys under which records were sealed, of {}"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def answer(world: World, user: str, at: int, **fields: Any) -> None:
    world.generation(f"{user}-{at}", f"{user}-{at}", at, user=user, session=f"{user}-{at}", **fields)


def checked(world: World, deep: bool = True) -> VaultCheck:
    world.writer.flush()
    workspace = world.workspace
    users = sealed_users(workspace, world.store, deep=deep)
    opened = samples(workspace, world.store, everywhere=True) if deep else ()
    return check_vault(workspace.keys_dir, deep=deep, sealed_for=users, samples=opened)


def restored(world: World, copy: Path, *lost: Path) -> None:
    """The disk died; keys/ comes from a copy that is older than what comes from the other backup."""
    world.close()
    for folder in (world.workspace.keys_dir, *lost):
        shutil.rmtree(folder)
    shutil.copytree(copy, world.workspace.keys_dir)
    world.vault = Vault.open(world.workspace.keys_dir)
    world.writer = SpoolWriter(world.workspace.spool_dir, world.vault, fsync_ms=1.0)


def copied(world: World, tmp_path: Path) -> Path:
    world.writer.flush()
    world.vault.forget("nobody")  # empties the log
    return Path(shutil.copytree(world.workspace.keys_dir, tmp_path / "copy"))


def test_users_who_came_after_the_copy_of_the_keys_are_named(world: World, tmp_path: Path) -> None:
    answer(world, "ada", 0)
    copy = copied(world, tmp_path)
    for user in ("eve", "ben"):
        answer(world, user, 10)
    answer(world, "quiet", 20, no_train=True)
    assert checked(world) == VaultCheck(3, [])
    restored(world, copy)
    told = [f"vault: there is no key for what is sealed for 2 users: ben, eve; {OLDER}"]
    assert [checked(world, deep) for deep in (True, False)] == [VaultCheck(1, told)] * 2
    done = processes.rtrl("verify", "--depth", "present", "-w", str(world.workspace.root))
    assert (done.returncode, told[0] in done.stderr) == (12, True)


def test_a_key_made_anew_is_not_the_one_that_was_lost(world: World, tmp_path: Path) -> None:
    """The words were "the oldest records": the newest are tried too."""
    answer(world, "ada", 0)
    copy = copied(world, tmp_path)
    answer(world, "ben", 10)
    world.writer.flush()
    restored(world, copy)
    answer(world, "ben", 20)  # comes back, and gets a key that has the number of the lost one
    told = OTHER.format("1 user: ben")
    assert checked(world) == VaultCheck(2, [told])
    world.vault.forget("ben")
    assert checked(world) == VaultCheck(1, []), "what was sealed for who is forgotten need not open"


def test_what_is_sealed_in_artifacts_and_received_telemetry_has_keys_too(
    world: World, tmp_path: Path
) -> None:
    copy = copied(world, tmp_path)
    answer(world, "ada", 0)
    world.tick(3 * HOUR)
    world.collect()
    inbox = InboxWriter(world.workspace.inbox_dir, world.vault, segment_bytes=1 << 20, max_bytes=1 << 30)
    inbox.append([Received("k", "eve", "otel", [b"one"])])
    inbox.close()
    assert checked(world).problems == []
    restored(world, copy, world.workspace.spool_dir)
    told = f"vault: there is no key for what is sealed for 2 users: ada, eve; {OLDER}"
    assert checked(world).problems == [told]


def test_the_key_of_who_came_back_after_the_copy_is_missed(world: World, tmp_path: Path) -> None:
    """The copy is made after each forget, and says that she is forgotten: the oldest record need not open."""
    answer(world, "eve", 0)
    world.writer.flush()
    world.vault.forget("eve")
    copy = copied(world, tmp_path)
    world.vault._next_check = 0.0  # a second has passed
    answer(world, "eve", 10)
    assert checked(world) == VaultCheck(1, [])
    restored(world, copy)
    assert checked(world) == VaultCheck(0, [OTHER.format("1 user: eve")])
    done = processes.rtrl("verify", "-w", str(world.workspace.root))
    assert (done.returncode, OTHER.format("1 user: eve") in done.stderr) == (12, True)


def test_keys_of_artifacts_and_received_telemetry_are_tried_without_a_spool(
    world: World, tmp_path: Path
) -> None:
    """gc deletes the spool after a month; who came back before the right keys did has another key."""
    copy = copied(world, tmp_path)
    for n in range(3):
        answer(world, "ada", n)
    world.tick(3 * HOUR)
    world.collect()
    inbox = InboxWriter(world.workspace.inbox_dir, world.vault, segment_bytes=1 << 20, max_bytes=1 << 30)
    inbox.append([Received("k", "eve", "otel", [b"one"])])
    inbox.close()
    restored(world, copy, world.workspace.spool_dir)
    world.vault.ensure(["ada", "eve"])
    assert checked(world) == VaultCheck(2, [OTHER.format("2 users: ada, eve")])
    done = processes.rtrl("verify", "--full", "-w", str(world.workspace.root))
    assert (done.returncode, OTHER.format("2 users: ada, eve") in done.stderr) == (12, True)


def test_keys_that_are_gone_altogether_are_missed(world: World) -> None:
    answer(world, "ada", 0)
    world.writer.flush()
    for name in (MASTER_FILE, DATABASE_FILE):
        (world.workspace.keys_dir / name).unlink()
    told = f"vault: there is no key for what is sealed for 1 user: ada; {OLDER}"
    assert checked(world) == VaultCheck(0, [told])
