"""Which generations of a window were made unreadable by `rtrl forget`. Not for: forgetting."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from stages.collect.columns import Payloads
from stages.collect.scan import Bools, Scan
from stages.tokens import open_payload
from stages.vault import UserForgottenError, Vault

_COLUMNS = ["id", "user", "segment", "start", "size"]


def forgotten(scan: Scan, spool_dir: Path, vault: Vault) -> Bools:
    """Rows of the window's generations, [G]. A user who came back has readable ones as well."""
    gone = np.zeros(len(scan.g_seq), dtype=np.bool_)
    users = np.array([vault.forgotten(user) for user in scan.users], dtype=np.bool_)
    suspect = users[scan.g_user] if len(users) else gone
    at = np.flatnonzero(suspect & ~scan.g_no_train)
    payloads = Payloads(spool_dir)
    try:
        places = scan.generations.select(_COLUMNS).take(pa.array(at)).to_pylist()
        for row, told in zip(at, places, strict=True):
            gone[row] = not _opens(vault, told, payloads.read(told["segment"], told["start"], told["size"]))
    finally:
        payloads.close()
    return gone


def _opens(vault: Vault, told: dict[str, str], sealed: bytes | None) -> bool:
    try:
        if sealed:
            open_payload(vault, told["user"], told["id"], sealed)
    except UserForgottenError:
        return False
    return True
