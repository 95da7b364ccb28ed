"""Events in the spool: once each, from the right key, before or after their generation."""

from __future__ import annotations

import errno
import time
from pathlib import Path
from typing import Any

import pytest

from stages.spool import Spool, open_event
from stages.spool.codec import is_content
from stages.spool.frames import Kind
from stages.spool.pending import pending_user
from stages.spool.segment import SegmentFile
from stages.vault import UserForgottenError, Vault
from tests.stages.spool.spool_records import event, generation, payload, statuses, tokens, writer


def test_the_same_event_counts_once_also_after_a_restart(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    spool.append_generation(generation("g1"), tokens([1], [2]))
    assert statuses(spool, event("e1", "g1"), event("e1", "g1")) == ["accepted", "duplicate"]
    spool.flush()
    assert statuses(spool, event("e1", "g1", data={"text": "other"})) == ["duplicate"]
    spool.close()
    spool = writer(tmp_path)
    assert statuses(spool, event("e1", "g1"), event("e2", "g1")) == ["duplicate", "accepted"]
    spool.close()
    assert [e.id for _, e, _, _ in Spool.open(tmp_path / "spool").events(0, 99)] == ["e1", "e2"]


def test_only_the_key_that_made_the_generation(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    spool.append_generation(generation("g1"), tokens([1], [2]))
    spool.expect("g2", "k1", "ada", no_train=False)
    theirs = [event("e1", "g1", key_id="k2"), event("e1", "g2", key_id="k2"), event("e1", "g3", key_id="k2")]
    assert statuses(spool, *theirs) == ["rejected other_key", "rejected other_key", "pending"]
    spool.append_generation(generation("g3"), tokens([1], [2]))  # made by k1: what waited is refused
    assert statuses(spool, event("e1", "g1"), event("e1", "g3", key_id="k2")) == ["accepted", "duplicate"]
    spool.close()
    assert [(e.key_id, e.id) for _, e, _, _ in Spool.open(tmp_path / "spool").events(0, 99)] == [("k1", "e1")]


def test_events_that_find_no_room_beside_their_generation_count_once_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever had asked for it was told that it was not recorded; its events waited for a restart."""
    spool = writer(tmp_path)
    assert statuses(spool, event("e1", "g1"), event("e2", "g1"), event("e3", "g1")) == ["pending"] * 3
    room = 2  # the generation and one event

    def append(file: SegmentFile, kind: Kind, seq: int, body: bytes) -> int:
        nonlocal room
        room -= 1
        if room < 0:
            raise OSError(errno.ENOSPC, "no space left on device")
        return whole(file, kind, seq, body)

    whole = SegmentFile.append
    with monkeypatch.context() as full:
        full.setattr(SegmentFile, "append", append)
        spool.append_generation(generation("g1"), tokens([1], [2]))
        assert spool.pending == 2
    spool.append_generation(generation("g2"), tokens([1], [2]))
    assert spool.pending == 0
    spool.close()
    reader = Spool.open(tmp_path / "spool")
    assert [(e.id, e.generation_id) for _, e, _, _ in reader.events(0, 99)] == [
        (f"e{n}", "g1") for n in (1, 2, 3)
    ]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("expected", [False, True])
def test_events_before_their_generation(tmp_path: Path, restart: bool, expected: bool) -> None:
    spool = writer(tmp_path)
    if expected:
        spool.expect("g1", "k1", "ada", no_train=False)
    assert statuses(spool, event("e1", "g1"), event("e2", "g1", at=1)) == ["pending", "pending"]
    assert spool.pending == 2
    if restart:
        spool.close()
        assert list(Spool.open(tmp_path / "spool").events(0, 99)) == []
        spool = writer(tmp_path)
        assert spool.pending == 2
    spool.append_generation(generation("g1"), tokens([1], [2]))
    assert spool.pending == 0
    assert statuses(spool, event("e1", "g1")) == ["duplicate"]
    spool.close()
    reader, vault = Spool.open(tmp_path / "spool"), Vault.open(tmp_path / "keys")
    found = [(e.id, e.at, user, open_event(e, user, s, vault).data) for _, e, user, s in reader.events(0, 99)]
    assert found == [("e1", 2_000, "ada", {"text": "still wrong"}), ("e2", 1, "ada", {"text": "still wrong"})]
    assert expected or vault.forgotten(pending_user("g1")), "the key it waited under is gone"
    vault.forget("ada")
    _, e, user, sealed = next(reader.events(0, 99))
    with pytest.raises(UserForgottenError):
        open_event(e, user, sealed, vault)


def test_waiting_events_are_bounded_and_expire(tmp_path: Path) -> None:
    spool = writer(tmp_path, max_pending_events=2)
    waiting = [event(f"e{i}", f"g{i}", wall=10) for i in range(3)]
    assert statuses(spool, *waiting) == ["pending", "pending", "rejected too_many_pending"]
    assert statuses(spool, event("e9", "g9", key_id="k2", wall=10)) == ["pending"]
    keys = Vault.open(tmp_path / "keys").users(pending_user(""))
    assert keys == [pending_user(f"g{n}") for n in (0, 1, 9)], "what was refused has no key to take away"
    spool.close()
    spool = writer(tmp_path, pending_hours=1)  # all of 1970
    assert spool.pending == 0
    spool.append_generation(generation("g0"), tokens([1], [2]))
    assert statuses(spool, event("e0", "g0"), event("e2", "g0")) == ["duplicate", "accepted"]
    spool.close()
    assert [e.id for _, e, _, _ in Spool.open(tmp_path / "spool").events(0, 99)] == ["e2"]


def test_waiting_events_expire_while_the_gateway_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stages.spool.journal.CHORE_S", 0.05)
    spool = writer(tmp_path, pending_hours=0.3 / 3600)
    assert statuses(spool, event("e0", "g0")) == ["pending"]
    deadline = time.monotonic() + 20
    while spool.pending and time.monotonic() < deadline:
        time.sleep(0.01)
    assert spool.pending == 0
    spool.append_generation(generation("g0"), tokens([1], [2]))
    spool.close()
    assert list(Spool.open(tmp_path / "spool").events(0, 99)) == []
    assert Vault.open(tmp_path / "keys").forgotten(pending_user("g0"))


def test_events_of_a_no_train_generation_are_counted_without_content(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    spool.append_events([event("e0", "g1")])
    spool.append_generation(generation("g1", no_train=True), tokens([1], [2]))
    spool.append_events([event("e1", "g1"), event("e2", "g1", type="thumbs", data={"value": 1})])
    spool.close()
    found = [(e.id, e.data, s) for _, e, _, s in Spool.open(tmp_path / "spool").events(0, 99)]
    assert found == [("e0", {}, b""), ("e1", {}, b""), ("e2", {}, b"")]


@pytest.mark.parametrize("name", ["pending/", "pending/g1", "pending/of the review board"])
def test_a_user_whose_name_looks_like_a_waiting_key_keeps_everything(tmp_path: Path, name: str) -> None:
    spool = writer(tmp_path)
    spool.append_generation(generation("g0", user=name), tokens([1], [2]), "question", "answer")
    spool.append_events([event("e1", "g1"), event("e2", "g1", key_id="k2")])
    spool.append_generation(generation("g1", user=name), tokens([1], [2]))
    spool.close()
    writer(tmp_path, pending_hours=0).close()
    reader, vault = Spool.open(tmp_path / "spool"), Vault.open(tmp_path / "keys")
    assert payload(reader, "g0", vault).answer == "answer"
    _, e, user, sealed = next(reader.events(0, 99))
    assert open_event(e, user, sealed, vault).data == {"text": "still wrong"}


@pytest.mark.parametrize(
    ("data", "content"),
    [
        ({}, False),
        ({"value": -1}, False),
        ({"horizon_s": 3600, "added": 3, "added_kept": 1, "deleted": 0, "deleted_kept": 0}, False),
        ({"text": "still wrong"}, True),
        ({"value": [1]}, True),
        ({"the password is hunter2": 1}, True),  # a name of a field is text too
    ],
)
def test_what_of_an_event_is_sealed(data: dict[str, Any], content: bool) -> None:
    assert is_content(data) is content
