"""Commands for the record, where whoever runs them has no name: a container of any user id."""

import os
from pathlib import Path

import pytest
from sqlmodel import col, select

from rtrl_cli.main import run
from stages.registry.models import EventRow
from stages.registry.store import Store
from stages.target import canary
from stages.who import who
from stages.workspace import Workspace
from tests.stages.toy import checkpoint


@pytest.fixture
def nameless(monkeypatch: pytest.MonkeyPatch) -> str:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 3_999_999_999)
    return "uid 3999999999"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    made = Workspace.create(tmp_path / "w", "")
    store = Store.open(made.store_dir)
    for name in ("one", "two"):
        checkpoint(store, tmp_path / name, name)
    store.move_alias("auto", "live", store.resolve("checkpoint@v1").digest, reason="init", by="init")
    return made


def test_the_id_stands_in_for_the_name(nameless: str) -> None:
    assert who() == nameless


def test_what_they_do_is_on_record(nameless: str, workspace: Workspace) -> None:
    store = Store.open(workspace.store_dir)
    place = ["-w", str(workspace.root), "--quiet"]
    assert run(["gc", "--pin", "checkpoint@v2", "--reason", "kept", *place]) == 0
    assert run(["gc", "--unpin", "checkpoint@v2", *place]) == 0
    assert run(["gc", "--yes", *place]) == 0
    store.move_alias("auto", "live", store.resolve("checkpoint@v2").digest, reason="by hand")
    with store.read() as session:
        said = {
            row.by for row in session.exec(select(EventRow).where(col(EventRow.entity).in_(("pin", "alias"))))
        }
    assert said == {"init", nameless}


def test_a_canary_that_lost_its_users_is_no_canary_any_more(nameless: str, workspace: Workspace) -> None:
    """It raised between the two: `rtrl serve` would have given it its users back."""
    store = Store.open(workspace.store_dir)
    two = store.resolve("checkpoint@v2").digest
    made = store.deployments.create("auto", two, by="ann", reason="try it")
    for before, after in (("staged", "verifying"), ("verifying", "canary")):
        made = store.deployments.transition(made.id, before, after)
    canary.end(workspace, store, made, "harm", drain_s=0.0, offline=True)
    assert store.deployments.get(made.id).state == "rolled_back"
