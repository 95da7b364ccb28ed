"""`rtrl demo`, small: a real engine, real users over HTTP, one cycle, and the same command again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stages.registry.store import Store
from stages.workspace import Workspace
from tests import processes

ENVIRONMENT = {
    "RTRL_EVAL__REQUESTS": "24",
    "RTRL_EVAL__LM_EVAL_LIMIT": "6",
    "NO_COLOR": "1",
}
SMALL = ("--users", "24", "--requests", "120", "--replay", "24", "--seed", "5")


def demo(folder: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    command = ("demo", "--dir", str(folder), "--json", *SMALL, *arguments)
    done = processes.rtrl(*command, env=ENVIRONMENT, timeout=500)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def status(folder: Path) -> dict[str, Any]:
    done = processes.rtrl("status", "-w", str(folder), "--json", timeout=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["metrics"]
    return found


def runs_of(folder: Path) -> list[str]:
    return [run.id for run in Store.open(Workspace.find(folder).store_dir).runs(limit=1000)]


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_one_cycle_and_then_nothing_to_do(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    code, document, said = demo(folder, "--cycles", "1")
    assert code == 0, said
    row = document["metrics"]["cycles"][0]
    assert row["verdict"] in ("pass", "regressed", "inconclusive")
    assert row["figures"]["dissatisfied_followup"]["cases"] > 60
    final = document["metrics"]["final"]
    assert final["requests"] == 24
    assert set(final["figures"]) >= {"edit_persistence", "dissatisfied_followup", "invalid_calls"}
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")
    told, runs = status(folder), runs_of(folder)
    assert told["reports"]["demo"]["final"] == final
    assert not told["serving"] or not told["serving"]["alive"], "the demo's server was left behind"

    code, again, said = demo(folder, "--cycles", "1")
    assert code == 0, said
    assert again["metrics"]["cycles"] == document["metrics"]["cycles"]
    assert again["metrics"]["final"] == final
    assert runs_of(folder) == runs, "nothing is made again"

    code, _, said = demo(folder, "--cycles", "1", "--seed", "6")
    assert code == 2
    assert "has seed 5" in said
