"""Copying what the plan takes, where a record is lost between the plan and the copy."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from stages import schemas, tables
from stages.collect.seal import Sealer
from stages.spool import ChainReader
from stages.vault import Vault
from tests.stages.collect.test_plan import HOUR, decide, generation, scanned


def ids(folder: Path, file: str, schema: pa.Schema) -> list[list[str]]:
    """Ids in each part of an artifact."""
    return [tables.read(part / file, schema)["id"].to_pylist() for part in tables.parts(folder)]


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_part_that_lost_all_its_generations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    monkeypatch.setattr(schemas, "PART_EPISODES", 1)
    made = [generation(f"g{n}", f"e{n}", n, session=f"s{n}") for n in range(3)]
    found = scanned(made, [])
    decided = decide(found)
    assert len(decided.taken) == 3
    vault = Vault.create(tmp_path / "keys")
    chains = ChainReader(vault, lambda _: pytest.fail("nothing is to be looked up"))
    sealer = Sealer(tmp_path / "out", found, decided, vault, chains)
    sealer.generations((n + 1, g, b"") for n, g in enumerate(made) if n != lost)
    sealer.finish(decided.ripe_at(HOUR))
    assert ids(tmp_path / "out", schemas.EPISODES_FILE, schemas.EPISODES) == [
        [] if n == lost else [f"e{n}"] for n in range(3)
    ]
    assert ids(tmp_path / "out", schemas.GENERATIONS_FILE, schemas.GENERATIONS) == [
        [] if n == lost else [f"g{n}"] for n in range(3)
    ]
    assert sealer.counts == {"episodes": 2, "generations": 2, "quarantined:damaged": 1}
    vault.close()
