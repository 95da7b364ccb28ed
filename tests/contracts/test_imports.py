"""What may import what: layers, and nothing heavy for a help text."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "vllm", "transformers", "polars", "pyarrow", "numpy", "sqlmodel", "sqlalchemy", "pydantic")
SHOW = """
import sys
from rtrl_cli.main import run
code = run(sys.argv[1:])
print(code, *(name for name in {heavy} if name in sys.modules), file=sys.stderr)
"""


def loaded(*arguments: str) -> list[str]:
    code = SHOW.format(heavy=HEAVY)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("Usage: rtrl")
    return done.stderr.split()


def test_help_loads_nothing_heavy() -> None:
    assert loaded("--help") == ["0"]


@pytest.mark.parametrize("command", ["train", "eval", "serve", "init", "status", "cycle", "demo"])
def test_the_help_of_a_command_loads_no_model_code(command: str) -> None:
    assert not {"torch", "vllm", "transformers", "polars"} & set(loaded(command, "--help"))


def test_status_needs_no_orm(tmp_path: Path) -> None:
    """Its time is the interpreter's and SQLite's; the ORM alone would take most of what it may take."""
    from stages.workspace import Workspace

    Workspace.create(tmp_path / "w", "")
    code = SHOW.format(heavy=HEAVY)
    command = [sys.executable, "-c", code, "status", "-w", str(tmp_path / "w")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert set(done.stderr.split()) <= {"0", "pydantic"}  # Typer converts arguments with pydantic


def test_layers_hold() -> None:
    """import-linter's contracts of pyproject.toml."""
    script = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([str(script), "--no-cache"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_types_of_all_code_are_checked() -> None:
    """scripts/chaosing was in no list: `mypy` passed whatever stood there."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    scripts = {path.parent.name for path in (ROOT / "scripts").glob("*/*.py")}
    assert (
        set(settings["tool"]["mypy"]["packages"]) == {"rtrl_cli", "stages", "evals", "cursorbench"} | scripts
    )


def test_importing_everything_does_nothing(tmp_path: Path) -> None:
    """No module makes a file, prints, or starts a thread when imported (the heavy stages' apart)."""
    code = """
import importlib, pkgutil, threading
import cursorbench, evals, rtrl_cli, stages
for package in (cursorbench, rtrl_cli):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(found.name)
for name in ("config", "faults", "locks", "runner", "records", "workspace", "registry.store", "registry.gc"):
    importlib.import_module("stages." + name)
assert threading.active_count() == 1, threading.enumerate()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []
