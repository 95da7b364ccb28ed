"""`rtrl bench power` as people call it."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cursorbench.errors import RtrlError
from rtrl_cli.app import app
from tests.cursorbench.suites import make_suite
from tests.stages.eval.bench import STEADY, Bench

QUICK = ["--worlds", "100"]


def run(*arguments: str) -> tuple[str, int]:
    result = CliRunner().invoke(app, ["bench", "power", *arguments, *QUICK])
    if isinstance(result.exception, RtrlError):
        raise result.exception
    return result.stdout, result.exit_code


def test_a_suite_that_is_planned(tmp_path: Path) -> None:
    picture = tmp_path / "power.svg"
    out, code = run("--tasks", "60", "--attempts", "4", "--plot", str(picture))
    assert code == 0
    assert "planned: 60 tasks in 60 clusters, 4 attempts, margin 0.05" in out
    assert "to pass an identical model 90 times in 100" in out
    assert picture.read_text().startswith("<?xml")


def test_the_document() -> None:
    found = json.loads(run("--tasks", "40", "--clusters", "8", "--margin", "0.2", "--json")[0])
    assert (found["schema"], found["command"], found["status"]) == ("rtrl/1", "bench power", "succeeded")
    metrics = found["metrics"]
    assert (metrics["tasks"], metrics["clusters"], metrics["margin"]) == (40, 8, 0.2)
    assert [one["suites"] for one in metrics["studies"]] == [1, 4]
    assert metrics["studies"][0]["identical_pass"]["value"] > metrics["studies"][1]["identical_pass"]["value"]


def test_more_tasks_are_tasks_of_more_clusters(tmp_path: Path) -> None:
    """A suite of one repository's single file is one cluster: 557 tasks would do, it said."""
    suite = make_suite(tmp_path / "words")
    for task in suite.tasks:
        config = task.folder / "task.toml"
        config.write_text(re.sub(r'(?m)^cluster = ".*"', 'cluster = "one"', config.read_text()))
    said = re.search(r"90 times in 100 +(\d+) tasks of (\d+) clusters", run(str(suite.path))[0])
    assert said is not None
    assert int(said[2]) == math.ceil(int(said[1]) / 3)
    shown = CliRunner().invoke(app, ["bench", "show", str(suite.path)]).stdout
    assert "1: one 3; by one alone the gate decides nothing" in shown


def test_a_report_as_pilot(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.checkpoint(0.1, 0.2001, bench.live.digest)
    bench.eval(STEADY)
    where = ["--baseline-from", "report@latest", "-w", str(bench.workspace.root)]
    found = json.loads(run(*where, "--of", "harness.invalid_calls", "--json")[0])["metrics"]
    assert (found["tasks"], found["attempts"], found["margin"]) == (240, 1, 0.2)
    assert 30 < found["clusters"] <= 40
    with pytest.raises(RtrlError, match="has no harness"):
        run(*where, "--of", "harness.nope")


def test_a_suite_in_hand(tmp_path: Path) -> None:
    make_suite(tmp_path / "words")
    out, code = run(str(tmp_path / "words"), "--attempts", "16")
    assert code == 0
    assert "words: 3 tasks in 2 clusters, 16 attempts, margin 0.05" in out


def test_one_source(tmp_path: Path) -> None:
    with pytest.raises(RtrlError, match="one of SUITE"):
        run("--tasks", "40", "--baseline-from", "report@latest")
    with pytest.raises(RtrlError, match="one of SUITE"):
        run()
    with pytest.raises(RtrlError, match="not there"):
        run(str(tmp_path))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--of harness.edit_persistence", "--of is a metric of a report"),
        ("--clusters 41", "40 tasks make no 41 clusters"),
        ("--plot power.gif", "power.gif is no picture"),
    ],
)
def test_what_would_be_dropped_or_fail_after_all_worlds_is_refused(
    flags: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evals.studies.study", lambda *_, **__: pytest.fail("began to simulate"))
    with pytest.raises(RtrlError, match=message):
        run("--tasks", "40", *flags.split())


def test_a_margin_is_a_share() -> None:
    """`--margin 5`, meant as points, let every model pass: 100 % of the identical ones."""
    assert run("--tasks", "40", "--margin", "5")[1] == 2


@pytest.mark.parametrize("effect", ["--heterogeneity", "--cluster-effect"])
def test_effects_beyond_all_tasks_are_refused(effect: str) -> None:
    """They were a bug: no shift of the logits gave the loss that was asked for."""
    for value in ("50", "inf"):
        assert run("--tasks", "8", "--clusters", "4", effect, value)[1] == 2
