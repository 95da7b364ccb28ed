"""What can be wrong with a request is found before the first trial; equal requests have equal digests."""

from __future__ import annotations

import math
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cursorbench.errors import DependencyDownError, InputMissingError, RtrlError, UsageError
from cursorbench.harness.agent import AgentConfig
from cursorbench.harness.budget import Budget
from cursorbench.harness.driver import Driver
from cursorbench.harness.installed import alone, of_modules
from cursorbench.tasks.suite import Suite
from evals.trials import conditions
from evals.trials.plan import Plan, deployed_meanwhile, jobs_of, limit_s
from evals.trials.planning import Asked, plan, with_budget
from tests.cursorbench.suites import make_suite

NOWHERE = "http://127.0.0.1:1/v1"


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    return make_suite(tmp_path_factory.mktemp("plan") / "words")


def planned(_suite: Suite, **changes: Any) -> Plan:
    return plan(replace(Asked(changes.pop("suite", _suite.path), NOWHERE, model="m"), **changes))[1]


def test_a_request_becomes_a_plan(suite: Suite) -> None:
    found = planned(suite, attempts=2, budget=("turns=7", "wall_s=90"), temperature=0.5, max_tokens=99)
    assert [task.name for task in found.tasks] == ["word-debug", "word-feature", "word-refactor"]
    agent = found.setting.agent
    assert (agent.budget.turns, agent.budget.wall_s) == (7, 90.0)
    assert (agent.temperature, agent.max_tokens) == (0.5, 99)
    assert found.setting.out == Path("trials/words-m").resolve()
    assert len({job.key for job in jobs_of(found)}) == 6
    assert [task.name for task in planned(suite, names=("word-feature",)).tasks] == ["word-feature"]
    assert [task.name for task in planned(suite, split="dev").tasks] == ["word-refactor"]


def test_no_model_is_taken_for_hung_by_slow_tests(suite: Suite) -> None:
    """A diff that reaches for the runner is run 4 times with canaries and 4 times with a challenge."""
    found = planned(suite, budget=("wall_s=60",))
    slow = replace(found.tasks[0], verifier_timeout_s=3000.0)
    worst = 60 + 8 * 3000.0 + 4 * 120  # the agent, its tests, ruff and mypy before and after
    assert limit_s(slow, found.setting) > worst


def test_new_weights_behind_the_same_name_are_another_engine(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a deployment the old model's trials were reported as the new one's."""
    served = ["one"]
    monkeypatch.setattr(Driver, "weights", lambda _: served[0])
    before = planned(suite)
    assert planned(suite).conditions == before.conditions
    assert deployed_meanwhile(before) == []
    served[0] = "two"
    assert planned(suite).conditions.differing(before.conditions) == ["engine"]
    assert "two" in deployed_meanwhile(before)[0]
    named = planned(suite, checkpoint="checkpoint@v3")
    assert (named.weights, deployed_meanwhile(named)) == ("", [])


def test_what_decides_a_trial_is_in_its_digest(suite: Suite) -> None:
    base = planned(suite).conditions
    assert planned(suite, jobs=9, attempts=3).conditions == base
    assert planned(suite, budget=("turns=3",)).conditions.differing(base) == ["harness"]
    assert planned(suite, summary_at=9000).conditions.differing(base) == ["harness"]
    assert planned(suite, command="mini -t x").conditions.differing(base) == ["harness"]
    assert planned(suite, model="n").conditions.differing(base) == ["engine"]
    assert planned(suite, base_url="http://127.0.0.1:2/v1").conditions.differing(base) == ["engine"]
    known = planned(suite, checkpoint="checkpoint@v3").conditions
    assert known.differing(base) == ["engine"]
    moved = planned(suite, checkpoint="checkpoint@v3", base_url="http://127.0.0.1:2/v1").conditions
    assert moved == known, "where a known checkpoint is served does not matter"


def test_an_agent_installed_anew_is_another_harness(tmp_path: Path) -> None:
    """Only names and versions were looked at: `pip install .` again mixed old trials with new."""
    installed = tmp_path / "lib" / "python3.11" / "site-packages" / "mini-1.0.dist-info"
    installed.mkdir(parents=True)
    found = [conditions.harness(AgentConfig(), "mini", tmp_path)]
    for name, text in (
        ("RECORD", "mini.py,sha256=abc,10\n"),
        ("RECORD", "mini.py,sha256=xyz,10\n"),
        ("direct_url.json", '{"url": "file:///a"}'),
        ("direct_url.json", '{"url": "file:///b"}'),
    ):
        (installed / name).write_text(text)
        found.append(conditions.harness(AgentConfig(), "mini", tmp_path))
    assert len(set(found)) == 5
    assert conditions.harness(AgentConfig(), "mini", tmp_path) == found[-1]


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"budget": ("turns",)}, UsageError, "--budget turns"),
        ({"budget": ("turns=0",)}, UsageError, "turns=0"),
        ({"budget": ("speed=3",)}, UsageError, "speed"),
        ({"cache": Path("c")}, UsageError, "--checkpoint"),
        ({"names": ("nothing",)}, InputMissingError, "nothing"),
        ({"split": "dev", "names": ("word-debug",)}, UsageError, "no task"),
        ({"command": 'mini "'}, UsageError, "read"),
        ({"prices": Path("no.toml")}, InputMissingError, "price table"),
        ({"rubric": Path("no.toml")}, InputMissingError, "rubric"),
        ({"command": "agent x", "venv": Path("/nowhere")}, InputMissingError, "--agent-venv /nowhere"),
        ({"command": "no-agent x", "venv": Path(sys.prefix)}, UsageError, "no program no-agent"),
        ({"backend": "none"}, UsageError, "none"),
        ({"suite": Path("/nowhere")}, InputMissingError, "suite.toml"),
    ],
)
def test_what_is_wrong_is_said_at_once(
    suite: Suite, changes: dict[str, Any], error: type[RtrlError], words: str
) -> None:
    with pytest.raises(error, match=words):
        planned(suite, **changes)


def test_a_model_without_a_name_is_the_first_one_served(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evals.trials.planning.FIRST_ANSWER_S", 0.1)
    with pytest.raises(DependencyDownError):
        planned(suite, model="")


def test_an_outside_agents_environment_is_found_by_its_command(suite: Suite) -> None:
    beside = Path(sys.executable).parent
    program = next(path.name for path in sorted(beside.iterdir()) if path.name.startswith("mini"))
    found = planned(suite, command=f"{shlex.quote(str(beside / program))} -t {{instruction}}").setting
    assert (found.venv, found.command) == (beside.parent.resolve(), f"{program} -t '{{instruction}}'")
    assert planned(suite, command=f"{program} -t x").setting.venv == beside.parent.resolve()
    assert planned(suite, command="an-agent-that-is-in-the-task -t x").setting.venv is None


def test_an_outside_agent_s_program_may_lie_anywhere(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claude Code is one file, and lies deep in the environment of its Python package."""
    native = Path("/bin/true").read_bytes()
    venv = tmp_path / "venv"
    deep = venv / "lib" / "python3.11" / "site-packages" / "sdk" / "bundled" / "agent"
    only, link = tmp_path / "versions" / "2.1.3", tmp_path / "bin" / "agent-x"
    modules = tmp_path / "lib" / "node_modules"
    script, npm = modules / "@x" / "cli.js", tmp_path / "bin" / "agent-n"
    for path in (
        deep,
        only,
        link.parent / "python3.12",
        link.parent / "scripted",
        script,
        link.parent / "node",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"#!/bin/sh\n" if path.name in ("scripted", "cli.js") else native)
        path.chmod(0o755)
    (venv / "pyvenv.cfg").touch()
    link.symlink_to(only)
    npm.symlink_to(script)
    monkeypatch.setenv("PATH", str(link.parent), prepend=os.pathsep)
    for command, inside, home in (
        (f"{deep} -p x", f"{deep.relative_to(venv)} -p x", venv),
        ("env A=1 B=2 agent-x -p x", "env A=1 B=2 agent-x -p x", only),
        ("python3.12 agent.py", "python3.12 agent.py", None),
        ("scripted x", "scripted x", None),
        ("agent-n -p x", "@x/cli.js -p x", modules),
        ("env agent=agent-x", "env agent=agent-x", None),
        ("true x", "true x", None),
    ):
        found = planned(suite, command=command).setting
        assert (found.command, found.venv) == (inside, home), command
    node = of_modules(modules)
    there = f"/run/rtrl-agent/node_modules/{script.relative_to(modules)}"
    assert node.words("@x/cli.js") == ["/run/rtrl-program/node", there]
    assert (node.words("sh"), set(node.mounts.values())) == (["sh"], {modules, link.parent / "node"})
    names = ("agent-x", "sh", "agent-n", "no-agent")
    there = "/run/rtrl-program/2.1.3"
    assert [alone(only).place(name) for name in names] == [there, "sh", "agent-n", there]
    harness = planned(suite, command="agent-n -p x").conditions
    script.write_text("#!/bin/sh\n# changed")
    assert planned(suite, command="agent-n -p x").conditions.differing(harness) == ["harness"]
    newer = tmp_path / "newer" / "agent-x"  # than the one that is found by its name
    newer.parent.mkdir()
    newer.symlink_to(deep)
    monkeypatch.setattr("evals.trials.planning.installed.home_of", lambda _: deep)
    assert planned(suite, command=f"{newer} x").setting.command == "agent x"


def test_budgets() -> None:
    changed = with_budget(Budget(), ["output_tokens=5", "tool_calls=2"])
    assert (changed.output_tokens, changed.tool_calls, changed.wall_s) == (5.0, 2.0, math.inf)


@pytest.mark.parametrize("turns", ["inf", "0.5", "nan", "0", "-1", "2.5"])
def test_turns_are_whole(turns: str) -> None:
    """Half a turn was none: no call was made, and every trial ended as going round in circles."""
    with pytest.raises(UsageError, match="is none"):
        with_budget(Budget(), [f"turns={turns}"])
    assert with_budget(Budget(), ["turns=2e1", "wall_s=inf"]).turns == 20
