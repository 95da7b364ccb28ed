"""What `rtrl forget` says of session logs, and of the same sessions under other names."""

from __future__ import annotations

from pathlib import Path

from rtrl_cli.commands.forget import _warnings
from stages.collect.logs.source import Source
from stages.collect.run import CollectStage
from stages.forget.forget import forget
from stages.init import init_bare
from stages.registry.store import Store
from stages.runner import run_stage
from tests.stages.collect.logs.openai_logs import REQUESTS, log_of


def test_logs_and_other_names_of_the_same_sessions_are_told(tmp_path: Path) -> None:
    """Both outlive the key: whoever asked to be forgotten came back with the next collect, unnoticed."""
    workspace = init_bare(tmp_path / "ws")
    store = Store.open(workspace.store_dir)
    for name in ("one", "two"):
        log_of(tmp_path / f"{name}.jsonl", name, REQUESTS)
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    for paths, user in (((one,), "ann"), ((one, two), ""), ((two,), "bob")):
        run_stage(workspace, store, CollectStage(source=Source(paths, kind="openai-log", user=user)))

    found = forget(workspace, store, "ann", by="me")
    assert found.sources.logs == (str(one),)
    (session,) = found.sources.names
    assert session.startswith("openai-log:")
    assert found.metrics()["sources"] == {"logs": (str(one),), "names": (session,)}
    logs, names = _warnings(found)
    assert str(one) in logs
    assert names.endswith(session)

    again = forget(workspace, store, session, by="me", dry_run=True)
    assert (again.sources.logs, again.sources.names) == ((str(one), str(two)), ())  # ann is forgotten by now
