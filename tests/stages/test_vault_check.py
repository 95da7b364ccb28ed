"""What `rtrl verify` says of the vault: whole, gone, damaged, of another workspace."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from stages.vault import DATABASE_FILE, MASTER_FILE, Vault
from stages.vault_check import check_vault


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    vault = Vault.create(tmp_path / "keys")
    vault.ensure(["ada", "bob", "eve"])
    vault.forget("eve")
    vault.close()
    return tmp_path / "keys"


@pytest.mark.parametrize("deep", [True, False])
def test_a_whole_vault_has_its_living_keys(keys: Path, deep: bool) -> None:
    found = check_vault(keys, deep=deep)
    assert (found.keys, found.problems) == (2, [])


def test_no_vault_is_no_damage(tmp_path: Path) -> None:
    assert check_vault(tmp_path, deep=True).problems == []


@pytest.mark.parametrize("name", [MASTER_FILE, DATABASE_FILE])
def test_half_a_vault_is(keys: Path, name: str) -> None:
    (keys / name).unlink()
    [told] = check_vault(keys, deep=False).problems
    assert f"{keys / name}" in told


def test_a_key_of_another_workspace_is_named(keys: Path) -> None:
    db = sqlite3.connect(keys / DATABASE_FILE)
    db.execute("UPDATE user_keys SET wrapped = ? WHERE user = 'bob'", (os.urandom(60),))
    db.commit()
    db.close()
    assert check_vault(keys, deep=True).problems == [
        "vault: the master key does not open the keys of 1 user: bob"
    ]


def test_a_damaged_page_is_found(keys: Path) -> None:
    vault = Vault.open(keys)
    vault.ensure(f"user-{n}" for n in range(500))
    vault.close()
    sqlite3.connect(keys / DATABASE_FILE).execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = (keys / DATABASE_FILE).stat().st_size
    with (keys / DATABASE_FILE).open("r+b") as file:
        file.seek(size // 2)
        file.write(os.urandom(4096))
    assert check_vault(keys, deep=True).problems
