"""What `rtrl cycle` and `rtrl demo` print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from rtrl_cli.commands import cycle, distill
from rtrl_cli.commands.demo import _next
from rtrl_cli.demo_view import LiveView, PlainView
from stages.cycle import run as cycle_run
from stages.cycle.stub import StubStage, chain
from stages.demo.figures import NAMES
from stages.errors import DependencyDownError, IntegrityError
from stages.registry.store import Store
from stages.stage import Output
from stages.workspace import Workspace


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> dict[str, StubStage]:
    found = chain()
    monkeypatch.setattr(cycle_run, "load_stages", lambda *_: found)
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    workspace = Workspace.create(tmp_path / "w", "")
    store = Store.open(workspace.store_dir)
    (tmp_path / "seed").mkdir()
    (tmp_path / "seed" / "weights").write_text("seed")
    made = store.publish_external(
        {"checkpoint": (Output("checkpoint", {"parent": None}), tmp_path / "seed")}, line="auto"
    )
    store.move_alias("auto", "live", made["checkpoint"].digest, reason="test")
    return workspace.root


def test_a_table_for_people(
    root: Path, stages: dict[str, StubStage], capsys: pytest.CaptureFixture[str]
) -> None:
    cycle.command(workspace=root)
    shown = capsys.readouterr()
    assert [line.split()[0] for line in shown.out.splitlines()[2:]] == list(stages)
    assert "interactions@v1" in shown.out
    assert "train: succeeded in" in shown.err


@pytest.mark.usefixtures("quietly")
def test_the_run_that_failed_is_named(
    root: Path, stages: dict[str, StubStage], capsys: pytest.CaptureFixture[str]
) -> None:
    """What `rtrl show` and `--from-run` want next (docs/cycle.md) was in the document of --json alone."""

    def fail() -> None:
        raise IntegrityError("on-policy proof failed", hint="look at it")

    stages["train"].before = fail
    with pytest.raises(typer.Exit):
        cycle.command(workspace=root)
    shown = capsys.readouterr()
    stage, status, run_id = (shown.out.splitlines()[-1].split()[at] for at in (0, 1, 4))
    assert (stage, status) == ("train", "failed")
    assert Store.open(root / "store").run(run_id).state == "failed"
    assert shown.err == "error: on-policy proof failed\nhint: look at it\n"


@pytest.mark.usefixtures("quietly")
def test_one_document_for_scripts(
    root: Path, stages: dict[str, StubStage], capsys: pytest.CaptureFixture[str]
) -> None:
    stages["eval"].verdict = "rejected"
    with pytest.raises(typer.Exit) as left:
        cycle.command(workspace=root, as_json=True)
    assert left.value.exit_code == 3
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert (document["command"], document["status"], document["error"]) == ("cycle", "rejected", None)
    assert document["stages"][-1]["command"] == "eval"
    assert shown.err == ""


def test_alarms_are_told_before_anything_is_trained(
    root: Path,
    stages: dict[str, StubStage],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They were after the whole cycle: hours later, and not at all where it was killed."""
    order: list[str] = []

    def tell(*_: object) -> list[str]:
        order.append("told")
        return ["the webhook is away"]

    monkeypatch.setattr(distill, "tell_alarms", tell)
    stages["distill"].before = lambda: order.append("distill")
    stages["train"].before = lambda: order.append("train")
    cycle.command(workspace=root, as_json=True)
    assert order == ["distill", "told", "train", "told"]
    assert json.loads(capsys.readouterr().out)["warnings"] == ["the webhook is away"]


def test_a_failure_says_what_to_do(
    root: Path, stages: dict[str, StubStage], capsys: pytest.CaptureFixture[str]
) -> None:
    def down() -> None:
        raise DependencyDownError("nothing is being served", hint="start `rtrl serve`")

    stages["deploy"].before = down
    with pytest.raises(typer.Exit) as left:
        cycle.command(workspace=root)
    assert left.value.exit_code == 13
    shown = capsys.readouterr()
    assert "error: nothing is being served\nhint: start `rtrl serve`" in shown.err
    cycle.command(workspace=root, dry_run=True)
    assert "at deploy" in capsys.readouterr().out
    cycle.command(workspace=root, dry_run=True, fresh=True)
    assert capsys.readouterr().out.startswith("begins at collect")


def test_the_table_of_shares(
    root: Path, stages: dict[str, StubStage], capsys: pytest.CaptureFixture[str]
) -> None:
    cycle.command(workspace=root, dry_run=True, deadline="100m")
    text = capsys.readouterr().out
    assert text.startswith("begins at collect")
    assert "train" in text
    assert "70.0 min" in text
    assert stages["collect"].runs == 0


ROW = {
    "cycle": 1,
    "served": "checkpoint@v1",
    "verdict": "pass",
    "figures": {name: {"value": 0.5, "low": 0.4, "high": 0.6} for name in NAMES},
}


def test_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    view = PlainView(4)
    view.phase(1, "train")
    view.cycle_done(ROW)
    text = capsys.readouterr().err
    assert "cycle 1 of 4: train" in text
    assert "0.500 (0.400-0.600)" in text


def test_live_picture() -> None:
    from rich.console import Console

    view = LiveView(4)
    try:
        view.phase(2, "eval")
        view.start("harness", 10)
        view.advance(3)
        view.message("a note")
        view.cycle_done(ROW)
        console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
        console.print(view._picture())
        text = console.export_text()
    finally:
        view.close()
    assert "cycle 2 of 4: eval" in text
    assert "0.500 (0.400-0.600)" in text
    assert "3/10" in text


def test_what_next_names_commands_that_exist() -> None:
    from rtrl_cli.lazy import TABLE

    for line in _next(Path("demo"))[2:]:
        assert line.split()[1] in TABLE
