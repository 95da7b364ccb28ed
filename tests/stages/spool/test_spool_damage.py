"""What survives which damage, and who is told."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stages.errors import IntegrityError
from stages.spool import Damage, Spool, SpoolDamagedError, codec
from stages.spool.frames import HEADER
from stages.spool.segment import path_of
from stages.spool.verify import told, verify_spool
from tests.stages.spool.spool_records import (
    checked,
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


def test_cut_at_any_byte_the_rest_is_recovered(tmp_path: Path) -> None:
    """What SIGKILL leaves: a segment that ends anywhere, and an index that has seen none of it."""
    whole = fill(tmp_path, 2).read_bytes()
    starts = offsets(path_of(tmp_path / "spool", 1))
    for cut in range(HEADER.size + 1, len(whole), 7):
        root = tmp_path / f"cut{cut}"
        (root / "spool" / "segments").mkdir(parents=True)
        path_of(root / "spool", 1).write_bytes(whole[:cut])
        kept = sum(start <= cut for start in [*starts[1:], len(whole)])
        reader = Spool.open(root / "spool")
        assert ids(reader) == ["g0", "g1"][: (min(kept, 4) + 1) // 2], cut
        assert verify_spool(root / "spool", deep=True).problems == []
        torn = [damage for damage in reader.damages() if damage.reason == "torn_tail"]
        assert bool(torn) == (cut not in starts)
        reader.close()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.integers(0, 10**6))
def test_a_flipped_byte_is_met_once_then_counted(
    tmp_path_factory: pytest.TempPathFactory, place: int
) -> None:
    root = tmp_path_factory.mktemp("s")
    path = fill(root)
    data = bytearray(path.read_bytes())
    starts = offsets(path)
    place = HEADER.size + place % (starts[-1] - HEADER.size)  # the footer does not matter
    data[place] ^= 0x10
    path.write_bytes(bytes(data))
    hit = max(i for i, start in enumerate(starts) if start <= place)
    reader = Spool.open(root / "spool")
    with pytest.raises(SpoolDamagedError) as caught:
        list(reader.generations(0, 99))
    assert caught.value.code == 12
    assert "again" in caught.value.hint
    lost = (f"g{hit // 2}",) if hit % 2 == 0 else ()
    (damage,) = caught.value.damages
    assert (damage.generations, damage.events, damage.reason) == (lost, hit % 2, "crc")
    assert reader.damages() == [], "reading records nothing"
    reader.tell([damage])
    assert [g.id for _, g, _ in reader.generations(0, 99)] == [
        f"g{i}" for i in range(5) if (f"g{i}",) != lost
    ]
    assert reader.damages() == [damage]
    met: list[Damage] = []
    list(reader.events(0, 99, on_damage=met.append))
    assert met == [damage], "whoever asks is told every time"
    reader.close()


def test_a_truncated_segment_is_reported_and_healed_by_putting_it_back(tmp_path: Path) -> None:
    path = fill(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: offsets(path)[4] + 3])
    assert len(verify_spool(tmp_path / "spool", deep=False).problems) == 1
    reader = Spool.open(tmp_path / "spool")
    with pytest.raises(SpoolDamagedError) as caught:
        checked(reader)
    (damage,) = caught.value.damages
    assert (damage.reason, damage.generations, damage.events) == ("truncated", ("g2", "g3", "g4"), 3)
    reader.tell([damage])
    assert ids(reader) == ["g0", "g1"]
    assert verify_spool(tmp_path / "spool", deep=True).warnings
    path.write_bytes(whole)
    assert ids(reader) == [f"g{i}" for i in range(5)]
    assert checked(reader) == 10


def test_a_segment_that_is_deleted_while_it_is_verified_is_no_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = writer(tmp_path)
    for name in ("g0", "g1"):
        spool.append_generation(generation(name), tokens([1], [1]))
        spool.seal()
    spool.close()

    def deleted(_path: Path) -> None:
        gc = Spool.open(tmp_path / "spool")
        gc.delete([1, 2])
        gc.close()

    monkeypatch.setattr("stages.spool.verify._size", deleted)
    assert verify_spool(tmp_path / "spool", deep=False).problems == []


def test_a_missing_segment_is_reported(tmp_path: Path) -> None:
    fill(tmp_path).unlink()
    reader = Spool.open(tmp_path / "spool")
    with pytest.raises(SpoolDamagedError, match="5 generations and 5 events") as caught:
        checked(reader)
    reader.tell(caught.value.damages)
    assert checked(reader) == 0


@pytest.mark.parametrize("how", ["lost", "garbage"])
def test_the_index_can_be_made_again(tmp_path: Path, how: str) -> None:
    fill(tmp_path)
    spool = writer(tmp_path)
    spool.append_events([event("waits", "g9")])
    spool.close()
    for name in ("spool.db-wal", "spool.db-shm"):
        (tmp_path / "spool" / name).unlink(missing_ok=True)
    database = tmp_path / "spool" / "spool.db"
    if how == "lost":
        database.unlink()
    else:
        database.write_bytes(b"no database at all" * 500)
    spool = writer(tmp_path)
    assert spool.pending == 1
    assert statuses(spool, event("e1", "g1"), event("waits", "g9")) == ["duplicate", "duplicate"]
    assert spool.append_generation(generation("g9"), tokens([1], [2])) == 12
    spool.close()
    reader = Spool.open(tmp_path / "spool")
    assert ids(reader) == ["g0", "g1", "g2", "g3", "g4", "g9"]
    assert reader.range()[:4] == (1, 13, 6, 6)


def test_what_was_damaged_before_it_was_indexed_is_indexed_when_it_is_put_back(tmp_path: Path) -> None:
    path = fill(tmp_path)
    whole = path.read_bytes()
    for name in ("spool.db", "spool.db-wal", "spool.db-shm"):
        (tmp_path / "spool" / name).unlink(missing_ok=True)
    broken = bytearray(whole)
    broken[offsets(path)[2] + 40] ^= 1  # in generation g1
    path.write_bytes(bytes(broken))
    reader = Spool.open(tmp_path / "spool")
    assert ids(reader) == ["g0", "g2", "g3", "g4"]
    assert reader.range().generations == 4
    path.write_bytes(whole)
    assert reader.heal() == []
    assert reader.record("g1")[0].id == "g1"
    assert reader.range()[:4] == (1, 10, 5, 5)
    assert verify_spool(tmp_path / "spool", deep=True).problems == []
    reader.close()


@pytest.mark.parametrize("how", ["missing", "truncated"])
@pytest.mark.parametrize("went_on", [False, True])
def test_what_lay_behind_the_indexed_part_of_a_lost_file_is_there_when_it_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, went_on: bool
) -> None:
    """Killed before it was indexed; then the file was cut or gone; then others were recorded."""

    def act() -> None:
        spool.append_generation(generation("g1"), tokens([1], [2]))
        spool.append_events([event("e1", "g1")])

    spool = writer(tmp_path)
    spool.append_generation(generation("g0"), tokens([1], [2]))
    killed_before_indexing(spool, act, monkeypatch)
    path = path_of(tmp_path / "spool", 1)
    whole, (first, *_, footer) = path.read_bytes(), offsets(path)
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(whole[: first + 9])
    lost = verify_spool(tmp_path / "spool", deep=True)
    assert ["1 generations and 0 events" in problem for problem in lost.problems] == [True]
    told(tmp_path / "spool", lost)
    spool = writer(tmp_path)
    if went_on:
        spool.append_generation(generation("g2"), tokens([1], [2]))
        spool.flush()
    path.write_bytes(whole[: footer + 5])  # the writer was killed while it wrote
    for _ in range(2):
        report = verify_spool(tmp_path / "spool", deep=True)
        assert (report.problems, report.warnings) == ([], [])
    spool.close()
    reader = Spool.open(tmp_path / "spool")
    assert ids(reader) == ["g0", "g1", "g2"][: 2 + went_on]
    assert [e.id for _, e, _, _ in reader.events(0, 1 << 60)] == ["e1"]
    assert reader.record("g1")[0].id == "g1"
    assert reader.range()[2:4] == (2 + went_on, 1)
    seqs = [seq for seq, _, _ in reader.generations(0, 1 << 60)]
    assert len(set(seqs)) == len(seqs), "no number was given out twice"
    assert [(d.reason, d.length) for d in reader.damages()] == [("torn_tail", 5)], "counted"
    reader.close()


def test_nothing_is_written_that_no_reader_could_read(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    with pytest.raises(msgspec.ValidationError):
        spool.append_generation(generation("g1", finish_reason=3), tokens([1], [2]))
    spool.append_generation(generation("g2"), tokens([1], [2]))
    with pytest.raises(msgspec.ValidationError):
        spool.append_events([event("e1", "g2", type="applause")])
    spool.append_events([event("e2", "g2")])
    spool.close()
    reader = Spool.open(tmp_path / "spool")
    assert (ids(reader), [e.id for _, e, _, _ in reader.events(0, 99)]) == (["g2"], ["e2"])
    reader.close()


@pytest.mark.parametrize("indexed", [True, False])
def test_a_record_of_another_version_is_damage_that_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indexed: bool
) -> None:
    """Whole, and nothing this program knows: left by a version that knew more, before it was taken back."""
    spool = writer(tmp_path)

    def fill_it() -> None:
        spool.append_generation(generation("g1"), tokens([1], [2]))
        with monkeypatch.context() as later:
            for name in ("_decode_generation", "_decode_event"):
                later.setattr(codec, name, lambda _: None)
            spool.append_generation(generation("g2", finish_reason=3), tokens([1], [2]))
            spool.append_events([event("e1", "g1", type="applause")])
        spool.append_generation(generation("g3"), tokens([1], [2]))

    if indexed:
        fill_it()
        spool.close()
    else:
        killed_before_indexing(spool, fill_it, monkeypatch)
    spool = writer(tmp_path)
    assert [damage.reason for damage in spool.recovered] == ["unreadable"] * 2 * (not indexed)
    assert spool.last_seq == 4
    spool.append_generation(generation("g4"), tokens([1], [2]))
    spool.close()
    reader = Spool.open(tmp_path / "spool")
    assert ids(reader) == ["g1", "g3", "g4"]
    assert list(reader.events(0, 99, on_damage=lambda _: None)) == []
    with pytest.raises(SpoolDamagedError, match="unreadable"):
        list(reader.generations(0, 99))
    if indexed:
        with pytest.raises(IntegrityError):
            reader.record("g2")
    reader.close()
    report = verify_spool(tmp_path / "spool", deep=True)
    assert len(report.problems) == 2
    told(tmp_path / "spool", report)
    again = verify_spool(tmp_path / "spool", deep=True)
    assert (again.problems, len(again.warnings)) == ([], 2)
