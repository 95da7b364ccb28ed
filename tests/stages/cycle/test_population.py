"""A cycle of a population's line: it begins the line, and leaves the workspace's own where it is."""

from __future__ import annotations

from stages.cycle.run import plan_cycle, run_cycle
from stages.cycle.stub import chain
from stages.registry.store import Store
from stages.workspace import Workspace
from tests.stages.cycle.cycle_world import live


def test_each_line_has_its_cycles(world: tuple[Workspace, Store]) -> None:
    workspace, store = world
    (workspace.root / "rtrl.toml").write_text(
        "[populations.acme]\n[populations.acme.cycle]\ndeadline = '1h'\n"
    )
    main = Workspace(workspace.root)
    acme = main.on_line("acme")
    first = live(store)
    assert plan_cycle(acme, store).resumed_at == ""
    assert store.alias("acme", "live") is None
    result = run_cycle(acme, store, stages=chain())
    assert result.status == "succeeded"
    assert result.deadline[-1]["late_at_s"] == 3600
    trained = store.resolve("checkpoint@live", "acme")
    assert trained.line == "acme"
    assert trained.meta["parent"] == first
    assert store.resolve("checkpoint@anchor", "acme").digest == first
    assert live(store) == first
    assert run_cycle(acme, store, stages=chain()).status == "succeeded"  # goes on from there
    assert store.resolve(str(store.resolve("checkpoint@live", "acme").meta["parent"])) == trained
    assert run_cycle(main, store, stages=chain()).status == "succeeded"
    assert store.resolve(live(store)).meta["parent"] == first
    assert {path.name for path in main.run_dir.glob("cycle-*.json")} == {"cycle-acme.json", "cycle-auto.json"}
