from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import event, text

from stages.errors import InputMissingError
from stages.registry.models import ArtifactRow
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


def test_the_newest_of_thousands_is_found_without_the_others(store: Store, tmp_path: Path) -> None:
    """Each stage asks for some: all rows of the kind were read, a tenth of a second at four thousand."""
    first = checkpoint(store, tmp_path / "c", "a")
    copies = """
        WITH RECURSIVE n(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM n WHERE n < 1000)
        INSERT INTO artifact (kind, line, state, digest, version, bytes, meta, run_id, created_at)
        SELECT kind, line, state, printf('sha256:%064x', n), n, bytes, meta, run_id, created_at
        FROM artifact, n WHERE artifact.digest = :first"""
    with store.write() as session:
        session.connection().execute(text(copies), {"first": first.digest})
    read: list[object] = []

    def count(row: ArtifactRow, _: object) -> None:
        read.append(row)

    event.listen(ArtifactRow, "load", count)
    try:
        newest = store.latest("checkpoint", "auto")
    finally:
        event.remove(ArtifactRow, "load", count)
    assert newest is not None
    assert (newest.ref, len(read) <= 100) == ("checkpoint@v1000", True)
    assert [one.version for one in store.all_of("checkpoint")] == list(range(1000, 0, -1))
