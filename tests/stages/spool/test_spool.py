"""The spool as a store: what is in it, who sees it when, segments."""

from __future__ import annotations

import os
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import pytest

from stages.errors import InputMissingError, LockedError, StoreError
from stages.spool import Spool, SpoolWriter, open_event, segment
from stages.spool.verify import verify_spool
from stages.vault import Vault
from tests.stages.spool.spool_records import event, fill, generation, ids, payload, tokens, writer


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    reader, vault = Spool.open(tmp_path / "spool"), Vault.open(tmp_path / "keys")
    assert reader.range() == (1, 6, 3, 3, 2_000)
    assert [(seq, g.id, g.prompt_tokens, g.output_tokens) for seq, g, _ in reader.generations(2, 5)] == [
        (3, "g1", 3, 1),
        (5, "g2", 3, 1),
    ]
    assert payload(reader, "g1", vault).answer == "answer 1"
    seq, stored, user, sealed = next(reader.events(3, 9))
    assert (seq, stored.data, user) == (4, {}, "ada")
    assert open_event(stored, user, sealed, vault).data == {"text": "still wrong"}
    with pytest.raises(InputMissingError):
        reader.record("nothing")


def test_content_is_nowhere_in_the_clear(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    spool.append_generation(generation("g1"), tokens([1], [2]), "REQUEST-TEXT", "ANSWER-TEXT")
    spool.append_events(
        [event("e1", "g1", data={"text": "EVENT-TEXT"}), event("e2", "later", data={"text": "EVENT-TEXT"})]
    )
    spool.close()
    everything = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"-TEXT" not in everything


def test_numbers_of_events_stay_readable_and_text_does_not(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    spool.append_generation(generation("g1"), tokens([1], [2]))
    spool.append_events(
        [
            event("e1", "g1", type="thumbs", data={"value": -1}),
            event("e2", "g1", type="edit_survival", data={"horizon_s": 9, "now": "x"}),
        ]
    )
    spool.close()
    found = [(e.data, sealed != b"") for _, e, _, sealed in Spool.open(tmp_path / "spool").events(0, 9)]
    assert found == [({"value": -1}, False), ({}, True)]


def test_an_empty_and_a_missing_spool(tmp_path: Path) -> None:
    with pytest.raises(InputMissingError) as caught:
        Spool.open(tmp_path / "spool")
    assert caught.value.code == 5
    writer(tmp_path).close()
    reader = Spool.open(tmp_path / "spool")
    assert reader.range() == (1, 0, 0, 0, 0)
    assert list(reader.generations(0, 99)) == []
    assert verify_spool(tmp_path / "nowhere", deep=True).problems == []


def test_one_writer_many_readers(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    with pytest.raises(LockedError) as caught:
        SpoolWriter.__init__.__globals__["WriterLock"](tmp_path / "spool")
    assert str(os.getpid()) in caught.value.message
    readers = [Spool.open(tmp_path / "spool") for _ in range(3)]
    for i in range(50):
        spool.append_generation(generation(f"g{i}"), tokens([1], [2]))
        if i % 10 == 9:
            spool.flush()
            assert [len(ids(reader)) for reader in readers] == [i + 1] * 3
    spool.close()


def test_readers_see_only_what_survives_a_power_cut(tmp_path: Path) -> None:
    spool = writer(tmp_path, fsync_ms=60_000.0)
    reader = Spool.open(tmp_path / "spool")
    spool.append_generation(generation("g1"), tokens([1], [2]))
    assert ids(reader) == []
    spool.flush()
    assert ids(reader) == ["g1"]
    spool.close()


def test_another_schema_is_refused(tmp_path: Path) -> None:
    import sqlite3

    fill(tmp_path)
    with sqlite3.connect(tmp_path / "spool" / "spool.db") as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError) as caught:
        Spool.open(tmp_path / "spool")
    assert caught.value.code == 10


def test_rotation_by_size_and_deletion_of_whole_segments(tmp_path: Path) -> None:
    spool = writer(tmp_path, segment_bytes=4096)
    for i in range(60):
        spool.append_generation(generation(f"g{i}"), tokens(list(range(40)), [1]))
    spool.flush()
    reader = Spool.open(tmp_path / "spool")
    rows = reader.segments()
    assert len(rows) > 3
    assert [row.state for row in rows] == ["sealed"] * (len(rows) - 1) + ["active"]
    assert all(a.last_seq + 1 == b.first_seq for a, b in pairwise(rows))
    reader.delete([row.id for row in rows[:-1]])
    assert reader.read_segment(rows[0]) == ([], []), "deleted since its row was read: no damage"
    assert ids(reader) == [f"g{i}" for i in range(60)][rows[-1].first_seq - 1 :]
    assert reader.range().first_seq == rows[-1].first_seq
    spool.close()
    writer(tmp_path).close()
    assert verify_spool(tmp_path / "spool", deep=True).problems == []


def test_rotation_by_age(tmp_path: Path) -> None:
    spool = writer(tmp_path, segment_seconds=0.001)
    spool.append_generation(generation("g0"), tokens([1], [1]))
    subprocess.run(["sleep", "0.01"], check=True)
    spool.append_generation(generation("g1"), tokens([1], [1]))
    spool.close()
    assert len(Spool.open(tmp_path / "spool").segments()) == 2


@pytest.mark.parametrize("jump_s", [-1e6, 1e6])
def test_a_clock_that_jumps_neither_begins_nor_keeps_a_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("stages.spool.journal.time.monotonic", lambda: clock[0])
    spool = writer(tmp_path, segment_seconds=3600)
    spool.append_generation(generation("g0"), tokens([1], [1]))
    wall = time.time_ns() + int(jump_s * 1e9)
    monkeypatch.setattr("stages.clock.time.time_ns", lambda: wall)
    spool.append_generation(generation("g1"), tokens([1], [1]))
    assert segment.numbers(tmp_path / "spool") == [1]
    clock[0] += 3601
    spool.append_generation(generation("g2"), tokens([1], [1]))
    assert segment.numbers(tmp_path / "spool") == [1, 2]
    spool.close()
