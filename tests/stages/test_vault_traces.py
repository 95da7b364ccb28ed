"""What is left of a destroyed key in the files of `keys/`: nothing, whatever came in between.

SQLite leaves the bytes of a cell behind where it moves the cell to a neighbouring page: a living key may lie
in the database twice. Names of many lengths bring that about.
"""

from __future__ import annotations

import random
import resource
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from stages.errors import DependencyDownError
from stages.vault import DATABASE_FILE, UserForgottenError, Vault
from stages.vault_writing import Writer, owes_rewrite
from tests import processes

LETTERS = "abcdefghijklmnopqrstuvwxyz."
HOSTS = ("@acme.example", "@x.io", "@engineering.acme.example")
FORGET = (
    "import sys; from pathlib import Path; from stages.vault import Vault;"
    "Vault.open(Path(sys.argv[1])).forget(sys.argv[2])"
)


def user(drawn: random.Random) -> str:
    return "".join(drawn.choice(LETTERS) for _ in range(drawn.choice([4, 8, 14, 22]))) + drawn.choice(HOSTS)


def living(keys: Path) -> dict[str, bytes]:
    with closing(sqlite3.connect(keys / DATABASE_FILE)) as db:
        return dict(db.execute("SELECT user, wrapped FROM user_keys WHERE forgotten IS NULL").fetchall())


def owed(keys: Path) -> bool:
    with closing(sqlite3.connect(keys / DATABASE_FILE)) as db:
        return owes_rewrite(db)


def traces(keys: Path, wrapped: bytes) -> int:
    return sum(path.read_bytes().count(wrapped) for path in keys.iterdir())


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vault with keys that lie in its database twice."""
    for seed in range(4, 60):  # 26 of 196 of them have one
        keys, drawn = tmp_path_factory.mktemp("grown"), random.Random(seed)
        names = list(dict.fromkeys(user(drawn) for _ in range(1200)))
        vault = Vault.create(keys)
        for n in range(0, len(names), 8):
            vault.ensure(names[n : n + 8])
        vault.close()
        if any(traces(keys, wrapped) > 1 for wrapped in living(keys).values()):
            return keys
    raise AssertionError("no vault has a key twice: has SQLite changed?")


@pytest.fixture
def keys(grown: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(grown, tmp_path / "keys"))


@pytest.fixture
def twice(keys: Path) -> tuple[str, bytes]:
    """Whose key lies in the database twice, and how it is there."""
    return next(each for each in living(keys).items() if traces(keys, each[1]) > 1)


def test_no_copy_within_a_page_is_left(keys: Path) -> None:
    before = living(keys)
    doubled = [name for name, wrapped in before.items() if traces(keys, wrapped) > 1]
    vault = Vault.open(keys)
    sealed = {name: vault.seal(name, b"x", b"") for name in before}
    assert vault.forget(*doubled) == len(doubled)
    assert not any(traces(keys, before[name]) for name in doubled)
    for name, blob in sealed.items():
        if name in doubled:
            with pytest.raises(UserForgottenError):
                vault.unseal(name, blob, b"")
        else:
            assert vault.unseal(name, blob, b"") == b"x"
    assert not owed(keys)


@pytest.mark.parametrize("point", ["vault.forget.after", "vault.rewrite.after", "vault.empty.after"])
def test_killed_on_the_way_whoever_opens_the_vault_next_goes_on(
    keys: Path, twice: tuple[str, bytes], point: str
) -> None:
    name, wrapped = twice
    with closing(
        sqlite3.connect(keys / DATABASE_FILE)
    ) as other:  # else SQLite empties the log at the next end
        other.execute("SELECT count(*) FROM user_keys").fetchone()
        killed = processes.python("-c", FORGET, str(keys), name, env={"RTRL_FAULT": point})
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert owed(keys)
        Vault.open(keys).close()
        assert traces(keys, wrapped) == 0
    assert not owed(keys)


def test_with_a_reader_in_the_way_it_is_told_and_done_after(keys: Path, twice: tuple[str, bytes]) -> None:
    name, wrapped = twice
    vault = Vault.open(keys)
    with closing(sqlite3.connect(keys / DATABASE_FILE, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM user_keys").fetchone()
        with pytest.raises(DependencyDownError, match="the user is forgotten, but another process"):
            vault.forget(name, patience_s=0)
        assert traces(keys, wrapped), "the reader still reads it"
        Vault.open(keys).close()
        assert owed(keys)
        vault.ensure(["new"])
    Vault.open(keys).close()
    assert (traces(keys, wrapped), owed(keys)) == (0, False)
    assert {"new"} < set(living(keys))


def test_a_reader_that_stays_in_the_way_does_not_make_the_log_grow(
    keys: Path, twice: tuple[str, bytes]
) -> None:
    """Each command that opened the vault, and each worker of it, left the whole database in the log again."""
    database, log = keys / DATABASE_FILE, keys / f"{DATABASE_FILE}-wal"
    vault = Vault.open(keys)
    with closing(sqlite3.connect(database, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM user_keys").fetchone()
        for _ in range(5):
            with pytest.raises(DependencyDownError, match="the user is forgotten, but another process"):
                vault.forget(twice[0], patience_s=0)
            Vault.open(keys).close()
        assert owed(keys)
        assert log.stat().st_size < database.stat().st_size
    Vault.open(keys).close()
    assert (traces(keys, twice[1]), owed(keys)) == (0, False)


def test_a_writer_in_the_way_is_waited_for(keys: Path, twice: tuple[str, bytes]) -> None:
    name, wrapped = twice
    vault = Vault.open(keys)
    vault.forget(name, rewrite=False)
    assert traces(keys, wrapped) == 1, "what the disk's thread leaves"
    with closing(sqlite3.connect(keys / DATABASE_FILE, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(DependencyDownError, match="another process"):
            Writer(keys / DATABASE_FILE, vault._aead).erase(0.2, rewrite=True)
        writer.execute("ROLLBACK")
    assert vault.forget("nobody") == 0
    assert traces(keys, wrapped) == 0


def test_on_a_full_disk_it_is_told_and_done_when_there_is_room(keys: Path, twice: tuple[str, bytes]) -> None:
    name, wrapped = twice
    vault = Vault.open(keys)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(DependencyDownError, match="the user is forgotten, but the vault's") as told:
            vault.forget(name)
        Vault.open(keys).close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "free as much disk space" in told.value.hint
    assert vault.forgotten(name)
    assert owed(keys)
    assert vault.forget(name) == 0
    assert (traces(keys, wrapped), owed(keys)) == (0, False)


def test_a_vault_of_before_is_written_anew_once(keys: Path, twice: tuple[str, bytes]) -> None:
    name, wrapped = twice
    with closing(sqlite3.connect(keys / DATABASE_FILE)) as db, db:
        db.execute("PRAGMA secure_delete = ON")
        db.execute("UPDATE user_keys SET wrapped = NULL, forgotten = 1 WHERE user = ?", (name,))
        assert db.execute("PRAGMA user_version").fetchone() == (0,)
    assert traces(keys, wrapped)
    Vault.open(keys).close()
    assert (traces(keys, wrapped), owed(keys)) == (0, False)


def test_a_key_destroyed_while_the_database_is_written_anew_is_still_owed(
    keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = sorted(living(keys))[:2]
    vault = Vault.open(keys)
    other = Writer(keys / DATABASE_FILE, vault._aead)

    def meanwhile(point: str) -> None:
        if point == "vault.empty.after":
            monkeypatch.undo()
            other.forget([second], rewrite=True)  # and is killed

    monkeypatch.setattr("stages.vault_writing.faults.point", meanwhile)
    vault.forget(first)
    assert owed(keys)
    Vault.open(keys).close()
    assert not owed(keys)
