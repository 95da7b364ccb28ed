from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from stages.errors import InputMissingError
from stages.registry.store import Store
from tests.stages.toy import checkpoint


def test_ancestors_and_distances_in_the_tree(store: Store, tmp_path: Path) -> None:
    """
    a ── b ── c          e (no relation)
          └── d
    """
    a = checkpoint(store, tmp_path / "c", "a").digest
    b = checkpoint(store, tmp_path / "c", "b", a).digest
    c = checkpoint(store, tmp_path / "c", "c", b).digest
    d = checkpoint(store, tmp_path / "c", "d", b).digest
    e = checkpoint(store, tmp_path / "c", "e").digest
    assert store.ancestors(c) == [b, a]
    assert store.ancestors(a) == []
    distances = {(a, a): 0, (b, c): 1, (c, b): 1, (a, c): 2, (c, d): 2, (d, a): 2, (c, e): None}
    assert {pair: store.lag(*pair) for pair in distances} == distances
    with pytest.raises(InputMissingError):
        store.ancestors("sha256:" + "0" * 64)


def test_the_tree_outlives_the_bytes(store: Store, tmp_path: Path) -> None:
    a = checkpoint(store, tmp_path / "c", "a").digest
    b = checkpoint(store, tmp_path / "c", "b", a).digest
    with store.write() as session:
        session.connection().execute(text("UPDATE artifact SET state='tombstoned' WHERE digest=:d"), {"d": a})
    assert store.ancestors(b) == [a]
    assert store.lag(a, b) == 1
