"""SIGKILL at every fault point: nothing answered for is lost."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from stages.spool import Spool
from stages.spool.verify import verify_spool
from tests import processes
from tests.stages.spool.spool_records import event, generation, ids, statuses, tokens, writer

_LIFE = """
import sys
from pathlib import Path
from tests.stages.spool.spool_records import event, generation, tokens, writer
spool = writer(Path(sys.argv[1]), segment_bytes=4096)
done = open(sys.argv[2], "a", buffering=1)
for i in range(12):
    spool.append_events([event(f"early{i}", f"g{i}")])
    print(f"early{i}", file=done)
    spool.append_generation(generation(f"g{i}"), tokens(list(range(300)), [i]), "q", "a")
    print(f"g{i}", file=done)
    spool.append_events([event(f"e{i}", f"g{i}")])
    print(f"e{i}", file=done)
    if i % 4 == 3:
        spool.flush()
spool.close()
"""


def live(root: Path, fault: str, listing: Path | None = None) -> tuple[int, list[str]]:
    """Run a writer's life in a process of its own. Returns its status and what it had answered for."""
    answered = root / "answered"
    environment = {"RTRL_FAULT": fault, "RTRL_FAULT_LIST": str(listing or "")}
    done = processes.python("-c", _LIFE, str(root), str(answered), env=environment)
    return done.returncode, answered.read_text().split()


def points(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    root = tmp_path_factory.mktemp("points")
    assert live(root, "", root / "listing")[0] == 0
    passed = [line for line in (root / "listing").read_text().split() if line.startswith("spool.")]
    return {name: passed.count(name) for name in passed}


@pytest.mark.slow
def test_killed_at_every_point_nothing_answered_for_is_lost(tmp_path_factory: pytest.TempPathFactory) -> None:
    found = points(tmp_path_factory)
    assert {"spool.append.before", "spool.append.after", "spool.fsync.before", "spool.fsync.after"} <= set(
        found
    )
    assert {"spool.index.before", "spool.index.after", "spool.seal.before", "spool.seal.after"} <= set(found)
    for name, times in found.items():
        for hit in {1, times // 2 + 1}:
            root = tmp_path_factory.mktemp("killed")
            status, answered = live(root, f"{name}:{hit}")
            assert status in (-signal.SIGKILL, 0), name
            reader = Spool.open(root / "spool")
            assert verify_spool(root / "spool", deep=True).problems == [], name
            there = set(ids(reader)) | {e.id for _, e, _, _ in reader.events(0, 999)}
            waiting = {a for a in answered if a.startswith("early")} - there
            assert set(answered) - there <= waiting, (name, json.dumps(answered))
            spool = writer(root)
            pending = spool.pending
            resent = statuses(spool, *[event(a, f"g{a[5:]}") for a in sorted(waiting)])
            assert resent == ["duplicate"] * len(waiting), name
            spool.append_generation(generation("after"), tokens([1], [2]))
            spool.close()
            # the generation that one waits for may be there: written, but the kill came before the answer
            found_theirs = {e.id for _, e, _, _ in reader.events(0, 999)}
            assert len(waiting - found_theirs) <= pending or status == 0, name
            assert "after" in ids(reader)
            reader.close()
