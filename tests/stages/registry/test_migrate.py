from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory

from stages.errors import IntegrityError, StoreError, UsageError
from stages.registry import migrate
from stages.registry.schema import FILE, HEAD
from stages.registry.store import Store
from stages.runner import run_stage
from stages.workspace import Workspace
from tests.stages.toy import Toy


def test_head_is_the_newest_migration() -> None:
    assert ScriptDirectory.from_config(migrate.alembic_config()).get_heads() == [HEAD]


def test_the_migrations_make_what_the_models_say(store: Store) -> None:
    assert migrate.check(store.dir) == []


def test_a_schema_that_differs_is_seen(store: Store) -> None:
    with sqlite3.connect(store.dir / FILE) as connection:
        connection.execute("ALTER TABLE run ADD COLUMN more TEXT")
    assert any("more" in problem for problem in migrate.check(store.dir))


def test_connections_are_durable_and_check_keys(store: Store) -> None:
    from sqlalchemy import text

    with store.read() as session:
        values = {
            name: session.connection().execute(text(f"PRAGMA {name}")).scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert values == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 30000}


def test_nothing_migrates_by_itself(store: Store) -> None:
    with sqlite3.connect(store.dir / FILE) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0000'")
    with pytest.raises(StoreError, match="schema is 0000, this program needs") as caught:
        Store.open(store.dir)
    assert caught.value.code == 10
    assert caught.value.hint == "run `rtrl db upgrade`"


def test_a_newer_store_is_refused(store: Store) -> None:
    with sqlite3.connect(store.dir / FILE) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    for attempt in (Store.open, migrate.upgrade, migrate.check):  # check told to restore a backup
        with pytest.raises(StoreError) as caught:
            attempt(store.dir)
        assert "update rtrl" in caught.value.hint


def test_upgrade_saves_first_and_is_idempotent(tmp_path: Path) -> None:
    """From a store that was never migrated: an empty database."""
    for folder in migrate.FOLDERS:
        (tmp_path / folder).mkdir(parents=True)
    sqlite3.connect(tmp_path / FILE).executescript("CREATE TABLE x (y); DROP TABLE x;")
    before, after, saved = migrate.upgrade(tmp_path)
    assert (before, after) == ("", HEAD)
    assert saved is not None
    assert saved.exists()
    assert migrate.upgrade(tmp_path) == (HEAD, HEAD, None)
    Store.open(tmp_path)


@pytest.mark.parametrize("lost", ["emptied", "gone"])
def test_a_registry_that_was_lost_is_not_begun_anew(store: Store, workspace: Workspace, lost: str) -> None:
    """`rtrl db upgrade`, as the hint said, made an empty one, and left it as the newest backup."""
    run_stage(workspace, store, Toy())
    for file in store.dir.glob(f"{FILE}*"):
        file.unlink()
    if lost == "emptied":
        (store.dir / FILE).touch()
    for attempt in (Store.open, migrate.upgrade, migrate.create_store, migrate.backup):
        with pytest.raises(IntegrityError, match="there are artifacts beside it") as caught:
            attempt(store.dir)
        assert "store/backups" in caught.value.hint
    assert not [*store.dir.glob("backups/*")]


def test_a_backup_is_a_store(workspace: Workspace, store: Store, tmp_path: Path) -> None:
    data = run_stage(workspace, store, Toy()).outputs["data"]
    saved = migrate.backup(store.dir)
    assert saved.parent == store.dir / "backups"
    (tmp_path / "copy").mkdir()
    saved.rename(tmp_path / "copy" / FILE)
    assert Store.open(tmp_path / "copy").resolve("interactions@v1").digest == data.digest


def test_a_backup_is_its_owners_and_durable_by_name(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was 0644 under umask 022, with users' names and paths in it."""
    opened: list[int] = []

    def point(name: str) -> None:
        if name == "db.backup.rename.before":
            opened.append(stat.S_IMODE((tmp_path / ".copy.db.partial").stat().st_mode))
        if name == "db.backup.rename.after":
            monkeypatch.setattr("stages.registry.migrate.sync", synced.append)

    synced: list[Path] = []
    monkeypatch.setattr("stages.registry.migrate.faults.point", point)
    before = os.umask(0o022)
    try:
        saved = migrate.backup(store.dir, tmp_path / "copy.db")
    finally:
        os.umask(before)
    assert (opened, stat.S_IMODE(saved.stat().st_mode), synced) == ([0o600], 0o600, [tmp_path])


def test_what_a_killed_backup_left_goes_with_the_next_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = store.dir / "backups/.registry-20260101T000000000000Z.db.partial"
    for path in (left, left.with_name(f"{left.name}-journal")):
        path.touch()
    inner: list[Path] = []

    def another(name: str) -> None:  # while one is being written
        if name == "db.backup.fsync.before" and not inner:
            inner.append(left)
            inner.append(migrate.backup(store.dir))

    monkeypatch.setattr("stages.registry.migrate.faults.point", another)
    saved = migrate.backup(store.dir)
    assert set((store.dir / "backups").iterdir()) == {saved, inner[1]}


@pytest.mark.parametrize("damage", ["no database", "truncated"])
def test_a_damaged_registry_is_said_so(workspace: Workspace, store: Store, damage: str) -> None:
    run_stage(workspace, store, Toy())
    path = store.dir / FILE
    path.write_bytes(b"nonsense" * 1000 if damage == "no database" else path.read_bytes()[:60_000])
    for attempt in (Store.open, migrate.check, migrate.backup):
        with pytest.raises(IntegrityError, match="damaged") as caught:
            attempt(store.dir)
        assert caught.value.code == 12
        assert "backup" in caught.value.hint


def test_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as caught:
        Store.open(tmp_path)
    assert caught.value.code == 10
    assert "rtrl init" in caught.value.hint


def test_a_damaged_registry_gives_no_backup(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stages.registry.migrate._problems", lambda _: ["row 7 missing from index x"])
    with pytest.raises(IntegrityError, match="row 7 missing"):
        migrate.backup(store.dir)
    assert list((store.dir / "backups").iterdir()) == []


def test_a_backup_replaces_nothing_not_even_a_dangling_link(store: Store, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="there already"):
        migrate.backup(store.dir, tmp_path / "link")
    assert not (tmp_path / "nowhere").exists()
