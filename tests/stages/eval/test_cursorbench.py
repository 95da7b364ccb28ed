"""A suite of tasks in `rtrl eval`: tried by both arms, kept in the report, reused only for the same tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from cursorbench.errors import SandboxError
from stages.errors import InputMissingError, UsageError
from stages.eval import suites
from stages.eval.attempts import file_name, read
from stages.runner import run_stage
from tests.cursorbench.suites import CHANGES, make_suite
from tests.stages.eval.bench import Bench, under

SUITE = ['eval.suites=["cursorbench:../words"]']


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    for place in (tmp_path, tmp_path.parent):
        place.chmod(0o755)
    make_suite(tmp_path / "words", CHANGES[:2])
    return Bench(tmp_path)


def test_both_arms_try_the_tasks(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(bench.root))  # the cache of environments
    candidate = bench.checkpoint(0.0, 0.1, parent=bench.live.digest)
    result = bench.eval(SUITE, candidate=candidate.digest)
    report = result.outputs["report"]
    assert result.status in ("succeeded", "inconclusive")
    config = bench.workspace.with_overrides(SUITE).settings.eval
    spec = suites.cursorbench_suite(config.suites[0], config, bench.workspace.root).spec
    for role in ("candidate", "baseline"):
        tried = read(report.path / file_name(spec.name, role), spec)
        assert [one.case for one in tried] == ["word-debug", "word-feature"]
        assert [one.failure for one in tried] == ["", ""], "nothing was lost"
        assert {one.cluster for one in tried} == {"words/counting", "words/top"}
        assert all(one.values["solved"] == (0.0, 1.0) for one in tried)


def test_other_tasks_are_other_conditions(bench: Bench) -> None:
    here = bench.workspace.with_overrides(SUITE)
    before = under(here)
    assert under(here) == before
    (bench.root / "more").mkdir()
    make_suite(bench.root / "more" / "words", CHANGES[1:])
    moved = bench.workspace.with_overrides(['eval.suites=["cursorbench:../more/words"]'])
    assert under(moved) != before
    tests = next((bench.root / "words" / "tasks" / "word-debug" / "tests" / "files").rglob("*.py"))
    tests.write_text(tests.read_text() + "\n# another test\n")
    assert under(here) != before


def test_two_suites_of_one_name_are_told_apart_for_whoever_mends_it(bench: Bench) -> None:
    """As two builds of one repository have: "names a suite twice" was all that was said."""
    (bench.root / "more").mkdir()
    make_suite(bench.root / "more" / "words", CHANGES[1:])
    both = ['eval.suites=["cursorbench:../words", "cursorbench:../more/words"]']
    with pytest.raises(UsageError, match="names a suite twice") as caught:
        bench.eval(both)
    assert "'cursorbench:../words' and 'cursorbench:../more/words' are both called" in caught.value.message
    assert "suite.toml" in caught.value.hint


def test_another_interpreter_is_other_conditions(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """No task's digest knows which Python its tests run in: attempts under an older one were reused."""
    here = bench.workspace.with_overrides(SUITE)
    before = under(here)
    monkeypatch.setattr("cursorbench.tasks.environment.of_machine", lambda kind, python: f"{kind} {python}.1")
    now = under(here)
    assert now != before
    monkeypatch.setattr("cursorbench.tasks.environment.of_machine", lambda kind, python: f"{kind} {python}.2")
    assert under(here) not in (now, before)


def test_a_suite_that_is_not_there(bench: Bench) -> None:
    nowhere = bench.workspace.with_overrides(['eval.suites=["cursorbench:../nowhere"]'])
    with pytest.raises(InputMissingError, match=r"suite\.toml"):
        under(nowhere)


def test_tasks_that_cannot_be_tried_here_are_told_before_anything_runs(bench: Bench) -> None:
    """Each was an attempt that the infrastructure lost: inconclusive, after a training, without a why."""
    bench.checkpoint(0.0, 0.1, parent=bench.live.digest)
    settings = next((bench.root / "words" / "tasks" / "word-feature").glob("task.toml"))
    text = settings.read_text()
    assert 'kind = "host"' in text
    settings.write_text(text.replace('kind = "host"', 'kind = "docker"'))
    with pytest.raises(SandboxError, match="word-feature needs Docker") as caught:
        run_stage(bench.workspace.with_overrides(SUITE), bench.store, bench.stage, dry_run=True)
    assert caught.value.code == 13
