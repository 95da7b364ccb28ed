"""What the writer does when the disk, the index or a process fails it half-way: one test per thing that no
other test noticed when the line was taken out."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from stages.errors import DependencyDownError
from stages.spool import Spool, SpoolFullError, SpoolWriter, codec, frames, journal, open_event, segment
from stages.spool import writer as writing
from stages.spool.index import Index
from stages.spool.pending import pending_user
from stages.spool.segment import path_of
from stages.vault import Vault
from tests.stages.spool.spool_records import event, full_tokens, generation, ids, statuses, tokens, writer


def read(root: Path) -> tuple[list[str], list[str]]:
    """Ids of generations and events, every byte read."""
    reader = Spool.open(root / "spool")
    try:
        return ids(reader), [e.id for _, e, _, _ in reader.events(0, 99)]
    finally:
        reader.close()


class HalfFull:
    """os.write that takes half of what it is given, and then finds the disk full."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, fd: int, data: Any) -> int:
        self.calls += 1
        if self.calls % 2 == 0:
            raise OSError(28, "No space left on device")
        return os.pwrite(fd, bytes(data)[: len(data) // 2], os.fstat(fd).st_size)


def test_what_a_full_disk_took_half_of_is_cut_off_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = writer(tmp_path)
    spool.append_generation(generation("g1"), tokens([1], [2]))
    before = path_of(tmp_path / "spool", 1).stat().st_size
    with monkeypatch.context() as full:
        full.setattr("stages.spool.segment.os.write", HalfFull())
        with pytest.raises(SpoolFullError):
            spool.append_generation(generation("g2"), tokens([1], [2]))
    assert path_of(tmp_path / "spool", 1).stat().st_size == before
    assert spool.last_seq == 1
    assert spool.append_generation(generation("g3"), tokens([1], [2])) == 2, "no number is skipped"
    spool.close()
    assert read(tmp_path) == (["g1", "g3"], [])
    reader = Spool.open(tmp_path / "spool")
    assert list(reader.generations(0, 99))[-1][1].id == "g3"
    assert reader.read_segment(reader.segments()[0])[1] == []
    reader.close()


def test_a_segment_that_a_full_disk_did_not_let_begin_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = writer(tmp_path)
    with monkeypatch.context() as full:
        full.setattr("stages.spool.segment.os.write", HalfFull())
        with pytest.raises(SpoolFullError):
            spool.append_generation(generation("g1"), tokens([1], [2]))
    assert segment.numbers(tmp_path / "spool") == []
    spool.append_generation(generation("g2"), tokens([1], [2]))
    spool.seal()
    spool.append_generation(generation("g3"), tokens([1], [2]))
    spool.close()
    assert segment.numbers(tmp_path / "spool") == [1, 2]
    assert read(tmp_path) == (["g2", "g3"], [])


def test_an_index_whose_disk_is_full_gets_all_of_it_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_RETRY_S", 0.01)
    spool = writer(tmp_path)
    real, failing = Index.commit, [3]

    def commit(self: Index, batch: Any) -> None:
        if failing[0]:
            failing[0] -= 1
            if failing[0] == 2:  # while it waits more comes
                spool.append_generation(generation("g2"), tokens([1], [2]))
            raise sqlite3.OperationalError("database or disk is full")
        real(self, batch)

    monkeypatch.setattr(Index, "commit", commit)
    acted: list[str] = []
    spool.append_generation(generation("g1"), tokens([1], [2]))
    spool._journal.afterwards(lambda: acted.append("once"))
    while failing[0] > 2:
        time.sleep(0.001)
    with spool._lock:
        spool._journal.rotate()
    spool.append_events([event("e1", "g1")])
    spool.flush()
    assert (failing, acted) == ([0], ["once"])
    reader = Spool.reading(tmp_path / "spool")
    assert [(row.id, row.state, row.generations, row.events) for row in reader.segments()] == [
        (1, "sealed", 2, 0),
        (2, "active", 0, 1),
    ]
    assert [reader.record(gid)[0].id for gid in ("g1", "g2")] == ["g1", "g2"]
    reader.close()
    assert statuses(spool, event("e1", "g1")) == ["duplicate"]
    spool.close()


def test_what_was_added_while_the_index_was_written_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event that waited becomes its generation's in the very moment in which its waiting is indexed."""
    spool = writer(tmp_path)
    real = Index.commit
    statuses(spool, event("e1", "g1"))
    done: list[int] = []

    def commit(self: Index, batch: Any) -> None:
        if batch.events and not done:
            done.append(spool.append_generation(generation("g1"), tokens([1], [2])))
            real(self, batch)
            assert ("k1", "e1") in spool._journal.events
            return
        if batch.events:  # the index is also written once more with nothing new in it
            done.append(len(batch.events))
            known = spool._journal.events.get(("k1", "e1"))
            assert known is not None, "its new place is known until the index has it"
            assert known.state == "attached"
        real(self, batch)

    with monkeypatch.context() as indexing:
        indexing.setattr(Index, "commit", commit)
        spool.flush()
        spool.flush()
        spool.close()
    assert done[1:] == [1]
    assert read(tmp_path) == (["g1"], ["e1"])


def test_a_disk_that_fails_is_said_and_nothing_more_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = writer(tmp_path)
    with monkeypatch.context() as broken:

        def fails(_: int) -> None:
            raise OSError(5, "Input/output error")

        broken.setattr("stages.spool.segment.os.fsync", fails)
        spool.append_generation(generation("g1"), tokens([1], [2]))
        with pytest.raises(DependencyDownError, match="Input/output error"):
            spool.flush()
    assert isinstance(spool.failed, OSError)
    with pytest.raises(DependencyDownError, match="disk failed"):
        spool.append_generation(generation("g2"), tokens([1], [2]))
    spool.close()
    assert read(tmp_path) == (["g1"], [])


def test_what_a_failed_sync_may_have_dropped_is_written_again_and_the_spool_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_RETRY_S", 0.3)
    spool = writer(tmp_path)
    spool.append_generation(generation("g1"), tokens([1], [2]))
    spool.flush()
    file = path_of(tmp_path / "spool", 1)
    synced = file.stat().st_size
    with monkeypatch.context() as broken:

        def fails(_: int) -> None:
            raise OSError(5, "Input/output error")

        broken.setattr("stages.spool.segment.os.fsync", fails)
        spool.append_generation(generation("g2"), tokens([1], [2]))
        with pytest.raises(DependencyDownError, match="Input/output error"):
            spool.flush()
    with file.open("r+b") as lost:  # Linux takes pages for written that were not
        lost.seek(synced)
        lost.write(bytes(file.stat().st_size - synced))
    deadline = time.monotonic() + 10
    while spool.failed is not None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert spool.append_generation(generation("g3"), tokens([1], [2])) == 3
    spool.append_events([event("e1", "g2")])
    spool.flush()
    spool.close()
    assert read(tmp_path) == (["g1", "g2", "g3"], ["e1"])


@pytest.mark.parametrize("expected", [False, True])
def test_a_writer_killed_between_a_generation_and_what_waited_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: bool
) -> None:
    spool = writer(tmp_path)
    if expected:
        spool.expect("g1", "k1", "ada", no_train=False)
    assert statuses(spool, event("e1", "g1")) == ["pending"]
    with monkeypatch.context() as killed:
        killed.setattr(SpoolWriter, "_promote", lambda *_: None)
        spool.append_generation(generation("g1"), tokens([1], [2]))
        spool.close()
    assert read(tmp_path) == (["g1"], [])
    spool = writer(tmp_path)
    assert (spool.pending, statuses(spool, event("e1", "g1"))) == (0, ["duplicate"])
    spool.close()
    assert read(tmp_path) == (["g1"], ["e1"])


def test_a_key_of_waiting_that_a_killed_writer_left_is_destroyed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = writer(tmp_path)
    statuses(spool, event("e1", "g1"), event("e2", "g2"))
    with monkeypatch.context() as killed:
        killed.setattr(writing, "forget_keys", lambda *_: None)
        spool.append_generation(generation("g1"), tokens([1], [2]))
        spool.close()
    vault = Vault.open(tmp_path / "keys")
    assert not vault.forgotten(pending_user("g1"))
    writer(tmp_path).close()
    vault = Vault.open(tmp_path / "keys")
    assert vault.forgotten(pending_user("g1"))
    assert not vault.forgotten(pending_user("g2")), "something waits under it"


def test_an_event_of_a_generation_in_the_making_waits_under_its_users_key(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    spool.expect("g1", "k1", "ada", no_train=False)
    spool.expect("g2", "k1", "ada", no_train=True)
    assert statuses(spool, event("e1", "g1"), event("e2", "g2", data={"text": "top secret"})) == [
        "pending",
        "pending",
    ]
    spool.flush()
    vault = Vault.open(tmp_path / "keys")
    assert vault.users(pending_user("")) == []
    raw = path_of(tmp_path / "spool", 1).read_bytes()
    first, second = (f for f in frames.scan(raw, frames.HEADER.size) if isinstance(f, frames.Frame))
    stored, sealed = codec.unpack_event(first.body)
    assert open_event(stored.event, stored.user, sealed, vault).data == {"text": "still wrong"}
    stored, sealed = codec.unpack_event(second.body)
    assert (stored.event.data, sealed) == ({}, b""), "of a no-train generation nothing is written"
    spool.close()


def test_a_user_forgotten_while_an_event_waits_costs_that_event_alone(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    spool.expect("g1", "k1", "ada", no_train=False)
    statuses(spool, event("e1", "g1"), event("e2", "g1", data={"value": 1}, type="thumbs"))
    spool.flush()
    spool._vault.forget("ada")
    spool.append_generation(generation("g1"), tokens([1], [2]))
    assert (spool.pending, statuses(spool, event("e1", "g1"))) == (0, ["duplicate"])
    spool.close()
    assert read(tmp_path) == (["g1"], ["e2"])
    spool = writer(tmp_path)
    assert spool.pending == 0, "it waits no more"
    spool.close()


def test_a_no_train_generation_is_no_beginning_of_a_later_prompt(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    long = list(range(40))
    spool.append_generation(generation("g1", no_train=True), tokens(long, [50]))
    spool.append_generation(generation("g2"), tokens([*long, 50, 60], [61]))
    spool.close()
    reader = Spool.open(tmp_path / "spool")
    assert reader.record("g2")[0].prompt_base == ""
    assert full_tokens(reader, "g2", Vault.open(tmp_path / "keys")).prompt.tolist() == [*long, 50, 60]
    reader.close()


def test_events_of_one_generation_expire_together_with_the_newest(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    statuses(spool, event("e1", "g1", wall=10), event("e2", "g1"))
    assert (spool.expire(), spool.pending) == (0, 2)
    spool.close()


def test_what_expired_stays_expired(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    statuses(spool, event("e1", "g1", wall=10), event("e2", "g2"))
    assert (spool.expire(), spool.pending) == (1, 1)
    spool.close()
    spool = writer(tmp_path, pending_hours=1e6)  # would wait again for longer than there has been time
    assert spool.pending == 1
    spool.close()


def test_what_is_recorded_or_given_up_is_expected_no_more(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    for gid in ("g1", "g2"):
        spool.expect(gid, "k1", "ada", no_train=False)
    spool.append_generation(generation("g1"), tokens([1], [2]))
    spool.abandon("g2")
    assert spool._expected == {}
    spool.close()


def test_the_size_of_a_spool_while_segments_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = writer(tmp_path)
    spool.append_generation(generation("g1"), tokens([1], [2]))
    spool.close()
    path = path_of(tmp_path / "spool", 1)
    assert segment.size(tmp_path / "spool") == path.stat().st_size
    real = os.scandir

    class Gone:
        def __enter__(self) -> Gone:
            self.entries = list(real(tmp_path / "spool" / "segments"))
            path.unlink()
            return self

        def __exit__(self, *_: object) -> None: ...

        def __iter__(self) -> Any:
            return iter(self.entries)

    monkeypatch.setattr("stages.spool.segment.os.scandir", lambda _: Gone())
    assert segment.size(tmp_path / "spool") == 0


@pytest.mark.parametrize("field", ["magic", "version", "number"])
def test_a_header_is_believed_whole_or_not_at_all(field: str) -> None:
    header = frames.pack_header(7, 1, 2)
    place = {"magic": 0, "version": 8, "number": 12}[field]
    changed = bytearray(header)
    changed[place] ^= 1
    assert frames.unpack_header(bytes(changed)) is None
    assert frames.unpack_header(header) == frames.Header(7, 1, 2)


def test_a_segment_of_another_version_is_not_read_as_one_of_this(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as later:
        later.setattr(frames, "VERSION", 2)
        header = frames.pack_header(7, 1, 2)
    assert frames.unpack_header(header) is None


def test_nothing_is_taken_into_a_segment_that_somebody_removed(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    spool.append_generation(generation("g1"), tokens([1], [2]))
    spool.flush()
    shutil.rmtree(tmp_path / "spool")
    for _ in range(2):
        with pytest.raises(DependencyDownError, match="was removed while it was written"):
            spool.append_generation(generation("g2"), tokens([1], [2]))
    with pytest.raises(DependencyDownError, match="was removed"):
        spool.append_events([event("e1", "g1")])
    assert spool.last_seq == 1
    spool.close()
