"""Damage in a Parquet file is found, named and hinted at; nothing reads on as if it were data."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from stages import schemas, tables
from stages.errors import IntegrityError


def quarantine(n: int) -> pa.Table:
    rows = [{"id": f"g{i}", "episode": f"e{i % 7}", "reason": "logprobs_length"} for i in range(n)]
    return pa.Table.from_pylist(rows, schema=schemas.QUARANTINE)


def test_round_trip_over_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "new" / "q.parquet"
    with tables.TableWriter(path, schemas.QUARANTINE) as writer:
        writer.write(quarantine(70_000))
        writer.write(quarantine(3))
    assert writer.rows == 70_003
    assert tables.read(path, schemas.QUARANTINE).slice(0, 70_000) == quarantine(70_000)
    assert (
        sum(batch.num_rows for batch in tables.batches(path, schemas.QUARANTINE, ["id"], rows=999)) == 70_003
    )


def test_empty(tmp_path: Path) -> None:
    with tables.TableWriter(tmp_path / "q.parquet", schemas.QUARANTINE):
        pass
    assert tables.read(tmp_path / "q.parquet", schemas.QUARANTINE).num_rows == 0


def test_a_flipped_bit_anywhere_is_never_other_data(tmp_path: Path) -> None:
    path = tmp_path / "q.parquet"
    table = quarantine(2_000)
    tables.write(path, table)
    good = path.read_bytes()
    places = random.Random(0)
    noticed: list[IntegrityError] = []
    for _ in range(400):
        bad = bytearray(good)
        bad[places.randrange(len(bad))] ^= 1 << places.randrange(8)
        path.write_bytes(bad)
        try:
            assert tables.read(path, schemas.QUARANTINE) == table
        except IntegrityError as error:
            noticed.append(error)
    assert len(noticed) > 380
    assert all(error.code == 12 and "rtrl verify" in error.hint for error in noticed)


@pytest.mark.parametrize("keep", [0, 3, 40, 2_000])
def test_truncated(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "q.parquet"
    tables.write(path, quarantine(2_000))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(IntegrityError, match=r"q\.parquet cannot be read"):
        tables.read(path, schemas.QUARANTINE)


def test_missing_and_foreign(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="is missing from"):
        tables.read(tmp_path / "none.parquet", schemas.QUARANTINE)
    tables.write(tmp_path / "q.parquet", quarantine(1))
    with pytest.raises(IntegrityError, match="no column seq of type int64") as caught:
        tables.read(tmp_path / "q.parquet", schemas.EVENTS)
    assert caught.value.hint


def test_a_missing_part_is_noticed(tmp_path: Path) -> None:
    for n in (0, 2):
        (tmp_path / schemas.part_name(n)).mkdir()
    with pytest.raises(IntegrityError, match="lacks one of its parts"):
        tables.parts(tmp_path)
