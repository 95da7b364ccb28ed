"""A workspace in a folder whose name has characters that mean something in an address."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from stages import runlog
from stages.monitor.standing import acknowledged
from stages.registry.glance import glance
from stages.registry.runs import begin_run
from stages.registry.schema import FILE, address
from stages.registry.store import Store
from stages.rollback.first import _previous
from stages.workspace import Workspace

NAMES = ("a#b", "a?b", "50%20off", "50%41", "a b&mode=memory", "é")


@pytest.mark.parametrize("name", NAMES)
def test_everything_reads_and_writes_the_registry_that_lies_in_it(tmp_path: Path, name: str) -> None:
    """A registry at `a#b/store` was written to `a`, beside the workspace, and then not found."""
    store_dir = Workspace.create(tmp_path / name, "").store_dir
    begin_run(Store.open(store_dir), "r", stage="train", line="auto", inputs={}, config={}, extra={}, seed=0)
    assert glance(store_dir)["runs"][0]["id"] == "r"
    assert acknowledged(store_dir) == set()
    assert _previous(store_dir, "auto", "none") is None
    (began,) = glance(store_dir)["running"]
    with runlog.heartbeat(store_dir, "r", every=0.01):
        end = time.monotonic() + 20
        while glance(store_dir)["running"][0]["heartbeat"] == began["heartbeat"]:
            assert time.monotonic() < end
            time.sleep(0.01)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_an_address_is_the_files_own_also_where_the_path_is_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert address(Path("a#b") / FILE) == f"{tmp_path.as_uri()}/a%23b/registry.db?mode=ro"
