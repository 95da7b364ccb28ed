"""A copy of a spool that is being written, as `cp`, `tar` and `rsync` make it: one file after the other."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from stages.errors import IntegrityError
from stages.spool import Spool
from stages.spool.frames import HEADER
from stages.spool.verify import verify_spool
from tests.stages.spool.spool_records import event, generation, ids, statuses, tokens, writer

RECORDS = 600


def torn(root: Path) -> Path:
    """Its index first; its log and the segments when pages have moved from the one to the other since."""
    spool, copy = writer(root / "original"), root / "copy"
    folder = copy / "spool"
    folder.mkdir(parents=True)
    for number in range(RECORDS):
        spool.append_generation(generation(f"g{number:04}"), tokens([1, 2], [3]))
        spool.append_events([event(f"e{number:04}", f"g{number:04}")])
        if number in (100, 400):
            spool.flush()
            with closing(sqlite3.connect(root / "original" / "spool" / "spool.db")) as db:
                db.execute("PRAGMA wal_checkpoint(RESTART)")
        if number == 100:
            shutil.copy(root / "original" / "spool" / "spool.db", folder)
    spool.flush()
    for name in ("spool.db-wal", "segments"):
        source = root / "original" / "spool" / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    spool.close()
    shutil.copytree(root / "original" / "keys", copy / "keys")
    return copy


@pytest.mark.parametrize("table", ["segments", "generations", "events"])
def test_a_writer_makes_an_index_anew_in_which_it_meets_damage(tmp_path: Path, table: str) -> None:
    spool = writer(tmp_path / "original")
    for number in range(5):
        spool.append_generation(generation(f"g{number}"), tokens([1, 2], [3]))
        spool.append_events([event(f"e{number}", f"g{number}")])
    spool.flush()
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    spool.close()
    folder = tmp_path / "copy" / "spool"
    with closing(sqlite3.connect(folder / "spool.db")) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        place = "SELECT rootpage * (SELECT page_size FROM pragma_page_size) FROM sqlite_master WHERE name = ?"
        end = int(db.execute(place, (table,)).fetchone()[0])
        db.execute("DELETE FROM generations WHERE id = 'g4'")  # as if it had not been indexed yet
        db.execute("DELETE FROM events WHERE id = 'e4'")
        db.execute(f"UPDATE segments SET bytes = {HEADER.size}, generations = 4, events = 4")
        db.commit()
    with (folder / "spool.db").open("r+b") as file:
        file.seek(end - 4096)
        file.write(b"\xff" * 4096)
    spool = writer(tmp_path / "copy")
    assert statuses(spool, event("e3", "g3"), event("e4", "g4"), event("new", "g4")) == [
        "duplicate",
        "duplicate",
        "accepted",
    ]
    assert spool.append_generation(generation("later"), tokens([1], [2])) == 12
    spool.close()
    assert (folder / "quarantine" / "spool.db").exists()
    assert ids(Spool.open(folder)) == ["g0", "g1", "g2", "g3", "g4", "later"]


def test_verify_makes_it_anew_and_says_so_once(tmp_path: Path) -> None:
    copy = torn(tmp_path)
    report = verify_spool(copy / "spool", deep=True)
    assert report.problems == []
    assert (report.counts["generations"], report.counts["events"]) == (RECORDS, RECORDS)
    assert "spool.db was damaged" in report.warnings[0]
    assert "made anew from the segments" in report.warnings[0]
    assert verify_spool(copy / "spool", deep=True).warnings == []


def test_an_index_that_lacks_what_it_counts_is_made_anew(tmp_path: Path) -> None:
    """Whole pages of before: SQLite finds nothing wrong."""
    spool = writer(tmp_path)
    for number in range(5):
        spool.append_generation(generation(f"g{number}"), tokens([1, 2], [3]))
    spool.close()
    with closing(sqlite3.connect(tmp_path / "spool" / "spool.db")) as db, db:
        db.execute("DELETE FROM generations WHERE id = 'g3'")
    report = verify_spool(tmp_path / "spool", deep=True)
    assert "generations that it counts of 1 segment are not in it" in report.warnings[0]
    assert Spool.open(tmp_path / "spool").record("g3")[0].id == "g3"


def test_that_of_a_living_writer_is_named_and_left_alone(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    spool.append_generation(generation("g1"), tokens([1, 2], [3]))
    spool.flush()
    index = tmp_path / "spool" / "spool.db"
    with closing(sqlite3.connect(index)) as db, db:
        db.execute("DELETE FROM generations")
    with pytest.raises(IntegrityError, match=r"spool\.db is damaged: generations that it counts") as caught:
        verify_spool(tmp_path / "spool", deep=True)
    assert "stop the gateway" in (caught.value.hint or "")
    assert list((tmp_path / "spool" / "quarantine").iterdir()) == []
    spool.close()
    assert verify_spool(tmp_path / "spool", deep=True).problems == []
