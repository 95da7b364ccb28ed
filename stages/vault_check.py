"""Whether what is sealed can still be opened, for `rtrl verify`: the vault's files, and every user's key.

Changes nothing, but that a `forget` that was killed is finished, as by whoever opens a vault. Not for: what
is sealed (`stages/spool/verify.py`, `stages/registry/verify.py`), for whom (`stages/sealed_users.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from stages.errors import DependencyDownError, IntegrityError, RtrlError
from stages.registry.schema import address
from stages.vault import DATABASE_FILE, MASTER_FILE, UserForgottenError, Vault
from stages.wording import count

Sample = tuple[str, bytes, bytes]  # whose it is, what is sealed, its associated data

_TOLD = 5  # users whose key does not open, by name


@dataclass(frozen=True)
class VaultCheck:
    """Living keys that were tried, and what is wrong."""

    keys: int = 0
    problems: list[str] = field(default_factory=list)


def check_vault(
    keys_dir: Path, *, deep: bool, sealed_for: Collection[str] = (), samples: Iterable[Sample] = ()
) -> VaultCheck:
    """Look at the vault in `keys_dir`; a workspace that never sealed anything has none, which is no damage.

    Args:
        deep: read every page of the database, and open every living key with the master key.
        sealed_for: users for whom something is sealed: each must have a key, or have had one.
        samples: each must open, unless its user has been forgotten.

    Raises DependencyDownError (13) where the database cannot be read now.
    """
    if not any((keys_dir / name).exists() for name in (MASTER_FILE, DATABASE_FILE)):
        return VaultCheck(problems=_keyless(sealed_for))
    try:
        vault = Vault.open(keys_dir)
    except DependencyDownError:
        raise
    except RtrlError as error:
        return VaultCheck(problems=[f"vault: {error.message}"])
    database = keys_dir / DATABASE_FILE
    try:
        found = _opened(vault, database) if deep else VaultCheck(len(vault.users("")))
        known = _on_record(database)
        missing = _keyless(set(sealed_for) - known)
        other = _of_other_keys(vault, (one for one in samples if one[0] in known))
        return VaultCheck(found.keys, [*found.problems, *missing, *other])
    except sqlite3.DatabaseError as error:
        return VaultCheck(problems=[f"vault: {DATABASE_FILE} is damaged: {error}"])
    finally:
        vault.close()


def _opened(vault: Vault, database: Path) -> VaultCheck:
    with closing(_reading(database)) as pages:
        found = [row[0] for row in pages.execute("PRAGMA integrity_check(5)").fetchall()]
    problems = [f"vault: {DATABASE_FILE}: {text}" for text in found if text != "ok"]
    users, closed = vault.users(""), []
    for user in users:
        try:
            vault.epoch(user)
        except IntegrityError:
            closed.append(user)
    if closed:
        problems.append(f"vault: the master key does not open the keys of {_named(closed)}")
    return VaultCheck(len(users), problems)


def _on_record(database: Path) -> set[str]:
    """Users who have a key, or had one."""
    with closing(_reading(database)) as rows:
        return {row[0] for row in rows.execute("SELECT DISTINCT user FROM user_keys")}


def _keyless(users: Collection[str]) -> list[str]:
    if not users:
        return []
    named = _named(sorted(users))
    return [f"vault: there is no key for what is sealed for {named}; keys/ is older than the data, or lost"]


def _of_other_keys(vault: Vault, samples: Iterable[Sample]) -> list[str]:
    closed = set()
    for user, sealed, aad in samples:
        try:
            vault.unseal(user, sealed, aad)
        except UserForgottenError:
            continue
        except IntegrityError:
            closed.add(user)
    if not closed:
        return []
    return [f"vault: not the keys under which records were sealed, of {_named(sorted(closed))}"]


def _reading(database: Path) -> sqlite3.Connection:
    return sqlite3.connect(address(database), uri=True, timeout=30)


def _named(users: list[str]) -> str:
    names = ", ".join(users[:_TOLD]) + (", ..." if len(users) > _TOLD else "")
    return f"{count(len(users), 'user')}: {names}"
