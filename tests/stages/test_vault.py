"""The vault: what opens, what never opens again, and for whom."""

from __future__ import annotations

import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.errors import DependencyDownError, InputMissingError, IntegrityError
from stages.vault import OVERHEAD, UserForgottenError, Vault
from tests import processes


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Vault:
    return Vault.create(tmp_path_factory.mktemp("keys"))


@given(user=st.text(min_size=1, max_size=20), plain=st.binary(max_size=300), aad=st.binary(max_size=30))
def test_round_trip(shared: Vault, user: str, plain: bytes, aad: bytes) -> None:
    blob = shared.seal(user, plain, aad)
    assert len(blob) == len(plain) + OVERHEAD
    assert shared.unseal(user, blob, aad) == plain


@given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_flipped_bit_never_opens(shared: Vault, place: int, bit: int) -> None:
    blob = bytearray(shared.seal("ada", b"secret text", b"id"))
    blob[place % len(blob)] ^= 1 << bit
    with pytest.raises(IntegrityError) as caught:
        shared.unseal("ada", bytes(blob), b"id")
    assert caught.value.code == 12


def test_a_blob_is_bound_to_user_and_record(shared: Vault) -> None:
    blob = shared.seal("ada", b"x", b"gen_1")
    shared.seal("bob", b"x", b"gen_1")
    for user, aad in (("bob", b"gen_1"), ("ada", b"gen_2"), ("nobody", b"gen_1")):
        with pytest.raises(IntegrityError):
            shared.unseal(user, blob, aad)


def test_forget_makes_everything_of_a_user_unreadable_and_nothing_else(tmp_path: Path) -> None:
    vault = Vault.create(tmp_path)
    ada, bob = vault.seal("ada", b"a", b""), vault.seal("bob", b"b", b"")
    assert not vault.forgotten("ada")
    assert vault.forget("ada") == 1
    assert vault.forget("ada") == 0
    assert vault.forgotten("ada")
    assert not vault.forgotten("bob")
    with pytest.raises(UserForgottenError):
        vault.unseal("ada", ada, b"")
    assert vault.unseal("bob", bob, b"") == b"b"


def test_many_users_are_forgotten_at_once(tmp_path: Path) -> None:
    vault = Vault.create(tmp_path)
    sealed = {user: vault.seal(user, b"x", b"") for user in ("ada", "bob", "eve")}
    assert vault.forget("ada", "eve", "nobody") == 2
    for user in ("ada", "eve"):
        with pytest.raises(UserForgottenError):
            vault.unseal(user, sealed[user], b"")
    assert vault.unseal("bob", sealed["bob"], b"") == b"x"
    assert vault.has_key("bob")
    assert vault.forget() == 0


def test_a_forgotten_user_who_comes_back_gets_a_new_key(tmp_path: Path) -> None:
    vault = Vault.create(tmp_path)
    old = vault.seal("ada", b"old", b"")
    vault.forget("ada")
    new = vault.seal("ada", b"new", b"")
    assert vault.unseal("ada", new, b"") == b"new"
    with pytest.raises(UserForgottenError):
        vault.unseal("ada", old, b"")
    with pytest.raises(UserForgottenError):  # moved content must not come back under the new key
        vault.seal("ada", b"moved", b"", like=old)
    assert vault.unseal("ada", vault.seal("ada", b"moved", b"", like=new), b"") == b"moved"


def test_forgetting_leaves_no_wrapped_key_in_any_file(tmp_path: Path) -> None:
    vault = Vault.create(tmp_path)
    vault.ensure([f"user{i}" for i in range(50)])
    with sqlite3.connect(tmp_path / "vault.db") as db:
        wrapped = db.execute("SELECT wrapped FROM user_keys WHERE user = 'user7'").fetchone()[0]
    assert any(wrapped in path.read_bytes() for path in tmp_path.iterdir())
    vault.forget("user7")
    assert not any(wrapped in path.read_bytes() for path in tmp_path.iterdir())


def test_another_process_forgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stages.vault._RECHECK_S", 0.0)
    mine, other = Vault.create(tmp_path), Vault.open(tmp_path)
    blob = mine.seal("ada", b"x", b"")
    assert mine.unseal("ada", blob, b"") == b"x"
    other.forget("ada")
    with pytest.raises(UserForgottenError):
        mine.unseal("ada", blob, b"")
    assert not mine.has_key("ada")


def test_two_processes_make_one_key(tmp_path: Path) -> None:
    vaults = [Vault.create(tmp_path), *(Vault.open(tmp_path) for _ in range(3))]
    blobs: list[bytes] = []
    threads = [threading.Thread(target=lambda v=v: blobs.append(v.seal("ada", b"x", b""))) for v in vaults]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [vaults[0].unseal("ada", blob, b"") for blob in blobs] == [b"x"] * 4


def test_who_has_a_key_waits_for_nobody_who_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vault = Vault.create(tmp_path)
    vault.ensure(["ada"])
    waits = threading.Event()
    monkeypatch.setattr("stages.vault_writing.faults.point", lambda _name: waits.set())
    with closing(sqlite3.connect(tmp_path / "vault.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        making = threading.Thread(target=vault.ensure, args=(["new"],))
        making.start()
        assert waits.wait(60)
        monkeypatch.setattr("stages.vault._RECHECK_S", 0.0)
        assert vault.unseal("ada", vault.seal("ada", b"x", b""), b"") == b"x"
        assert making.is_alive(), "nor did that wait for the lock"
        other.execute("ROLLBACK")
    making.join(60)
    assert vault.has_key("new")


def test_a_reader_of_the_log_holds_up_who_forgets_and_nobody_else(tmp_path: Path) -> None:
    vault = Vault.create(tmp_path)
    vault.ensure(["ada", "bob"])
    blob = vault.seal("ada", b"x", b"")
    with closing(sqlite3.connect(tmp_path / "vault.db", isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM user_keys").fetchall()
        with pytest.raises(DependencyDownError, match="the user is forgotten"):
            vault.forget("bob", patience_s=0)
        forgetting = threading.Thread(target=vault.forget, args=("ada",), kwargs={"patience_s": 600})
        forgetting.start()
        while not vault.forgotten("ada"):
            time.sleep(0.01)
        vault.ensure(["new"])
        assert vault.seal("bob", b"x", b"")
        assert forgetting.is_alive()
        other.execute("ROLLBACK")
    forgetting.join(60)
    assert not forgetting.is_alive()
    with pytest.raises(UserForgottenError):
        vault.unseal("ada", blob, b"")


def test_keys_that_are_known_stay_known_while_others_make_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a `forget` elsewhere empties the memory."""
    monkeypatch.setattr("stages.vault._RECHECK_S", 0.0)
    mine, other = Vault.create(tmp_path), Vault.open(tmp_path)
    mine.ensure(["ada", "bob"])
    other.ensure(["eve"])
    mine.ensure(["new"])
    mine.forget("bob")
    assert mine.seal("new", b"x", b"")
    assert mine.has_key("ada")
    other.forget("eve")
    assert mine.seal("new", b"x", b"")
    assert not mine.has_key("ada")


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputMissingError) as missing:
        Vault.open(tmp_path)
    assert (missing.value.code, bool(missing.value.hint)) == (5, True)
    Vault.create(tmp_path).seal("ada", b"x", b"")
    master = (tmp_path / "master.key").read_bytes()
    (tmp_path / "master.key").unlink()
    with pytest.raises(InputMissingError) as gone:
        Vault.open(tmp_path)
    assert "restore" in gone.value.hint
    assert "rtrl init" not in gone.value.hint, "a new key would open nothing of it"
    with pytest.raises(IntegrityError, match=r"master\.key is missing"):
        Vault.create(tmp_path)
    (tmp_path / "master.key").write_bytes(master[:31])
    with pytest.raises(IntegrityError, match="31 bytes"):
        Vault.open(tmp_path)
    (tmp_path / "master.key").write_bytes(bytes(32))
    with pytest.raises(IntegrityError, match="does not open this vault"):
        Vault.open(tmp_path)


@pytest.mark.parametrize("make", [Vault.open, Vault.create])
def test_a_database_that_was_lost_is_not_made_anew(tmp_path: Path, make: Callable[[Path], Vault]) -> None:
    vault = Vault.create(tmp_path)
    blob = vault.seal("ada", b"text", b"id")
    vault.close()
    database = tmp_path / "vault.db"
    whole = database.read_bytes()
    database.unlink()
    with pytest.raises(InputMissingError, match=r"keys at .* are missing"):
        make(tmp_path)
    assert not database.exists()
    database.write_bytes(b"")  # as a copy leaves it that found no room
    with pytest.raises(IntegrityError, match="is empty"):
        make(tmp_path)
    database.write_bytes(whole)
    assert make(tmp_path).unseal("ada", blob, b"id") == b"text"


def test_files_are_private(tmp_path: Path) -> None:
    Vault.create(tmp_path / "keys")
    for path in (tmp_path / "keys").iterdir():
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize(
    "point",
    ["vault.master.fsync.before", "vault.master.rename.before", "vault.create.before", "vault.create.after"],
)
def test_killed_anywhere_the_next_start_works(tmp_path: Path, point: str) -> None:
    code = (
        "import sys; from pathlib import Path; from stages.vault import Vault;"
        "Vault.create(Path(sys.argv[1])).seal('ada', b'x', b'')"
    )
    done = processes.python("-c", code, str(tmp_path), env={"RTRL_FAULT": point})
    assert done.returncode == -signal.SIGKILL
    vault = Vault.create(tmp_path)
    assert vault.unseal("ada", vault.seal("ada", b"x", b""), b"") == b"x"
