"""What is asked of the gateway before Typer is loaded: only for command lines that Typer reads alike."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rtrl_cli import early
from rtrl_cli.commands import deploy, rollback
from rtrl_cli.main import run
from stages.rollback import first
from stages.target import light

PLAIN = [
    "deploy",
    "deploy --json -w there --input checkpoint@v3",
    "deploy --input=checkpoint@v3 --override --reason why --force",
    "deploy --reason --json",
    "rollback",
    "rollback -q --workspace=there --reason= --lock-timeout 2.5",
    "rollback --json --force -w there --lock-timeout=0",
    "rollback --line acme --to=checkpoint@v1",
]
OTHERS = [
    "",
    "status",
    "deploy --offline",
    "deploy --canary 0.1",
    "deploy --promote",
    "deploy --dry-run",
    "deploy --line acme",
    "deploy --set deploy.canary_share=0.1",
    "deploy --from-run r",
    "deploy --input a --input b",
    "deploy -h",
    "deploy --json=yes",
    "rollback --to checkpoint@v1 --to checkpoint@v2",
    "rollback --input checkpoint@v1",
    "rollback --offline",
    "rollback --override",
    "rollback -w a --workspace b",
    "rollback -wthere",
    "rollback --reason",
    "rollback --line=",
    "rollback --to=",
    "rollback --workspace=",
    "deploy --input=",
    "rollback --lock-timeout -1",
    "rollback --lock-timeout soon",
    "rollback now",
]


@pytest.mark.parametrize("line", PLAIN)
def test_what_is_asked_early_is_what_typer_reads(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    asked: dict[str, Any] = {}
    seen: dict[str, Any] = {}

    def stage_ahead(folder: Path | None, ref: str, *, override: bool) -> None:
        asked.update(workspace=folder, inputs=[ref] if ref else [], override=override)

    def begin(folder: Path | None, reason: str, lock_timeout: float | None, to: str, line: str) -> None:
        asked.update(workspace=folder, reason=reason, lock_timeout=lock_timeout, inputs=[to] if to else [])
        asked["overrides"] = [f"workspace.line={line}"] if line else []

    def run_command(_: str, flags: Any, **changes: Any) -> None:
        known = {"workspace": flags.workspace, "inputs": list(flags.inputs), **changes}
        seen.update(known, lock_timeout=flags.lock_timeout, overrides=list(flags.overrides))

    monkeypatch.setattr(light, "stage_ahead", stage_ahead)
    monkeypatch.setattr(first, "begin", begin)
    for module in (deploy, rollback):
        monkeypatch.setattr(module, "run_command", run_command)
    assert run(line.split()) == 0
    assert asked
    assert {name: seen[name] for name in asked} == asked
    assert (seen["overrides"], seen["offline"]) == (asked.get("overrides", []), False)


@pytest.mark.parametrize("line", OTHERS)
def test_everything_else_is_left_to_the_stage(line: str) -> None:
    assert early.plain(line.split()) is None


def test_what_was_moved_reaches_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    class Moved:
        lock = object()

    class Begun:
        moved, asked = Moved, "d7"

    told: list[Any] = []
    monkeypatch.setattr(first, "begin", lambda *_: Begun)
    monkeypatch.setattr(rollback, "run_command", lambda _, flags, **more: told.append((flags, more)))
    assert run(["rollback"]) == 0
    ((flags, more),) = told
    assert (flags.lock, more["moved"], more["asked"]) == (Moved.lock, Moved, "d7")


def test_it_needs_neither_typer_nor_pydantic() -> None:
    code = """
import sys, types
from rtrl_cli import main
import stages.rollback.first, stages.target.light
sys.exit(sorted({"typer", "pydantic", "httpx", "sqlmodel", "numpy"} & set(sys.modules)) or 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_a_deploy_loads_before_it_asks_leaves_the_slow_libraries_out() -> None:
    code = """
import sys
import rtrl_cli.app, rtrl_cli.commands.deploy
import stages.config, stages.delta.file, stages.deploy.run, stages.registry.rebuilt, stages.runner
sys.exit(sorted({"httpx", "numpy", "rich", "torch"} & set(sys.modules)) or 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_command_loads_a_second_of_statistics_before_it_computes_some() -> None:
    """`from scipy import stats` at the top of a module was two fifths of the start of `rtrl collect`."""
    code = """
import sys
import stages.collect.run, stages.distill.run, stages.report.build, stages.ab.look, stages.monitor.standing
sys.exit(sorted({"scipy.stats", "scipy.optimize", "torch", "transformers"} & set(sys.modules)) or 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
