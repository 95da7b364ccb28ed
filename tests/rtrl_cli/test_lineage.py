"""`rtrl lineage` of a line that has turned for years: nothing that is near is left out, and it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rtrl_cli.commands.lineage import DEEPEST, lines, trace
from rtrl_cli.main import run
from stages.registry.store import Store
from stages.stage import Artifact, Kind
from stages.workspace import Workspace
from tests.stages.toy import checkpoint


class Line:
    """What a store says of `cycles` cycles, with the inputs that the stages really name."""

    def __init__(self, cycles: int) -> None:
        self.made: dict[str, dict[str, Artifact]] = {}  # inputs by run
        self.deployments = SimpleNamespace(of=lambda _digest: [])
        anchor = live = self._of("checkpoint", 0, {})
        state = self._of("line_state", 0, {})
        for n in range(1, cycles + 1):
            interactions = self._of("interactions", n, {"checkpoint": live, "line_state": state})
            learned = {"interactions": interactions, "line_state": state}
            experience, state = (self._of(kind, n, learned) for kind in ("experience", "line_state"))
            inputs = {"anchor": anchor, "experience": experience, "line_state": state, "parent": live}
            live = self._of("checkpoint", n, inputs)
        self.live = live

    def _of(self, kind: str, n: int, inputs: dict[str, Artifact]) -> Artifact:
        name = f"{kind}-{n}"
        self.made[name] = inputs
        known = cast("Kind", kind)
        return Artifact(known, f"sha256:{name}", n, "auto", 0, "2026-01-01", name, {}, Path())

    def run(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(id=name, stage="toy", state="succeeded")

    def inputs_by_role(self, name: str) -> dict[str, Artifact]:
        return self.made[name]


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    waiting = [node]
    while waiting:
        yield (one := waiting.pop())
        waiting += one.get("inputs", {}).values()


def traced(cycles: int, depth: int) -> dict[str, Any]:
    line = Line(cycles)
    return trace(cast("Store", line), line.live, depth)


def test_as_many_runs_back_as_asked_for_by_the_shortest_way() -> None:
    """What was met on a long way first (experience, interactions, its sampler) stood there without inputs."""
    tree = traced(50, 20)
    shown = {one["ref"] for one in nodes(tree)}
    assert {f"checkpoint@v{n}" for n in range(30, 51)} | {"checkpoint@v0"} <= shown
    assert "checkpoint@v29" not in shown
    full = [one["ref"] for one in nodes(tree) if "run" in one]
    assert sorted(full) == sorted(shown)  # each in full, once
    told = {one["ref"] for one in nodes(tree) if "inputs" in one}
    assert {f"checkpoint@v{n}" for n in range(31, 51)} <= told


def test_the_deepest_is_told_whole() -> None:
    tree = traced(DEEPEST * 2, DEEPEST)
    assert json.loads(json.dumps(tree, indent=2)) == tree
    assert any(f"checkpoint@v{DEEPEST} " in text for text in lines(tree))


def test_what_is_too_deep_is_refused(tmp_path: Path) -> None:
    made = Workspace.create(tmp_path / "w", "")
    checkpoint(Store.open(made.store_dir), tmp_path / "c", "one")
    asked = ["lineage", "checkpoint@v1", "-w", str(made.root), "--depth"]
    assert (run([*asked, str(DEEPEST)]), run([*asked, str(DEEPEST + 1)])) == (0, 2)


def test_whose_help_names_runs_takes_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`lineage` and `anchor` refused what their help offered."""
    made = Workspace.create(tmp_path / "w", "")
    store = Store.open(made.store_dir)
    run_id = checkpoint(store, tmp_path / "c", "one").run_id
    for name, takes in (("show", True), ("lineage", False), ("anchor", False)):
        assert run([name, "--help"]) == 0
        assert ("run or deployment id" in " ".join(capsys.readouterr().out.split())) is takes
        reason = ["--reason", "why"] if name == "anchor" else []
        assert (run([name, run_id, "-w", str(made.root), *reason]) == 0) is takes
        capsys.readouterr()
