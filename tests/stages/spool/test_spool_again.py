"""Recovery, healing, ranges and deletion, where a line could be taken out and no other test noticed."""

from __future__ import annotations

import shutil
import sqlite3
import stat
from pathlib import Path

import pytest

from stages.errors import DependencyDownError
from stages.spool import Spool, SpoolDamagedError, frames, opening
from stages.spool.index import FILE
from stages.spool.segment import QUARANTINE, path_of
from stages.spool.verify import told, verify_spool
from tests.stages.spool.spool_records import (
    event,
    fill,
    generation,
    ids,
    killed_before_indexing,
    offsets,
    statuses,
    tokens,
    writer,
)


def test_a_no_train_generation_stays_one_when_its_writer_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = writer(tmp_path)

    def write() -> None:
        spool.append_generation(generation("g1", no_train=True, at=5_000), tokens([1], [2]))
        spool.append_generation(generation("g2", at=4_000), tokens([1], [2]))

    killed_before_indexing(spool, write, monkeypatch)
    spool = writer(tmp_path)
    said = statuses(spool, event("e1", "g1", data={"text": "top secret"}), event("e2", "g2"))
    assert said == ["accepted", "accepted"]
    spool.close()
    reader = Spool.open(tmp_path / "spool")
    found = {e.id: (e.data, bool(sealed)) for _, e, _, sealed in reader.events(0, 99)}
    assert found == {"e1": ({}, False), "e2": ({}, True)}
    assert [row.max_at for row in reader.segments()] == [5_000, 2_000]
    reader.close()


def test_what_a_killed_writers_segment_is_known_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its newest time decides when it may be deleted."""
    spool = writer(tmp_path)
    spool.append_generation(generation("g1", at=1_000), tokens([1], [2]))
    spool.flush()
    killed_before_indexing(spool, lambda: spool.append_events([event("e1", "g1", at=9_000)]), monkeypatch)
    reader = Spool.open(tmp_path / "spool")
    (row,) = reader.segments()
    assert (row.state, row.first_seq, row.last_seq, row.max_at) == ("sealed", 1, 2, 9_000)
    assert (row.generations, row.events) == (1, 1)
    reader.close()


def test_damage_that_recovery_meets_is_told_to_who_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = writer(tmp_path)

    def write() -> None:
        for n in range(3):
            spool.append_generation(generation(f"g{n}"), tokens([1], [2]))

    killed_before_indexing(spool, write, monkeypatch)
    path = path_of(tmp_path / "spool", 1)
    data = bytearray(path.read_bytes())
    data[offsets(path)[1] + 30] ^= 1
    path.write_bytes(bytes(data))
    reader = Spool.open(tmp_path / "spool")
    assert ids(reader) == ["g0", "g2"]
    with pytest.raises(SpoolDamagedError):
        list(reader.generations(0, 99))
    reader.close()


def test_torn_bytes_are_kept_aside(tmp_path: Path) -> None:
    path = fill(tmp_path, 2)
    whole, starts = path.read_bytes(), offsets(path)
    root = tmp_path / "cut"
    (root / "spool" / "segments").mkdir(parents=True)
    path_of(root / "spool", 1).write_bytes(whole[: starts[3] + 9])
    Spool.open(root / "spool").close()
    (kept,) = (root / "spool" / QUARANTINE).iterdir()
    assert (kept.name, kept.read_bytes()) == (f"00000001-{starts[3]}.torn", whole[starts[3] : starts[3] + 9])
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600, "also where a command with another umask does it"
    assert path_of(root / "spool", 1).read_bytes()[: starts[3]] == whole[: starts[3]]
    found = list(frames.scan(path_of(root / "spool", 1).read_bytes(), frames.HEADER.size))
    assert not any(isinstance(each, frames.Bad) for each in found), "and cut off"


def test_an_index_that_cannot_be_opened_now_is_not_put_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full or away says nothing about the index."""
    fill(tmp_path)
    before = (tmp_path / "spool" / FILE).read_bytes()

    def away(_: Path) -> None:
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr(opening, "Index", away)
    with pytest.raises(DependencyDownError):
        Spool.open(tmp_path / "spool")
    assert (tmp_path / "spool" / FILE).read_bytes() == before
    assert list((tmp_path / "spool" / QUARANTINE).iterdir()) == []


def test_an_event_that_came_to_its_generation_waits_no_more_when_a_segment_is_put_back(
    tmp_path: Path,
) -> None:
    """The segment in which it waited was lost for a while: its row there is older than what is known."""
    spool = writer(tmp_path)
    spool.expect("g1", "k1", "ada", no_train=False)
    assert statuses(spool, event("e1", "g1")) == ["pending"]
    spool.seal()
    spool.append_generation(generation("g1"), tokens([1], [2]))
    spool.close()
    path = path_of(tmp_path / "spool", 1)
    aside = shutil.copy(path, tmp_path / "aside")
    path.write_bytes(path.read_bytes()[:40])
    report = verify_spool(tmp_path / "spool", deep=True)
    assert len(report.problems) == 1
    told(tmp_path / "spool", report)
    shutil.copy(aside, path)
    assert verify_spool(tmp_path / "spool", deep=True).problems == []
    spool = writer(tmp_path)
    assert (spool.pending, statuses(spool, event("e1", "g1"))) == (0, ["duplicate"])
    spool.close()
    reader = Spool.open(tmp_path / "spool")
    assert [e.id for _, e, _, _ in reader.events(0, 99)] == ["e1"]
    reader.close()


def test_a_range_has_both_its_ends(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    for n in range(1, 7):
        spool.append_generation(generation(f"g{n}"), tokens([1], [2]))
        if n % 2 == 0:
            spool.seal()
    spool.close()
    reader = Spool.open(tmp_path / "spool")
    assert [g.id for _, g, _ in reader.generations(2, 5)] == ["g2", "g3", "g4", "g5"]
    assert [g.id for _, g, _ in reader.generations(3, 3)] == ["g3"]
    for (first, last), wanted in {
        (2, 5): [1, 2, 3],
        (3, 4): [2],
        (2, 2): [1],
        (3, 5): [2, 3],
        (7, 9): [],
    }.items():
        assert [row.id for row in reader.segments_of(first, last)] == wanted
    reader.close()


def test_of_a_segment_that_is_written_only_the_synced_part_is_read(tmp_path: Path) -> None:
    spool = writer(tmp_path, fsync_ms=60_000)
    spool.append_generation(generation("g1"), tokens([1], [2]))
    spool.flush()
    spool.append_generation(generation("g2"), tokens([1], [2]))
    reader = Spool.reading(tmp_path / "spool")
    assert ids(reader) == ["g1"]
    spool.flush()
    assert ids(reader) == ["g1", "g2"]
    reader.close()
    spool.close()


def test_a_damaged_end_is_damage_where_it_was_synced(tmp_path: Path) -> None:
    """Nothing good follows it, as behind a torn write; but it had been whole."""
    path = fill(tmp_path, 2)
    starts, data = offsets(path), bytearray(path.read_bytes())
    for start in starts[3:]:  # the last event, and the footer
        data[start + 6] ^= 1
    path.write_bytes(bytes(data))
    reader = Spool.open(tmp_path / "spool")
    with pytest.raises(SpoolDamagedError) as caught:
        list(reader.events(0, 99))
    (damage,) = caught.value.damages
    assert (damage.offset, damage.reason, damage.events) == (starts[3], "crc", 1)
    reader.close()


def test_nothing_of_a_deleted_segment_is_left_in_the_index(tmp_path: Path) -> None:
    fill(tmp_path)
    reader = Spool.open(tmp_path / "spool")
    reader.delete([1])
    for table in ("generations", "events", "damage"):
        assert reader._index.rows(f"SELECT * FROM {table}") == []
    assert (reader.segments(), reader.range().first_seq, reader.range().last_seq) == ([], 11, 10)
    reader.close()
    spool = writer(tmp_path)
    assert spool.append_generation(generation("g9"), tokens([1], [2])) == 11, "numbers are never used again"
    spool.close()
