"""Two runs beside each other: differences by hand, and when they are not to be believed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cursorbench.errors import InputMissingError, IntegrityError, UsageError
from cursorbench.graders.efficiency import Usage
from cursorbench.harness.agent import AgentConfig
from cursorbench.harness.driver import Endpoint
from cursorbench.tasks.suite import Suite
from evals.trials import run as runner
from evals.trials.against import compare, theirs
from evals.trials.attempt import Job, Setting
from evals.trials.conditions import Conditions
from evals.trials.plan import Plan
from evals.trials.record import Record
from evals.trials.run import Ran, run
from rtrl_cli.main import run as cli
from tests.cursorbench.suites import make_suite

CONDITIONS = Conditions("sha256:h", "sha256:e", "sha256:s", "sha256:g")


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    return make_suite(tmp_path_factory.mktemp("against") / "suite")


def ran(monkeypatch: pytest.MonkeyPatch, plan: Plan, solved: set[str], tokens: int, lost: int = 0) -> Ran:
    """A run that solves some tasks and loses its first trials."""

    def results(_: object, jobs: list[Job], *__: object) -> Any:
        for number, job in enumerate(jobs):
            cause = "engine_down" if number < lost else "solved" if job.name in solved else "failed"
            yield (
                number,
                Record(
                    key=job.key,
                    task=job.name,
                    cluster=job.cluster,
                    attempt=job.attempt,
                    cause=cause,
                    passed=None if number < lost else cause == "solved",
                    usage=Usage(output_tokens=tokens),
                ),
            )

    monkeypatch.setattr(runner.workers, "run", results)
    return run(plan)


def plan(suite: Suite, out: Path, **changes: Any) -> Plan:
    setting = Setting(Endpoint("http://127.0.0.1:1/v1", model="m"), AgentConfig(), out / "env", out)
    return replace(Plan(suite.tasks, 4, setting, CONDITIONS), **changes)


def test_differences_task_by_task(suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran(monkeypatch, plan(suite, tmp_path / "old"), {"word-debug"}, 100)
    mine = plan(suite, tmp_path / "new", conditions=replace(CONDITIONS, engine="sha256:f"))
    found = compare(
        mine, ran(monkeypatch, mine, {"word-debug", "word-feature"}, 70).records, tmp_path / "old"
    )
    assert (found.tasks, found.void) == (3, "")
    assert found.differences["solved"].value == pytest.approx(1 / 3)
    assert found.differences["solved"].clusters == 2
    assert found.differences["tokens"].value == pytest.approx(-30)


def test_equal_runs_may_still_differ_unseen(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(monkeypatch, plan(suite, tmp_path / "old"), {"word-debug"}, 100)
    mine = plan(suite, tmp_path / "new", conditions=replace(CONDITIONS, engine="sha256:f"))
    solved = compare(mine, ran(monkeypatch, mine, {"word-debug"}, 100).records, tmp_path / "old").differences[
        "solved"
    ]
    # in two clusters, 1 - 0.025^(1/2) of them at most, each by 1 at most: a share cannot differ by more
    assert (solved.value, solved.low, solved.high) == (
        0.0,
        pytest.approx(-0.8419, abs=1e-4),
        -(solved.low or 0),
    )


def test_an_arm_that_loses_more_is_not_compared(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(monkeypatch, plan(suite, tmp_path / "old"), set(), 100)
    mine = plan(suite, tmp_path / "new")
    found = compare(mine, ran(monkeypatch, mine, set(), 100, lost=5).records, tmp_path / "old")
    assert "5 of 12" in found.void


def test_what_cannot_be_compared_is_refused(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(monkeypatch, plan(suite, tmp_path / "old"), set(), 100)
    other = plan(suite, tmp_path / "new", conditions=replace(CONDITIONS, harness="sha256:x"))
    with pytest.raises(UsageError, match="another harness"):
        compare(other, [], tmp_path / "old")
    with pytest.raises(InputMissingError, match="finished run"):
        compare(other, [], tmp_path)
    more = make_suite(tmp_path / "other")
    with pytest.raises(InputMissingError, match="no trial"):
        compare(plan(more, tmp_path / "new"), [], tmp_path / "old")
    one = replace(
        other, tasks=(*suite.tasks[:2], more.tasks[2]), conditions=CONDITIONS
    )  # of 3 one is another
    with pytest.raises(
        InputMissingError, match=f"no trial of 1 of these 3 tasks, such as {more.tasks[2].name}"
    ):
        theirs(one, tmp_path / "old")
    (tmp_path / "old" / "summary.json").write_text("{}")
    with pytest.raises(IntegrityError):
        compare(other, [], tmp_path / "old")


def test_what_cannot_be_compared_is_said_before_the_first_trial(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evals.trials.planning.plan", lambda asked: (suite, plan(suite, tmp_path / "new")))
    monkeypatch.setattr("evals.trials.run.run", lambda *_: pytest.fail("trials were made"))
    asked = ["bench", "run", str(suite.path), "--base-url", "http://127.0.0.1:1", "--quiet"]
    assert cli([*asked, "--against", str(tmp_path / "none")]) == 5
