"""Copying what the plan takes: in parts, side by side, and where the spool is lost between plan and copy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from stages import schemas, tables, workers
from stages.collect import columns, plan, seal, window
from stages.collect.seal import Sealer
from stages.populations import Whose
from stages.progress import Silent
from stages.spool import Spool
from tests.stages.world import HOUR, T0, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def ids(folder: Path, file: str, schema: pa.Schema) -> list[list[str]]:
    """Ids in each part of an artifact."""
    return [tables.read(part / file, schema)["id"].to_pylist() for part in tables.parts(folder)]


def sealer(world: World, out: Path) -> tuple[Sealer, plan.Plan]:
    """What would be copied of the whole spool."""
    world.writer.flush()
    spool = Spool.open(world.workspace.spool_dir)
    found, damages = window.read(spool, Whose(("auto",)), 0, 1 << 60)
    spool.close()
    assert not damages
    rules = plan.Rules(frozenset({"live"}), 1, HOUR, {world.live: 0}, frozenset())
    decided = plan.plan(found, rules, T0 + 9 * HOUR, np.zeros(len(found.g_seq), dtype=np.bool_))
    return Sealer(out, found, decided, world.workspace.spool_dir, world.workspace.keys_dir), decided


@pytest.mark.parametrize("lost", [0, 1, 2, 3])
def test_parts_that_lost_their_generations(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    """The segment is cut short after it was read, from generation `lost` on."""
    monkeypatch.setattr(schemas, "PART_EPISODES", 1)
    for n in range(3):
        world.generation(f"g{n}", f"e{n}", n, session=f"s{n}")
        world.event(f"g{n}", "thumbs", n + 1, value=1)
    work, decided = sealer(world, tmp_path / "out")
    if lost < 3:
        row = world.writer._index.generation(f"g{lost}")
        (segment,) = (world.workspace.spool_dir / "segments").glob("*.seg")
        assert row is not None
        segment.write_bytes(segment.read_bytes()[: row.offset + 40])
    work.run(decided.ripe_at(HOUR), Silent())
    episodes = ids(tmp_path / "out", schemas.EPISODES_FILE, schemas.EPISODES)
    assert episodes == [[f"e{n}"] if n < lost else [] for n in range(3)]
    generations = ids(tmp_path / "out", schemas.GENERATIONS_FILE, schemas.GENERATIONS)
    assert generations == [[f"g{n}"] if n < lost else [] for n in range(3)]
    of = [tables.read(p / schemas.EVENTS_FILE, schemas.EVENTS) for p in tables.parts(tmp_path / "out")]
    assert [table["episode"].to_pylist() for table in of] == episodes
    assert work.counts == {
        name: n
        for name, n in (
            ("episodes", lost), ("generations", lost), ("events", lost), ("quarantined:damaged", 3 - lost)
        )
        if n or "quarantined" not in name
    }  # fmt: skip


def test_side_by_side_gives_the_same(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions go over the edges of segments and parts; prompts are sealed again, requests become events."""
    monkeypatch.setattr(schemas, "PART_EPISODES", 3)
    prompt = list(range(40))
    for n in range(8):
        asked: dict[str, Any] = {"prompt": prompt, "request": f"r{n}", "duration_ms": 1.0}
        world.generation(f"g{n}", f"e{n}", 10 * n, session="s", output=(n, n), **asked)
        world.event(f"g{n}", "edit_applied", 10 * n + 1, path="a", before=f"{n}", after=f"{n}!")
        prompt = [*prompt, n, n, *range(100 * n, 100 * n + 30)]
        if n % 3 == 2:
            world.writer.seal()
    work, decided = sealer(world, tmp_path / "alone")
    assert decided.reseal.sum() > 0
    work.run(decided.ripe_at(HOUR), Silent())
    monkeypatch.setattr(columns, "SIDE_BY_SIDE", 0)
    monkeypatch.setattr(seal, "SIDE_BY_SIDE", 0)
    monkeypatch.setattr(workers, "cores", lambda: 2)
    both, decided = sealer(world, tmp_path / "both")
    both.run(decided.ripe_at(HOUR), Silent())
    assert both.counts == work.counts
    for file, schema in (
        (schemas.GENERATIONS_FILE, schemas.GENERATIONS),
        (schemas.EVENTS_FILE, schemas.EVENTS),
        (schemas.EPISODES_FILE, schemas.EPISODES),
    ):
        plain = [name for name in schema.names if name != "sealed"]  # sealing again takes a new nonce
        for one, other in zip(tables.parts(tmp_path / "alone"), tables.parts(tmp_path / "both"), strict=True):
            assert tables.read(one / file, schema, plain) == tables.read(other / file, schema, plain)
