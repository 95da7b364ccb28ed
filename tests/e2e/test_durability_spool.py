"""What the spool keeps when disk, process or lock fail it. Each test is a bug that was there."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from stages.errors import IntegrityError, LockedError
from stages.spool import Spool, SpoolFullError, open_event
from stages.spool.pending import PENDING_PREFIX, pending_user
from stages.spool.recovery import WriterLock
from stages.vault import Vault
from tests import processes
from tests.e2e.small_disk import filled, small_disk
from tests.stages.spool.spool_records import event, full_tokens, generation, payload, tokens, writer


def test_a_full_disk_at_the_start_of_a_segment_is_over_when_there_is_room_again(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 512) as disk:
        spool = writer(disk)
        spool.append_generation(generation("g1"), tokens([1, 2], [3]), "q", "a")
        spool.seal()  # the next record needs a new file
        with filled(disk), pytest.raises(SpoolFullError) as caught:
            spool.append_generation(generation("x"), tokens([1, 2], [3]), "q", "a")
        assert caught.value.code == 13
        assert "space" in caught.value.hint
        spool.append_generation(generation("g2"), tokens([1, 2], [4]), "q", "a")
        spool.close()
        reader = Spool.open(disk / "spool")
        vault = Vault.open(disk / "keys")
        assert payload(reader, "g1", vault).answer == "a"
        assert full_tokens(reader, "g2", vault).output.tolist() == [4]
        reader.close()


_WAITS_FOR_ITS_GENERATION = """
import sys
from pathlib import Path
from tests.stages.spool.spool_records import event, full_tokens, generation, payload, tokens, writer
spool = writer(Path(sys.argv[1]))
print([r.status for r in spool.append_events([event("e1", "g1", data={"text": "still wrong"})])])
spool.flush()
spool.append_generation(generation("g1"), tokens([1, 2], [3]), "q", "a")
print("appended", flush=True)
spool.close()
"""


@pytest.mark.parametrize("point", ["vault.forget.before", "vault.forget.after", "spool.index.before:2"])
def test_the_key_of_a_waiting_event_goes_only_when_the_event_is_safe(tmp_path: Path, point: str) -> None:
    """The event is sealed again for its user; the key it waited under must not die before that is on disk,
    and must not live on after a kill in between."""
    for attempt in range(40):  # its thread may come to the point before there is a generation
        root = tmp_path / str(attempt)
        root.mkdir()
        killed = processes.python("-c", _WAITS_FOR_ITS_GENERATION, str(root), env={"RTRL_FAULT": point})
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        if "appended" in killed.stdout:
            break
    assert "appended" in killed.stdout
    writer(root).close()
    vault = Vault.open(root / "keys")
    spool = Spool.open(root / "spool")
    found = [open_event(e, user, sealed, vault) for _, e, user, sealed in spool.events(0, 1 << 60)]
    assert [(e.id, e.data) for e in found] == [("e1", {"text": "still wrong"})]
    assert vault.users(PENDING_PREFIX) == []
    assert vault.forgotten(pending_user("g1"))


def test_a_user_forgotten_while_an_event_waits_costs_the_event_and_not_the_answer(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    spool.expect("g1", "k1", "ada", no_train=False)
    spool.append_events([event("e1", "g1")])
    Vault.open(tmp_path / "keys").forget("ada")
    time.sleep(1.1)  # how long another process's forgetting may stay unseen
    spool.append_generation(generation("g1"), tokens([1, 2], [3]), "q", "a")
    spool.close()
    reader = Spool.open(tmp_path / "spool")
    assert reader.range().generations == 1
    assert list(reader.events(0, 1 << 60)) == []


def test_a_writer_waits_for_a_reader_that_recovers(tmp_path: Path) -> None:
    writer(tmp_path).close()
    lock = WriterLock(tmp_path / "spool")
    timer = threading.Timer(0.3, lock.release)
    timer.start()
    spool = writer(tmp_path)
    with pytest.raises(LockedError) as caught:
        WriterLock(tmp_path / "spool")
    assert str(os.getpid()) in caught.value.message
    spool.close()


def test_a_reader_leaves_the_index_of_a_living_writer_alone(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    spool.append_generation(generation("g1"), tokens([1, 2], [3]))
    spool.flush()
    lock_fd = spool._flock._fd
    index = tmp_path / "spool" / "spool.db"
    spool._index.close()
    index.write_bytes(b"not a database" * 400)
    with pytest.raises(IntegrityError) as caught:
        Spool.open(tmp_path / "spool")
    assert "stop the gateway" in caught.value.hint
    assert index.exists()
    os.close(lock_fd)
    assert Spool.open(tmp_path / "spool").range().generations == 1  # rebuilt from the segments


def test_a_deleted_segment_that_comes_back_after_a_power_cut_goes_again(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    spool.append_generation(generation("g1"), tokens([1, 2], [3]))
    spool.close()
    path = next((tmp_path / "spool" / "segments").iterdir())
    content = path.read_bytes()
    reader = Spool.open(tmp_path / "spool")
    reader.delete([1])
    path.write_bytes(content)
    again = Spool.open(tmp_path / "spool")
    assert not path.exists()
    assert again.range().generations == 0
