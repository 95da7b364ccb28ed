"""`rtrl bench run` as a user runs it: mini-swe-agent, unchanged, through the real gateway, by --agent."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
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
