"""Whether what is sealed can still be opened, for `rtrl verify`: the vault's files, and every user's key.

Reads only. Not for: what is sealed (`stages/spool/verify.py`, `stages/registry/verify.py`).
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

from stages.errors import DependencyDownError, IntegrityError, RtrlError
from stages.vault import DATABASE_FILE, MASTER_FILE, Vault
from stages.wording import count

_TOLD = 5  # users whose key does not open, by name


@dataclass(frozen=True)
class VaultCheck:
    """Living keys that were tried, and what is wrong."""

    keys: int = 0
    problems: list[str] = field(default_factory=list)


def check_vault(keys_dir: Path, *, deep: bool) -> VaultCheck:
    """Look at the vault in `keys_dir`; a workspace that never sealed anything has none, which is no damage.

    Args:
        deep: read every page of the database, and open every living key with the master key.

    Raises DependencyDownError (13) where the database cannot be read now.
    """
    if not any((keys_dir / name).exists() for name in (MASTER_FILE, DATABASE_FILE)):
        return VaultCheck()
    try:
        vault = Vault.open(keys_dir)
    except DependencyDownError:
        raise
    except RtrlError as error:
        return VaultCheck(problems=[f"vault: {error.message}"])
    try:
        return _opened(vault, keys_dir / DATABASE_FILE) if deep else VaultCheck(len(vault.users("")))
    except sqlite3.DatabaseError as error:
        return VaultCheck(problems=[f"vault: {DATABASE_FILE} is damaged: {error}"])
    finally:
        vault.close()


def _opened(vault: Vault, database: Path) -> VaultCheck:
    pages = sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True, timeout=30)
    try:
        found = [row[0] for row in pages.execute("PRAGMA integrity_check(5)").fetchall()]
    finally:
        pages.close()
    problems = [f"vault: {DATABASE_FILE}: {text}" for text in found if text != "ok"]
    users, closed = vault.users(""), []
    for user in users:
        try:
            vault.epoch(user)
        except IntegrityError:
            closed.append(user)
    if closed:
        names = ", ".join(closed[:_TOLD]) + (", ..." if len(closed) > _TOLD else "")
        problems.append(
            f"vault: the master key does not open the keys of {count(len(closed), 'user')}: {names}"
        )
    return VaultCheck(len(users), problems)
