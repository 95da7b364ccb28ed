"""What is made, found, reused and given up, by trials made in this process; one real run that is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cursorbench.errors import DependencyDownError, SandboxError, UsageError
from cursorbench.graders.efficiency import Price, Usage
from cursorbench.harness.agent import AgentConfig
from cursorbench.harness.driver import Endpoint
from cursorbench.tasks.suite import Suite
from evals.trials import attempt as trials
from evals.trials import run as runner
from evals.trials.attempt import Job, Setting
from evals.trials.conditions import Conditions
from evals.trials.plan import Plan
from evals.trials.record import Folder, Record
from evals.trials.run import run
from evals.trials.workers import Lost, Raised
from tests.cursorbench.suites import make_suite
from tests.evals.trials.scripted import serving

CONDITIONS = Conditions("sha256:h", "sha256:e", "sha256:s", "sha256:g")
Make = Callable[[Job], Any]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    return make_suite(tmp_path_factory.mktemp("run") / "suite")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Callable[[Make], list[str]]:
    """Trials are made in this process by the given function; returns the list of those asked for."""

    def place(make: Make) -> list[str]:
        asked: list[str] = []

        def ran(_: object, jobs: list[Job], *__: object) -> Iterator[tuple[int, Any]]:
            for number, job in enumerate(jobs):
                asked.append(f"{job.name}#{job.attempt}")
                yield number, make(job)

        monkeypatch.setattr(runner.workers, "run", ran)
        return asked

    return place


def record(job: Job, cause: str = "solved") -> Record:
    passed = None if cause.endswith(("died", "down")) else cause == "solved"
    return Record(
        key=job.key, task=job.name, cluster=job.cluster, attempt=job.attempt, cause=cause, passed=passed
    )


def plan(suite: Suite, out: Path, **changes: Any) -> Plan:
    setting = Setting(Endpoint("http://127.0.0.1:1/v1", model="m"), AgentConfig(), out / "env", out)
    return replace(Plan(suite.tasks, 2, setting, CONDITIONS), **changes)


def test_the_same_run_again_makes_nothing(suite: Suite, tmp_path: Path, here: Any) -> None:
    asked = here(record)
    first = run(plan(suite, tmp_path))
    assert (first.made, first.resumed) == (6, 0)
    assert asked[:3] == [f"{task.name}#0" for task in suite.tasks]  # every task before any a second time
    again = run(plan(suite, tmp_path))
    assert (again.made, again.resumed) == (0, 6)
    assert len(asked) == 6
    more = run(plan(suite, tmp_path, attempts=3))
    assert (more.made, more.resumed) == (3, 6)


def test_two_runs_at_once_tell_the_same(suite: Suite, tmp_path: Path, here: Any) -> None:
    """Of one that was started twice each told of its own trials, and the folder had some of either."""

    def make(job: Job) -> Record:
        if not job.attempt:  # the other run has made this one meanwhile, and it went otherwise
            Folder(tmp_path).write(record(job, "failed"))
        return record(job)

    here(make)
    found = run(plan(suite, tmp_path))
    assert [one.cause for one in found.records] == ["failed", "solved"] * 3
    assert [one.cause for one in run(plan(suite, tmp_path)).records] == ["failed", "solved"] * 3


def test_other_conditions_are_other_trials(suite: Suite, tmp_path: Path, here: Any) -> None:
    here(record)
    run(plan(suite, tmp_path))
    assert run(plan(suite, tmp_path, conditions=replace(CONDITIONS, engine="sha256:f"))).made == 6


def test_what_infrastructure_took_is_made_again_the_next_time(
    suite: Suite, tmp_path: Path, here: Any
) -> None:
    here(lambda job: record(job, "sandbox_died" if job.attempt else "failed"))
    first = run(plan(suite, tmp_path))
    assert first.summary.infrastructure == 3
    assert "3 of 6" in first.summary.void
    assert [note.partition(": ")[2] for note in first.notes] == ["3 as sandbox_died: "], (
        "what a user can mend"
    )
    here(record)
    again = run(plan(suite, tmp_path))
    assert (again.made, again.resumed, again.summary.void) == (3, 3, "")


def test_a_worker_that_dies_is_given_another_try(suite: Suite, tmp_path: Path, here: Any) -> None:
    seen: set[str] = set()

    def make(job: Job) -> Any:
        if job.key in seen:
            return record(job)
        seen.add(job.key)
        return Lost("died") if job.attempt == 0 else Lost("hung")

    here(make)
    found = run(plan(suite, tmp_path))
    assert found.summary.causes == {"solved": 3, "worker_hung": 3}


def test_a_bug_in_a_trial_is_no_zero(suite: Suite, tmp_path: Path, here: Any) -> None:
    here(lambda job: Raised(RuntimeError("bug"), "Traceback: bug"))
    found = run(plan(suite, tmp_path, attempts=1))
    assert found.summary.causes == {"grader_died": 3}
    assert {one.passed for one in found.records} == {None}
    assert {one.tries for one in found.records} == {3}


def test_what_the_user_mends_ends_the_run_and_keeps_what_there_is(
    suite: Suite, tmp_path: Path, here: Any
) -> None:
    here(lambda job: record(job) if job.name == "word-debug" else Raised(UsageError("the key"), ""))
    with pytest.raises(UsageError, match="the key"):
        run(plan(suite, tmp_path))
    assert len(list(Folder(tmp_path).names())) == 1


def test_nobody_waits_for_an_engine_that_is_down(suite: Suite, tmp_path: Path, here: Any) -> None:
    asked = here(lambda job: record(job, "engine_down"))
    with pytest.raises(DependencyDownError, match="in a row"):
        run(plan(suite, tmp_path, attempts=20))
    assert len(asked) == runner.GIVE_UP


def test_a_cache_gives_what_agrees(suite: Suite, tmp_path: Path, here: Any) -> None:
    cache = tmp_path / "cache"
    here(record)
    run(plan(suite, tmp_path / "one", cache=cache))
    asked = here(record)
    found = run(plan(suite, tmp_path / "two", cache=cache))
    assert (found.reused, found.made, len(asked)) == (6, 0, 6)  # a tenth of six is one, which proves nothing
    assert found.notes[0].startswith("6 trials from the cache, 6 made again agree")
    assert run(plan(suite, tmp_path / "two", cache=cache)).resumed == 6


def test_a_cache_that_does_not_agree_is_not_used(
    suite: Suite, tmp_path: Path, here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    here(record)
    run(plan(suite, tmp_path / "one", cache=cache))
    monkeypatch.setattr(runner, "disagreement", lambda again, stored, spec: 1e-6)
    asked = here(lambda job: record(job, "failed"))
    found = run(plan(suite, tmp_path / "two", cache=cache))
    assert (found.reused, found.made, len(asked)) == (0, 6, 6)
    assert found.summary.causes == {"failed": 6}
    assert "none is reused" in found.notes[0]


def test_a_cache_that_cannot_be_checked_is_not_used(suite: Suite, tmp_path: Path, here: Any) -> None:
    cache = tmp_path / "cache"
    here(record)
    run(plan(suite, tmp_path / "one", cache=cache))
    here(lambda job: record(job, "engine_down"))
    found = run(plan(suite, tmp_path / "two", cache=cache))
    assert (found.reused, found.summary.infrastructure) == (0, 6)
    assert found.notes[0] == ("0 trials of the cache could be made again, and 6 have to be: none is reused")


def test_a_cache_of_few_trials_is_not_used(suite: Suite, tmp_path: Path, here: Any) -> None:
    """One of its three was made again, and whatever came of it, they agreed."""
    cache = tmp_path / "cache"
    here(record)
    run(plan(suite, tmp_path / "one", cache=cache, attempts=1))
    asked = here(lambda job: record(job, "failed"))
    found = run(plan(suite, tmp_path / "two", cache=cache, attempts=1))
    assert (found.reused, found.made, len(asked)) == (0, 3, 3)
    assert found.summary.causes == {"failed": 3}


def test_a_check_that_infrastructure_took_is_made_again(suite: Suite, tmp_path: Path, here: Any) -> None:
    """It was kept as the check's result: none was reused, and every later run stayed void."""
    cache = tmp_path / "cache"
    here(record)
    run(plan(suite, tmp_path / "one", cache=cache))
    here(lambda job: record(job, "engine_down"))
    assert run(plan(suite, tmp_path / "two", cache=cache)).summary.void
    asked = here(record)
    found = run(plan(suite, tmp_path / "two", cache=cache))
    assert (found.reused, found.made, len(asked)) == (6, 0, 6)  # one, before a check had to be of six
    assert found.summary.void == ""


def figure(found: runner.Ran, name: str) -> float | None:
    return next((one.estimate.value for one in found.summary.figures if one.name == name), None)


def test_prices_are_of_the_run_that_sums_up(suite: Suite, tmp_path: Path, here: Any) -> None:
    """Cost came from the table a trial was made with: later none was shown, or two tables were one mean."""
    used = Usage(prompt_tokens=1_000_000, output_tokens=1_000_000)
    here(lambda job: msgspec.structs.replace(record(job), usage=used))
    wanted = plan(suite, tmp_path, attempts=1)
    assert figure(run(wanted), "cost") is None
    for number, table in enumerate(({"m": Price(1.0, 2.0)}, {"*": Price(3.0, 4.0)}, {}), 1):
        priced = replace(wanted, attempts=number, setting=replace(wanted.setting, prices=table))
        found = run(priced)
        assert found.resumed == 3 * max(number - 1, 1)
        assert figure(found, "cost") == {1: 3.0, 2: 7.0, 3: None}[number]
        assert {one.cost for one in found.records} == {figure(found, "cost")}


def test_quality_that_is_asked_for_later_is_measured(
    suite: Suite, tmp_path: Path, here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials made with --no-quality had none ever after, and nobody was told."""
    here(lambda job: msgspec.structs.replace(record(job), diff="diff", diff_cut=job.name == "word-debug"))
    cheap = plan(suite, tmp_path, attempts=1)
    cheap = replace(cheap, setting=replace(cheap.setting, quality=False))
    run(cheap)
    asked: list[str] = []

    def ran(function: object, items: list[Any], *_: object) -> Iterator[tuple[int, Any]]:
        for number, item in enumerate(items):
            assert function is trials.measured
            job, known = item
            asked.append(job.name)
            if job.name == "word-feature":
                yield number, msgspec.structs.replace(known, quality={"lint": 2})
            else:
                yield number, Raised(SandboxError("died"), "")

    monkeypatch.setattr(runner.workers, "run", ran)
    wanted = replace(cheap, setting=replace(cheap.setting, quality=True), cache=tmp_path / "cache")
    found = run(wanted)
    assert (found.made, found.resumed, figure(found, "lint_added")) == (0, 3, 2.0)
    assert found.notes == ["2 trials were made without quality, and it could not be measured"]
    run(wanted)
    assert asked == ["word-feature", "word-refactor", "word-refactor"]
    assert figure(run(cheap), "lint_added") is None


SCRIPT = """
import os
import signal
import sys
from pathlib import Path
from cursorbench.harness.agent import AgentConfig
from cursorbench.harness.driver import Endpoint
from cursorbench.tasks.suite import Suite
from evals.trials.attempt import Setting
from evals.trials.conditions import Conditions
from evals.trials.plan import Plan
from evals.trials.run import run

if __name__ == "__main__":
    home, url = Path(sys.argv[1]), sys.argv[2]
    endpoint, out = Endpoint(url, model="silent"), home / "out"
    setting = Setting(endpoint, AgentConfig(), home / "cache", out, quality=False)
    plan = Plan(Suite.open(home / "suite").tasks, 1, setting, Conditions("h", "e", "s", "g"))
    if len(sys.argv) > 3:
        def advance(n, note):
            if n:
                os.kill(os.getpid(), signal.SIGKILL)
        run(plan, advance)
    found = run(plan)
    print("made", found.made, "resumed", found.resumed, found.summary.causes)
"""


def test_a_run_that_is_killed_goes_on(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path.parent):
        place.chmod(0o755)
    make_suite(tmp_path / "suite")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with serving() as server:
        command = [sys.executable, str(script), str(tmp_path), server.url]
        killed = subprocess.run([*command, "killed"], check=False).returncode
        assert (killed, len(list(Folder(tmp_path / "out").names()))) == (-signal.SIGKILL, 1)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "made 2 resumed 1 {'no_answer': 3}" in done.stdout, done.stderr
