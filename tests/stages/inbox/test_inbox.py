"""The inbox: sealed, synced, told once, forgettable, and whole again after a kill."""

from __future__ import annotations

import io
import os
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorbench.sessions.memory import MemoryLog
from stages.errors import LockedError
from stages.inbox import reader, records
from stages.inbox.reader import LAST, Inbox, Left, delete_segments, old_segments, verify_inbox
from stages.inbox.records import parts, sender, squeeze, unsqueeze
from stages.inbox.writer import InboxFullError, InboxWriter, Received
from stages.spool import frames, segment
from stages.vault import Vault


def writer(root: Path, vault: Vault, segment_bytes: int = 1 << 20, max_bytes: int = 1 << 30) -> InboxWriter:
    return InboxWriter(root / "received", vault, segment_bytes=segment_bytes, max_bytes=max_bytes)


def lines(root: Path, vault: Vault, last: int = LAST) -> tuple[dict[tuple[str, str], list[bytes]], Left]:
    left, found = Left(), {}
    for kind, log, whose in Inbox(root / "received").logs(vault, last, left):
        found[kind, whose.user] = [line.rstrip(b"\n") for line in log.open().readlines()]
    return found, left


def test_each_sender_has_logs_of_its_own_in_order_and_a_line_once(tmp_path: Path) -> None:
    vault = Vault.create(tmp_path / "keys")
    inbox = writer(tmp_path, vault)
    inbox.append([Received("k", "ada", "otel", [b"one", b"two"]), Received("k", "eve", "otel", [b"one"])])
    inbox.append([Received("k", "ada", "otel", [b"two", b"three"]), Received("k", "ada", "continue", [b"x"])])
    facts = Inbox(tmp_path / "received").facts()
    found, left = lines(tmp_path, vault)
    assert found == {
        ("otel", "ada"): [b"one", b"two", b"three"],
        ("otel", "eve"): [b"one"],
        ("continue", "ada"): [b"x"],
    }
    assert (facts["batches"], facts["last_seq"], left.counts["repeated"]) == (4, 4, 1)
    assert lines(tmp_path, vault, last=2)[0] == {("otel", "ada"): [b"one", b"two"], ("otel", "eve"): [b"one"]}
    inbox.append([Received("k", "ada", "otel", [b"four"])])
    assert Inbox(tmp_path / "received").facts(4) == facts, "what comes later changes nothing of a record"
    with pytest.raises(LockedError):
        writer(tmp_path, vault)
    inbox.close()


def test_nothing_is_readable_on_disk_and_nothing_of_who_is_forgotten(tmp_path: Path) -> None:
    vault = Vault.create(tmp_path / "keys")
    inbox = writer(tmp_path, vault)
    # does not compress: unsealed it would lie there as it is
    secret = random.Random(0).randbytes(200).replace(b"\n", b"")
    assert secret in squeeze([secret])
    inbox.append([Received("k", "ada", "otel", [secret]), Received("k", "eve", "otel", [b"y"])])
    inbox.close()
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and secret in p.read_bytes()]
    before = Inbox(tmp_path / "received").facts()
    vault.forget("ada")
    found, left = lines(tmp_path, vault)
    assert found == {("otel", "ada"): [], ("otel", "eve"): [b"y"]}
    assert left.counts == {"forgotten": 1}
    assert verify_inbox(tmp_path / "received", deep=True) == ({"segments": 1, "batches": 2, "damaged": 0}, [])
    assert Inbox(tmp_path / "received").facts() == before
    back = writer(tmp_path, vault)
    back.append([Received("k", "ada", "otel", [b"back again"])])
    back.close()
    assert lines(tmp_path, vault)[0]["otel", "ada"] == [b"back again"]


@pytest.mark.parametrize("cut", [1, 7, 30, 10_000])
def test_a_write_cut_short_is_cut_off_and_kept_apart(tmp_path: Path, cut: int) -> None:
    vault = Vault.create(tmp_path / "keys")
    inbox = writer(tmp_path, vault)
    inbox.append([Received("k", "ada", "otel", [b"one"])])
    whole = segment.path_of(tmp_path / "received", 1).stat().st_size
    inbox.append([Received("k", "ada", "otel", [os.urandom(20_000).hex().encode()])])
    os.close(inbox._file.fd)  # type: ignore[union-attr]  # killed
    inbox._flock.release()
    path = segment.path_of(tmp_path / "received", 1)
    torn = path.read_bytes()[: whole + cut]
    path.write_bytes(torn)
    assert lines(tmp_path, vault)[0] == {("otel", "ada"): [b"one"]}, "a write in progress is not there yet"
    after = writer(tmp_path, vault)
    after.append([Received("k", "ada", "otel", [b"two"])])
    after.close()
    assert lines(tmp_path, vault)[0] == {("otel", "ada"): [b"one", b"two"]}
    kept = list((tmp_path / "received" / "quarantine").iterdir())
    assert [one.read_bytes() for one in kept] == [torn[whole:]]
    assert verify_inbox(tmp_path / "received", deep=True) == ({"segments": 2, "batches": 2, "damaged": 0}, [])


def test_damage_is_found_and_the_rest_is_read(tmp_path: Path) -> None:
    vault = Vault.create(tmp_path / "keys")
    inbox = writer(tmp_path, vault)
    for n in range(3):
        inbox.append([Received("k", "ada", "otel", [b"%d" % n])])
    inbox.close()
    path = segment.path_of(tmp_path / "received", 1)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    counts, problems = verify_inbox(tmp_path / "received", deep=True)
    assert (counts["batches"], counts["damaged"], len(problems)) == (2, 1, 1)
    found, left = lines(tmp_path, vault)
    assert found["otel", "ada"] == [b"0", b"2"]
    assert left.counts["damaged"] == 1


def six_batches(root: Path) -> list[Path]:
    """Three complete segments of two batches; a killed writer's in the middle, with no footer."""
    vault = Vault.create(root / "keys")
    for n in range(3):
        inbox = writer(root, vault)
        inbox.append([Received("k", "ada", "otel", [b"%d" % n])])
        inbox.append([Received("k", "ada", "otel", [b"%d more" % n])])
        if n == 1:
            os.close(inbox._file.fd)  # type: ignore[union-attr]  # killed
            inbox._flock.release()
        else:
            inbox.close()
    return [path for _, path in Inbox(root / "received").segments()]


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("which", [0, 1])
def test_what_is_gone_of_the_middle_is_told(tmp_path: Path, which: int, deep: bool) -> None:
    folder, paths = tmp_path / "received", six_batches(tmp_path)
    assert [verify_inbox(folder, deep)[0]["segments"], verify_inbox(folder, deep)[1]] == [3, []]
    path = paths[which]
    path.write_bytes(path.read_bytes()[: frames.HEADER.size])
    gone = f"received records {which + 2:08d}: begins with batch {2 * which + 3}, where {2 * which + 1} was"
    (problem,) = verify_inbox(folder, deep)[1]
    assert problem.startswith(gone)
    path.unlink()
    counts, problems = verify_inbox(folder, deep)
    if which == 0:
        assert problems == [], "`rtrl gc` deletes at the front"
    else:
        assert (counts["damaged"], problems) == (1, [problem])


@pytest.mark.parametrize("deep", [False, True])
def test_what_a_gc_at_the_same_moment_deletes_is_no_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deep: bool
) -> None:
    folder, paths = tmp_path / "received", six_batches(tmp_path)
    seen = reader._bounds

    def bounds(path: Path) -> tuple[int, int]:
        found = seen(path)
        delete_segments(paths[:2])
        return found

    monkeypatch.setattr(reader, "_bounds", bounds)
    assert verify_inbox(folder, deep)[1] == []


def test_a_number_that_no_segment_has_is_no_gap(tmp_path: Path) -> None:
    """A writer that was killed making a file takes the next number."""
    paths = six_batches(tmp_path)
    segment.path_of(tmp_path / "received", 4).write_bytes(paths[0].read_bytes()[:9])
    inbox = writer(tmp_path, Vault.open(tmp_path / "keys"))
    inbox.append([Received("k", "ada", "otel", [b"7"])])
    inbox.close()
    assert segment.numbers(tmp_path / "received") == [1, 2, 3, 5]
    assert verify_inbox(tmp_path / "received", deep=True)[1] == []


def test_it_takes_no_more_than_it_may(tmp_path: Path) -> None:
    vault = Vault.create(tmp_path / "keys")
    inbox = writer(tmp_path, vault, max_bytes=4096)
    inbox.append([Received("k", "ada", "otel", [b"one"])])
    with pytest.raises(InboxFullError) as caught:
        inbox.append([Received("k", "ada", "otel", [os.urandom(5000).hex().encode()])])
    assert (caught.value.code, "gc" in caught.value.hint) == (13, True)
    inbox.append([Received("k", "ada", "otel", [b"two"])])
    inbox.close()
    assert lines(tmp_path, vault)[0]["otel", "ada"] == [b"one", b"two"]


def test_what_gc_deletes_makes_room_for_the_running_writer(tmp_path: Path) -> None:
    vault = Vault.create(tmp_path / "keys")
    inbox = writer(tmp_path, vault, segment_bytes=100, max_bytes=4096)

    def fill() -> None:
        for n in range(1000):
            inbox.append([Received("k", "ada", "otel", [b"%d" % n])])

    with pytest.raises(InboxFullError):
        fill()
    folder = tmp_path / "received"
    delete_segments([path for _, path in Inbox(folder).segments()][:-1])
    inbox.append([Received("k", "ada", "otel", [b"there is room"])])
    on_disk = sum(path.stat().st_size for _, path in Inbox(folder).segments())
    assert inbox.bytes == on_disk
    inbox.close()
    assert lines(tmp_path, vault)[0]["otel", "ada"][-1] == b"there is room"


def test_more_than_a_batch_holds_becomes_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_LINES", 100)
    vault = Vault.create(tmp_path / "keys")
    inbox = writer(tmp_path, vault)
    given_lines = [b"%03d" % n + b"x" * 40 for n in range(7)] + [b"y" * 99]
    inbox.append([Received("k", "ada", "otel", given_lines)])
    with pytest.raises(ValueError, match="longer than 100"):
        inbox.append([Received("k", "ada", "otel", [b"z" * 100])])
    inbox.close()
    found, left = lines(tmp_path, vault)
    assert (found, left.counts) == ({("otel", "ada"): given_lines}, {})
    assert Inbox(tmp_path / "received").facts()["batches"] == 5


def test_a_batch_that_is_not_read_to_its_end_is_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = squeeze([b"one", os.urandom(100).hex().encode()])
    with pytest.raises(ValueError, match="not the lines"):
        unsqueeze(whole[:-20])
    monkeypatch.setattr(records, "MAX_LINES", 100)
    with pytest.raises(ValueError, match="not the lines"):
        unsqueeze(whole)


@given(st.lists(st.binary(max_size=50).map(lambda b: b.replace(b"\n", b""))))
def test_parts_are_the_lines_in_order_and_each_can_be_read_back(given_lines: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "MAX_LINES", 60)
        found = list(parts(given_lines))
        assert [line for part in found for line in unsqueeze(squeeze(part))] == given_lines


def test_only_what_is_old_and_collected_goes(tmp_path: Path) -> None:
    vault = Vault.create(tmp_path / "keys")
    inbox = writer(tmp_path, vault, segment_bytes=100)
    for n in range(4):  # a segment each
        inbox.append([Received("k", "ada", "otel", [b"%d" % n])])
    inbox.close()
    folder = tmp_path / "received"
    paths = [path for _, path in Inbox(folder).segments()]
    assert len(paths) == 4
    for path in paths:
        os.utime(path, (1000, 1000))
    day = 86400.0
    assert old_segments(folder, 30, 1000 + 31 * day, collected=0) == []
    assert old_segments(folder, 30, 1000 + 29 * day, collected=4) == []
    assert old_segments(folder, 30, 1000 + 31 * day, collected=2) == paths[:2]
    assert old_segments(folder, 30, 1000 + 31 * day, collected=4) == paths[:3], "the newest stays"
    delete_segments(paths[:3])
    assert lines(tmp_path, vault)[0]["otel", "ada"] == [b"3"]
    again = writer(tmp_path, vault)
    again.append([Received("k", "ada", "otel", [b"4"])])
    assert Inbox(folder).facts()["last_seq"] == 5, "numbers are not used twice"
    again.close()


def test_senders_with_one_name_are_told_apart() -> None:
    assert sender("k1", "ada") != sender("k2", "ada")
    assert sender("k1", "ada").user == "ada"


@given(st.lists(st.binary(max_size=50).map(lambda b: b.replace(b"\n", b""))), st.integers(1, 64))
def test_a_memory_log_reads_as_a_file_of_its_lines(given_lines: list[bytes], size: int) -> None:
    log = MemoryLog.of("x", lambda: given_lines)
    expected = b"".join(line + b"\n" for line in given_lines)
    for _ in range(2):
        stream, read = log.open(), io.BytesIO()
        while piece := stream.read(size):
            read.write(piece)
        assert read.getvalue() == expected
    assert log.open().readlines() == io.BytesIO(expected).readlines()


def test_nothing_is_taken_into_a_segment_that_somebody_removed(tmp_path: Path) -> None:
    vault = Vault.create(tmp_path / "keys")
    inbox = writer(tmp_path, vault)
    inbox.append([Received("k", "ada", "otel", [b"one"])])
    segment.path_of(tmp_path / "received", 1).unlink()
    inbox.append([Received("k", "ada", "otel", [b"two"])])
    assert lines(tmp_path, vault)[0] == {("otel", "ada"): [b"two"]}
    shutil.rmtree(tmp_path / "received")
    with pytest.raises(InboxFullError):
        inbox.append([Received("k", "ada", "otel", [b"three"])])
    inbox.close()
