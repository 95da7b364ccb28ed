"""`rtrl keys backup`: all keys of now and none of before, and never in place of what is nowhere else."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from stages import faults
from stages.errors import IntegrityError, UsageError
from stages.spool.pending import pending_user
from stages.vault import DATABASE_FILE, MASTER_FILE, UserForgottenError, Vault
from stages.vault_backup import backup
from stages.workspace import Workspace
from tests import processes


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace.create(tmp_path / "ws", "")
    (tmp_path / "safe").mkdir()
    return workspace


def restored(workspace: Workspace, copy: Path, folder: Path) -> Vault:
    """A vault of the copy and the master key alone."""
    folder.mkdir()
    shutil.copy(workspace.keys_dir / MASTER_FILE, folder)
    shutil.copy(copy, folder / DATABASE_FILE)
    return Vault.open(folder)


def test_the_copy_has_the_keys_of_now_also_those_in_the_log(workspace: Workspace, tmp_path: Path) -> None:
    vault = Vault.create(workspace.keys_dir)
    vault.ensure(["ada"])
    vault.forget("ada")  # empties the log
    vault.ensure([f"u{n}" for n in range(50)])
    blob = vault.seal("u7", b"x", b"")
    done = processes.rtrl(
        "keys", "backup", "--to", str(tmp_path / "safe"), "--json", "-w", str(workspace.root)
    )
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout)["metrics"]
    copy = tmp_path / "safe" / DATABASE_FILE
    assert (metrics["backup"], metrics["users"], metrics["bytes"]) == (str(copy), 50, copy.stat().st_size)
    assert [path.name for path in (tmp_path / "safe").iterdir()] == [DATABASE_FILE]
    assert copy.stat().st_mode & 0o777 == 0o600
    again = restored(workspace, copy, tmp_path / "again")
    assert again.unseal("u7", blob, b"") == b"x"
    assert (len(again.users("")), bool(again.forgotten("ada"))) == (50, True)


def test_who_is_forgotten_while_a_copy_is_made_is_not_in_it(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy came into its place after `rtrl forget` had ended, with the key that was destroyed."""
    vault = Vault.create(workspace.keys_dir)
    vault.ensure(["ada", "eve"])
    blob = vault.seal("ada", b"x", b"")

    def meanwhile(name: str) -> None:
        if name == "vault.backup.rename.before" and vault.has_key("ada"):
            vault.forget("ada")

    monkeypatch.setattr(faults, "point", meanwhile)
    copy, users = backup(workspace.root, workspace.keys_dir, tmp_path / "safe")
    assert [path.name for path in (tmp_path / "safe").iterdir()] == [DATABASE_FILE]
    with pytest.raises(UserForgottenError):
        restored(workspace, copy, tmp_path / "again").unseal("ada", blob, b"")
    assert users == 1


def test_who_is_forgotten_is_gone_with_the_next_copy(workspace: Workspace, tmp_path: Path) -> None:
    vault = Vault.create(workspace.keys_dir)
    vault.ensure(["ada", "eve"])
    with closing(sqlite3.connect(workspace.keys_dir / DATABASE_FILE)) as db:
        key = db.execute("SELECT wrapped FROM user_keys WHERE user = 'eve'").fetchone()[0]
    copy, _ = backup(workspace.root, workspace.keys_dir, tmp_path / "safe" / "keys.db")
    assert key in copy.read_bytes()
    vault.forget("eve")
    assert backup(workspace.root, workspace.keys_dir, copy) == (copy, 1)
    assert [path for path in (tmp_path / "safe").iterdir() if key in path.read_bytes()] == []
    assert restored(workspace, copy, tmp_path / "again").users("") == ["ada"]


def test_an_older_vault_does_not_bring_back_who_is_forgotten_in_the_copy(
    workspace: Workspace, tmp_path: Path
) -> None:
    """The next night's copy of a vault that was put back had the key again, in the only copy that had not."""
    vault = Vault.create(workspace.keys_dir)
    waits = pending_user("g1")
    vault.ensure(["ada", "eve", waits])
    old, _ = backup(workspace.root, workspace.keys_dir, tmp_path / "safe" / "old.db")
    vault.forget("eve", waits)
    vault.close()
    copy, _ = backup(workspace.root, workspace.keys_dir, tmp_path / "safe")
    shutil.copy(old, workspace.keys_dir / DATABASE_FILE)
    before = copy.read_bytes()
    with pytest.raises(IntegrityError, match="has 1 user as forgotten whose key is there again"):
        backup(workspace.root, workspace.keys_dir, copy)
    assert copy.read_bytes() == before
    again = Vault.open(workspace.keys_dir)
    again.forget("eve")  # what waits for a generation nobody can name; `rtrl serve` lets go of it
    again.close()
    assert backup(workspace.root, workspace.keys_dir, copy) == (copy, 2)


def test_an_older_vault_does_not_replace_the_copy_that_has_the_keys_it_lacks(
    workspace: Workspace, tmp_path: Path
) -> None:
    """Also where a user came back since, and has a key with the number of the lost one."""
    safe = tmp_path / "safe"
    vault = Vault.create(workspace.keys_dir)
    vault.ensure(["ada"])
    older, _ = backup(workspace.root, workspace.keys_dir, safe / "older.db")
    vault.ensure(["ben"])
    blob = vault.seal("ben", b"x", b"")
    copy, _ = backup(workspace.root, workspace.keys_dir, safe)
    vault.close()
    for suffix in ("", "-wal", "-shm"):
        (workspace.keys_dir / f"{DATABASE_FILE}{suffix}").unlink(missing_ok=True)
    shutil.copy(older, workspace.keys_dir / DATABASE_FILE)
    vault = Vault.open(workspace.keys_dir)
    for users in ([], ["ben"]):
        vault.ensure(users)
        with pytest.raises(IntegrityError, match="has 1 key that keys/ lacks"):
            backup(workspace.root, workspace.keys_dir, safe)
    assert restored(workspace, copy, tmp_path / "again").unseal("ben", blob, b"") == b"x"
    assert sorted(path.name for path in safe.iterdir()) == ["older.db", DATABASE_FILE]


def test_no_copy_goes_into_the_workspace_or_over_another_file(workspace: Workspace, tmp_path: Path) -> None:
    Vault.create(workspace.keys_dir).ensure(["ada"])
    letter = tmp_path / "letter.txt"
    letter.write_text("dear Ada")
    for to, told in (
        (workspace.keys_dir / "copy.db", "inside the workspace"),
        (workspace.store_dir, "inside the workspace"),
        (tmp_path / "nowhere" / "copy.db", "there is no folder"),
        (letter, "no copy of keys"),
    ):
        with pytest.raises(UsageError, match=told):
            backup(workspace.root, workspace.keys_dir, to)
    assert letter.read_text() == "dear Ada"
    assert {path.name for path in tmp_path.iterdir()} == {"ws", "safe", "letter.txt"}


def test_keys_are_not_copied_among_data_that_lie_on_another_disk(
    workspace: Workspace, tmp_path: Path
) -> None:
    """A backup of that disk would have held data and keys."""
    Vault.create(workspace.keys_dir).close()
    disk = tmp_path / "disk"
    workspace.spool_dir.rename(disk)
    workspace.spool_dir.symlink_to(disk)
    for to in (disk, disk / "copy.db"):
        with pytest.raises(UsageError, match="inside the workspace"):
            backup(workspace.root, workspace.keys_dir, to)


@pytest.mark.parametrize("linked", ["keys", f"keys/{DATABASE_FILE}"])
def test_keys_on_another_disk_are_not_replaced_by_their_copy(
    workspace: Workspace, tmp_path: Path, linked: str
) -> None:
    """Named by its own name that folder is not below the workspace: its users lost the database."""
    Vault.create(workspace.keys_dir).close()
    place, other = workspace.root / linked, tmp_path / "disk" / Path(linked).name
    other.parent.mkdir()
    place.rename(other)
    place.symlink_to(other)
    vault = Vault.open(workspace.keys_dir)
    vault.ensure(["ada"])
    database = (workspace.keys_dir / DATABASE_FILE).resolve()
    before = database.stat().st_ino
    with pytest.raises(UsageError, match="inside the workspace"):
        backup(workspace.root, workspace.keys_dir, other)
    assert database.stat().st_ino == before
    assert backup(workspace.root, workspace.keys_dir, tmp_path / "safe")[1] == 1


def test_killed_on_the_way_the_copy_of_before_is_whole_and_the_next_call_works(
    workspace: Workspace, tmp_path: Path
) -> None:
    safe = tmp_path / "safe"
    vault = Vault.create(workspace.keys_dir)
    vault.ensure(["ada"])
    copy, _ = backup(workspace.root, workspace.keys_dir, safe)
    before = copy.read_bytes()
    vault.ensure(["ben"])
    root, fault = str(workspace.root), {"RTRL_FAULT": "vault.backup.rename.before"}
    killed = processes.rtrl("keys", "backup", "--to", str(safe), "-w", root, env=fault)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert copy.read_bytes() == before
    assert backup(workspace.root, workspace.keys_dir, safe) == (copy, 2)
    assert [path.name for path in safe.iterdir()] == [DATABASE_FILE]
