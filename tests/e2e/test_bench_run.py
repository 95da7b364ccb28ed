"""`rtrl bench run` as a user runs it: mini-swe-agent, unchanged, through the real gateway, by --agent."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cursorbench.errors import SandboxError
from cursorbench.sandbox.docker import Docker
from tests import processes
from tests.cursorbench.suites import CHANGES, make_suite
from tests.evals.trials.scripted import serving, written
from tests.stages.gateway.rig import Rig, running

MINI = (
    "mini -m openai/{model} -y --exit-immediately -o /tmp/trajectory.json"
    " -c mini.yaml -c agent.instance_template={{task}} -t {instruction}"
)


def bench(home: Path, url: str, *more: str, key: str = "") -> tuple[int, dict[str, Any], str]:
    """Exit status, document and messages of one run."""
    command = ("bench", "run", str(home / "suite"), "--base-url", url)
    more = ("--out", str(home / "out"), "--environments", str(home / "cache"), "--json", *more)
    environment = {"RTRL_API_KEY": key, "HOME": str(home)}
    done = processes.rtrl(*command, *more, env=environment, timeout=600)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for place in (tmp_path, tmp_path.parent):
        place.chmod(0o755)
    return tmp_path


# what a person types: the programs lie wherever they were installed
CLAUDE_CODE = (
    "env CLAUDE_CODE_MAX_OUTPUT_TOKENS=4000 {program} -p --dangerously-skip-permissions {{instruction}}"
)
CODEX = (
    "{program} exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox -m {{model}}"
    ' -c model_provider=rtrl -c \'model_providers.rtrl={{name="rtrl",base_url="{{base_url}}",'
    'env_key="OPENAI_API_KEY",wire_api="responses"}}\' {{instruction}}'
)


@pytest.mark.parametrize(
    ("variable", "command", "call"),
    [
        ("RTRL_CLAUDE_CODE", CLAUDE_CODE, 'Bash {"command": %s, "description": "x"}'),
        ("RTRL_CODEX", CODEX, 'exec_command {"cmd": %s}'),
    ],
)
def test_agents_of_other_apis_solve_a_task(home: Path, variable: str, command: str, call: str) -> None:
    """Claude Code asks by Messages, Codex by Responses; the stub engine says what each of them is to do."""
    program = os.environ.get(variable, "")
    if not program:
        pytest.skip(f"{variable} names no program")
    feature = next(change for change in CHANGES if change.name == "word-feature")
    make_suite(home / "suite", (feature,))
    solution = f"stub:call {call % json.dumps(written(dict(feature.sources)))}"

    async def both() -> Any:
        async with running(home / "gateway") as rig:

            async def spoken() -> None:
                rig.stub.words = solution
                while len(rig.stub.requests) < 2:  # the first one asks which weights answer
                    await asyncio.sleep(0.005)
                rig.stub.words = "stub:say It is done."

            saying = asyncio.create_task(spoken())
            line = command.format(program=shlex.quote(program))
            run = partial(bench, home, f"{rig.url}/v1", "--agent", line, key=rig.key)
            found = await asyncio.to_thread(run, "--budget", "turns=6", "--budget", "wall_s=120")
            saying.cancel()
            return found, rig.generations()

    (status, document, said), recorded = asyncio.run(both())
    assert status == 0, said
    (row,) = document["metrics"]["results"]
    assert (row["cause"], row["passed"], row["calls"]) == ("solved", True, 2), (row, said)
    kept = json.loads((home / "out" / "trials" / row["key"][:2] / f"{row['key']}.json").read_text())
    assert kept["generations"] == [one.id for one in recorded[1:-1]]
    assert (kept["usage"]["counted"], kept["usage"]["invalid_calls"]) == (True, 0)


def test_mini_swe_agent_through_the_gateway(home: Path) -> None:
    """The stub engine lets the first call write the solution and the second hand it in."""
    feature = next(change for change in CHANGES if change.name == "word-feature")
    script = (
        "if [ -e /tmp/seen ]; then echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT;"
        f" else touch /tmp/seen; {written(dict(feature.sources))}; fi"
    )
    words = f"stub:call bash {json.dumps({'command': script})}"
    make_suite(home / "suite", (replace(feature, instruction=words),))

    def run(rig: Rig) -> tuple[int, dict[str, Any], str]:
        return bench(home, f"{rig.url}/v1", "--agent", MINI, "--budget", "turns=6", key=rig.key)

    async def both() -> Any:
        async with running(home / "gateway") as rig:
            return await asyncio.to_thread(run, rig), rig.generations()

    (status, document, said), recorded = asyncio.run(both())
    assert status == 0, said
    (row,) = document["metrics"]["results"]
    assert (row["cause"], row["passed"], row["calls"]) == ("solved", True, 2), said
    assert len(recorded) == 4, "before and after it is asked which weights answer"
    recorded = recorded[1:-1]
    assert len({one.episode for one in recorded}) == 1
    kept = json.loads((home / "out" / "trials" / row["key"][:2] / f"{row['key']}.json").read_text())
    assert kept["generations"] == [one.id for one in recorded]


def test_a_run_that_nothing_can_be_said_of(home: Path) -> None:
    make_suite(home / "suite", CHANGES[:1])
    with serving() as server:
        status, document, said = bench(home, server.url, "--model", "silent", "--no-quality")
        assert (status, document["status"]) == (0, "succeeded"), said
        assert document["metrics"]["causes"] == {"no_answer": 1}
        assert document["metrics"]["axes"]["correctness"]["pass@1"]["value"] == 0.0
        again, document, _ = bench(home, server.url, "--model", "silent", "--no-quality")
        assert (again, document["metrics"]["made"], document["metrics"]["resumed"]) == (0, 0, 1)
        status, document, said = bench(home, server.url, "--model", "locked")
        assert (status, document["error"]["kind"]) == (2, "usage")


@pytest.mark.parametrize(("model", "cause"), [("solver", "solved"), ("failer", "failed"), ("forger", "")])
def test_in_containers(home: Path, model: str, cause: str) -> None:
    """Our agent and the graders in a Docker engine's sandboxes; skipped where there is none."""
    pytest.importorskip("docker")
    try:
        Docker()
    except SandboxError as error:
        pytest.skip(f"{error.message[:80]}: {error.hint}")
    make_suite(home / "suite", CHANGES[:1])
    with serving() as server:
        status, document, said = bench(home, server.url, "--model", model, "--sandbox", "docker")
    assert status == 0, said
    (row,) = document["metrics"]["results"]
    assert row["passed"] == (model == "solver"), (row, said)
    assert cause in row["cause"], row
