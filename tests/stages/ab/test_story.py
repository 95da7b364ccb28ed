"""The whole story behind a real `rtrl serve` (stub engines): a worse candidate is taken away by itself, a
good one promoted at its horizon, a third one rolled back by hand; every look is on record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from stages.registry.looks import looks_of
from stages.serving.detach import start_detached, stop
from stages.target.canary import canary_of
from stages.workspace import Workspace
from tests import processes, salted
from tests.stages.serving.conftest import SETTINGS, StubWorld

T0, HOUR = 1_760_000_000, 3600
USERS = 80
EVEN = ("even-72", "even-1237")  # draw 40 of them, and of those the same share keeps its edits
AB = """
[collect]
clock = "events"
[ab]
min_users = 20
planned_users = 100
[ab.margins]
latency = 5.0        # of stubs on a busy machine: it says nothing here
invalid_calls = 0.2  # few users: what none showed, some may still
[ab.harm]
latency = 5.0
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StubWorld]:
    root: Path = tmp_path_factory.mktemp("ab")
    made = StubWorld(root)
    settings = SETTINGS.replace("port = 0", "port = 0\nclient_clock = true", 1) + AB
    (root / "ws" / "rtrl.toml").write_text(settings)
    made.workspace = Workspace(root / "ws")
    start_detached(made.workspace)
    yield made
    stop(made.workspace)


def rtrl(world: StubWorld, *arguments: str, salt: str = "") -> tuple[int, dict[str, Any]]:
    arguments = (*arguments, "-w", str(world.workspace.root), "--json")
    done = salted.rtrl(salt, *arguments) if salt else processes.rtrl(*arguments)
    return done.returncode, json.loads(done.stdout)


def use(world: StubWorld, hour: int, kept_by: dict[str, float]) -> None:
    """Every user asks once and gets an edit, of which the part told by the answering checkpoint stays."""
    headers = {"Authorization": f"Bearer {world.key}"}
    with httpx.Client(base_url=f"{world.endpoint.url}/v1", headers=headers, timeout=30) as client:
        for number in range(USERS):
            asked = T0 + hour * HOUR + number
            answer = client.post(
                "/chat/completions",
                json={"model": "rtrl", "messages": [{"role": "user", "content": f"step {hour}"}]},
                headers={"X-Rtrl-User": f"user-{number}", "X-Rtrl-At": str(asked)},
            )
            assert answer.status_code == 200, answer.text
            generation = answer.headers["x-rtrl-generation-id"]
            share = kept_by[answer.json()["system_fingerprint"]]
            kept = 10 if (number % 10) / 10 < share else 0
            lines = "".join(f"line number {index} of it\n" for index in range(10))
            events = [
                ("edit_applied", asked + 1, {"path": "a.py", "before": "", "after": lines}),
                (
                    "edit_survival",
                    asked + 1 + HOUR,
                    {
                        "path": "a.py", "horizon_s": HOUR,
                        "added": 10, "added_kept": kept, "deleted": 0, "deleted_kept": 0,
                    },
                ),
            ]  # fmt: skip
            rows = [
                {"id": f"{kind}-{generation}", "type": kind, "at": at, "data": data}
                | {"generation_id": generation}
                for kind, at, data in events
            ]
            taken = client.post("/events", json={"events": rows})
            assert (taken.status_code, taken.json()["accepted"]) == (200, 2), taken.text
        later = str(T0 + (hour + 3) * HOUR)  # the clock of the events goes on: what was asked is mature
        client.post(
            "/completions",
            json={"model": "rtrl", "prompt": "x"},
            headers={"X-Rtrl-User": "clock", "X-Rtrl-No-Train": "1", "X-Rtrl-At": later},
        )


def short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:16]


def told_by_lineage(world: StubWorld) -> None:
    code, told = rtrl(world, "lineage", "checkpoint@live")
    assert code == 0, told
    (child,) = (one for one in told["metrics"]["lineage"]["children"] if one["digest"] == world.second.digest)
    ended = [(one["state"], one["canary"], one["ended"] or "") for one in child["deployments"]]
    assert [(state, share) for state, share, _ in ended] == [("rolled_back", 0.5)] * 2
    assert "edit_persistence" in ended[0][2]
    assert ended[1][2] == "a user called"


def test_the_whole_story(world: StubWorld) -> None:
    first, second = short(world.first.digest), short(world.second.digest)
    code, told = rtrl(world, "ab")
    assert (code, told["error"]["code"]) == (5, 5)

    # a worse one: shown, then taken away by itself
    code, told = rtrl(world, "deploy", "--canary", "0.5", salt=EVEN[0])
    assert code == 0, told
    bad = canary_of(world.store, "auto")
    assert bad is not None
    code, told = rtrl(world, "ab")  # nobody has used it yet
    assert code == 0, told
    assert told["metrics"]["action"] == "hold"
    use(world, 0, {first: 0.9, second: 0.2})
    code, told = rtrl(world, "ab")
    assert (code, told["metrics"]["action"]) == (0, "roll_back"), told
    kept = told["metrics"]["metrics"]["edit_persistence"]
    assert kept["live"] == pytest.approx(0.9)
    assert kept["canary"] == pytest.approx(0.2)
    assert told["metrics"]["users"] == {"live": USERS // 2, "canary": USERS // 2}
    first_live = told["metrics"]["users"]["live"]
    code, told = rtrl(world, "ab", "--decide")
    assert (code, told["error"]["code"]) == (14, 14), told
    assert "edit_persistence" in told["error"]["message"]
    assert world.store.deployments.get(bad.id).state == "rolled_back"
    assert [each["action"] for each in looks_of(world.store, bad.id)] == ["hold", "roll_back", "roll_back"]

    # a good one: held before its horizon, promoted at it
    code, told = rtrl(world, "deploy", "--input", world.second.ref, "--canary", "0.5", salt=EVEN[1])
    assert code == 0, told
    use(world, 10, {first: 0.5, second: 0.9})
    code, told = rtrl(world, "ab", "--decide")
    assert (code, told["error"]["code"]) == (4, 4), told
    # the live arm of the first canary was mature before the second one opened: that is its users' past
    before = sum(told["metrics"]["past"]["edit_persistence"])
    assert before == first_live
    assert told["metrics"]["metrics"]["edit_persistence"]["variance_left"] < 1
    code, told = rtrl(world, "ab", "--decide", "--set", "ab.horizon_s=0.001")
    assert code == 0, told
    live = world.store.alias("auto", "live")
    assert live is not None
    assert live.digest == world.second.digest
    code, told = rtrl(world, "ab")
    assert (code, "was promoted" in told["error"]["message"]) == (5, True)

    # taken back by hand
    code, told = rtrl(world, "rollback", "--reason", "a user called")
    assert code == 0, told
    live = world.store.alias("auto", "live")
    assert live is not None
    assert live.digest == world.first.digest
    states = [each.state for each in world.store.deployments.history("auto")]
    assert states == ["live", "rolled_back", "rolled_back"]
    code, told = rtrl(world, "show", bad.id)
    assert code == 0, told
    looks = told["metrics"]["deployment"]["looks"]
    assert [each["action"] for each in looks] == ["hold", "roll_back", "roll_back"]
    told_by_lineage(world)
