"""What `rtrl show` says of a checkpoint's weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rtrl_cli.app import app
from stages.errors import UsageError
from stages.registry.store import Store
from stages.workspace import Workspace
from tests.stages.registry.test_rebuilt import WEIGHTS, publish


def test_a_delta_names_its_base_and_on_request_a_whole_folder(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "w", "")
    store = Store.open(workspace.store_dir)
    first = publish(store, tmp_path / "made", 0, None)
    publish(store, tmp_path / "made", 1, first)

    def shown(ref: str, *flags: str) -> tuple[str, str | None]:
        done = CliRunner().invoke(app, ["show", ref, *flags, "--json", "-w", str(workspace.root)])
        found = json.loads(done.stdout)["metrics"]["artifact"]
        return found["weights"], found["folder"]

    assert shown("checkpoint@v1") == ("whole", str(first.path))
    assert shown("checkpoint@v2") == ("a delta to checkpoint@v1; whole in checkpoint@v1, 1 below", None)
    told = CliRunner().invoke(app, ["show", "checkpoint@v2", "-w", str(workspace.root)]).stdout
    (line,) = (one for one in told.splitlines() if one.startswith("folder"))
    assert line.split(maxsplit=1)[1] == "-  (rtrl show checkpoint@v2 --rebuild makes it)"
    folder = shown("checkpoint@v2", "--rebuild")[1]
    assert folder is not None
    assert (Path(folder) / WEIGHTS).is_file()
    assert shown("checkpoint@v2")[1] == folder


def test_only_a_checkpoint_is_rebuilt(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "w", "")
    publish(Store.open(workspace.store_dir), tmp_path / "made", 0, None)
    done = CliRunner().invoke(app, ["show", "line_state@v1", "--rebuild", "-w", str(workspace.root)])
    assert isinstance(done.exception, UsageError)
    assert "line_state@v1 is none" in done.exception.message


@pytest.mark.parametrize("name", ["train-20261130T092508-29af2b1e", "deployment-20261130T092946-acb08d31"])
def test_a_run_or_a_deployment_is_not_rebuilt(name: str, tmp_path: Path) -> None:
    """Of these the flag was dropped, and exit 0 said that it had been done."""
    workspace = Workspace.create(tmp_path / "w", "")
    done = CliRunner().invoke(app, ["show", name, "--rebuild", "-w", str(workspace.root)])
    assert isinstance(done.exception, UsageError)
    assert f"{name} is none" in done.exception.message
