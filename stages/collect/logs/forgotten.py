"""Sessions that an earlier collect took for a user who is forgotten by now.

Without `--user` each session of a log is a user of its own, so no name says that they are the same.
Not for: users who are barred by their name (`run.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from stages.forget.sources import collected

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.vault import Vault


def sessions_of_forgotten(store: Store, vault: Vault) -> frozenset[str]:
    """Their names, as far as interactions are left that tell."""
    found: set[str] = set()
    for _, table in collected(store) if vault.anybody_forgotten() else ():
        gone = [user for user in table["user"].unique().to_pylist() if vault.forgotten(user)]
        theirs = table.filter(pc.is_in(table["user"], value_set=pa.array(gone, pa.string())))
        found |= set(theirs["session"].to_pylist())
    return frozenset(found)
