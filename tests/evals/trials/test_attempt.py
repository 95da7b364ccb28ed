"""Models that misbehave, each in its own way: every trial ends, with the right cause and grade."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cursorbench.errors import UsageError
from cursorbench.graders.efficiency import Price
from cursorbench.harness.agent import AgentConfig
from cursorbench.harness.budget import Budget
from cursorbench.harness.driver import Endpoint
from cursorbench.harness.task_tools import ToolSettings
from cursorbench.tasks import environment as environments
from evals.trials.attempt import Job, Setting, attempt, lacks_quality, measured
from evals.trials.record import Record
from tests.cursorbench.suites import make_suite
from tests.evals.trials.scripted import Scripted, serving


@pytest.fixture(scope="module")
def server() -> Iterator[Scripted]:
    with serving() as found:
        yield found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a suite, which the sandbox's user can read."""
    folder = tmp_path_factory.mktemp("trials")
    for place in (folder, folder.parent):
        place.chmod(0o755)
    make_suite(folder / "suite")
    return folder


def job(home: Path, server: Scripted, model: str, **changes: object) -> Job:
    budget = Budget(turns=3, wall_s=250.0)
    setting = Setting(
        Endpoint(server.url, model=model, answer_s=0.2 if model == "slow" else 100.0, patience_s=0.3),
        AgentConfig(budget=budget, tools=ToolSettings(command_s=100.0)),
        home / "cache",
        home / "out",
        quality=False,
        prices={"*": Price(1.0, 2.0)},
    )
    task = home / "suite" / "tasks" / "word-debug"
    return Job(replace(setting, **changes), task, 0, f"{model:0<64}", "words/counting", "word-debug")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "cause", "passed", "reason"),
    [
        ("solver", "solved", True, ""),
        ("failer", "failed", False, "failed"),
        ("forger", "failed", False, "failed"),
        ("silent", "no_answer", False, "failed"),
        ("asker", "failed", False, "failed"),
        ("looper", "max_turns", False, "failed"),
        ("flooder", "output_flood", False, "failed"),
        ("hoarder", "too_large", False, "failed"),
        ("breaker", "broken_call", False, "failed"),
        ("long", "truncated", False, "failed"),
        ("full", "context_full", False, "failed"),
        ("422", "refused_request", False, "failed"),
        ("short", "context_full", False, "failed"),  # at the first request of this task, not of all
        ("picky", "refused_request", False, "failed"),
        ("404", "engine_down", None, None),  # the model was unloaded
        ("409", "engine_down", None, None),
        ("529", "engine_down", None, None),
        ("proxy", "engine_down", None, None),  # 404 of what stands before a server that starts again
        ("down", "engine_down", None, None),
        ("slow", "engine_timeout", None, None),
    ],
)
def test_every_trial_ends_with_its_cause(
    home: Path, server: Scripted, model: str, cause: str, passed: bool | None, reason: str | None
) -> None:
    found = attempt(job(home, server, model))
    assert (found.cause, found.passed) == (cause, passed), found.detail
    assert found.correctness.get("reason") == reason
    assert found.infrastructure is (passed is None)
    assert found.tries == (2 if passed is None else 1)


def test_what_a_trial_says_of_itself(home: Path, server: Scripted) -> None:
    found = attempt(job(home, server, "solver", quality=True))
    assert (found.did, found.right, found.stop) == ("acted", True, "answered")
    assert (found.usage.calls, found.usage.tool_calls, found.usage.tokens) == (2, 1, 220)
    assert found.cost == pytest.approx((200 * 1.0 + 20 * 2.0) / 1e6)
    assert found.quality["size_ratio"] == 1.0
    assert found.quality["lint"] == found.quality["types"] == 0
    assert "text.split()" in found.diff
    assert found.correctness["challenged"] >= 1
    assert math.isfinite(found.seconds)
    told = json.loads((home / "out" / "trajectories" / "so" / f"{found.key}.json").read_text())
    assert told["schema_version"].startswith("ATIF-")
    assert told["trajectory_id"] == found.key
    assert [step["source"] for step in told["steps"]] == ["system", "user", "agent", "agent"]


def test_quality_of_a_trial_that_was_made_without_it(home: Path, server: Scripted) -> None:
    found = attempt(job(home, server, "solver"))
    asked = job(home, server, "solver", quality=True)
    assert (found.quality, lacks_quality(asked.setting, found)) == ({}, True)
    now = measured((asked, found))
    assert (now.quality["size_ratio"], now.quality["lint"], now.quality["types"]) == (1.0, 0, 0)
    assert not lacks_quality(asked.setting, now)
    assert now.diff == found.diff
    assert not lacks_quality(asked.setting, attempt(job(home, server, "silent"))), "it changed nothing"


def test_who_asks_where_all_is_said_is_wrong(home: Path, server: Scripted) -> None:
    found = attempt(job(home, server, "asker"))
    assert (found.did, found.right, found.diff) == ("asked", False, "")


def test_a_forger_is_flagged(home: Path, server: Scripted) -> None:
    found = attempt(job(home, server, "forger"))
    assert "deciding" in found.correctness["flags"]
    assert found.correctness["restored"] == ("conftest.py",)


ASKS = """\
import json, os, sys, time
from urllib.request import Request, urlopen

told = {"model": "asker", "messages": [{"role": "user", "content": "go"}]}
headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
urlopen(Request(url, json.dumps(told).encode(), headers)).read()
"""


def test_an_outside_agent_that_fails_has_no_second_try(home: Path, server: Scripted) -> None:
    """A model can end the agent that runs its commands: it did, and was tried again where tests failed."""
    command = shlex.join(["python3", "-c", f"{ASKS}sys.exit(3)"])
    before = server.asked["asker"]
    found = attempt(job(home, server, "asker", command=command))
    assert (found.cause, found.passed, found.tries) == ("agent_failed", False, 1), found.detail
    assert server.asked["asker"] == before + 1


def test_an_outside_agent_whose_first_request_is_too_long(home: Path, server: Scripted) -> None:
    """Nobody's infrastructure: one such task in a hundred voided the run, whoever was tried."""
    command = shlex.join(["python3", "-c", ASKS])  # ends with 1 where its request is refused
    found = attempt(job(home, server, "short", command=command))
    assert (found.cause, found.passed, found.tries) == ("context_full", False, 1), found.detail


def test_an_outside_agent_of_the_machines_python(
    home: Path, server: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installed for it, as in a container of one program, an agent could be run; its packages are covered."""
    found = attempt(job(home, server, "asker", command="echo log in first"))
    assert (found.cause, found.passed) == ("agent_unstarted", None), "it was the model's zero"
    assert found.detail == "status 0: log in first"
    command = shlex.join(["python3", "-c", "import not_in_this_task"])
    found = attempt(job(home, server, "asker", command=command))
    assert (found.cause, "--agent-venv" in found.detail) == ("agent_unstarted", False)
    real = environments.open
    monkeypatch.setattr(environments, "open", lambda *given: replace(real(*given), covered=["/nowhere"]))
    found = attempt(job(home, server, "asker", command=command))
    assert found.detail.endswith("give the agent a --agent-venv)")


def test_an_outside_agents_cpu_time_is_its_budgets(
    home: Path, server: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its command is one of the sandbox's, and had the CPU time of one: ten minutes for all that it ran."""
    real = environments.limits
    monkeypatch.setattr(environments, "limits", lambda task: replace(real(task), cpu_s=1.0))
    works = f"{ASKS}while time.process_time() < 2.5: pass"
    command = shlex.join(["python3", "-c", works])
    found = attempt(job(home, server, "asker", command=command))
    assert (found.stop, found.usage.calls) == ("answered", 1), found.detail


@pytest.mark.parametrize("model", ["locked", "other", "narrow"])
def test_what_the_user_has_to_mend_ends_the_run(home: Path, server: Scripted, model: str) -> None:
    with pytest.raises(UsageError):
        attempt(job(home, server, model))
    if model == "locked":  # agents of others try again, for as long as they have
        again = f"while True:\n try:\n  {ASKS.replace(chr(10), chr(10) + '  ')}\n except OSError: pass"
        with pytest.raises(UsageError, match="refuses the key"):
            attempt(job(home, server, model, command=shlex.join(["python3", "-c", again])))


def test_a_record_is_plain_data(home: Path, server: Scripted) -> None:
    import msgspec

    found = attempt(job(home, server, "silent"))
    assert msgspec.json.decode(msgspec.json.encode(found), type=Record).cause == found.cause
