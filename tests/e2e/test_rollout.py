"""The whole story with real vLLM engines: a good candidate is promoted from its canary, a bad one is rolled
back by itself, a third one is rolled back by hand, and `rtrl lineage` tells it.

The users are scripted: what they keep of an answer depends on the checkpoint that gave it. How stub engines
go through the same, with every look, is in `tests/stages/ab/test_story.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from stages.served_fingerprint import write_fingerprint
from stages.stage import Artifact
from stages.workspace import SETTINGS_FILE
from tests import processes, salted
from tests.e2e.conftest import World
from tests.e2e.tiny import nudge_checkpoint

pytestmark = pytest.mark.vllm

T0, HOUR = 1_770_000_000, 3600
USERS = 60
EVEN = "even-446"  # draws 30 of them, and of those the same share keeps its edits
AB = """
[collect]
clock = "events"
[ab]
min_users = 15
planned_users = 100
[ab.margins]
latency = 5.0        # of a busy machine: it says nothing here
invalid_calls = 0.2  # few users: what none showed, some may still
[ab.harm]
latency = 5.0
"""


@pytest.fixture
def rollout(served: World) -> Iterator[World]:
    """The served workspace with settings for few users. `first` is live before and after."""
    file = served.workspace.root / SETTINGS_FILE
    before = file.read_text()
    file.write_text(before + AB)
    yield served
    rtrl(served, "rollback", "--to", served.first.digest)
    file.write_text(before)


def rtrl(world: World, *arguments: str, salt: str = "") -> tuple[int, dict[str, Any]]:
    arguments = (*arguments, "-w", str(world.workspace.root), "--json")
    done = salted.rtrl(salt, *arguments) if salt else processes.rtrl(*arguments)
    return done.returncode, json.loads(done.stdout)


def child_of(world: World, parent: Artifact, name: str, seed: int) -> Artifact:
    """A checkpoint that was made from `parent`, and passed against it."""
    folder = nudge_checkpoint(world.root / "second", world.root / name, seed=seed, step=0.05)
    write_fingerprint(folder, parent=world.root / "second")
    child = world.publish(folder, parent)
    world.report(child, parent)
    return child


def use(world: World, hour: int, kept_by: dict[str, float]) -> None:
    """Every user asks once; of the edit, the share told for the checkpoint that answered stays."""
    headers = world.headers

    def one(number: int) -> None:
        asked = T0 + hour * HOUR + number
        answer = client.post(
            "/chat/completions",
            json={
                "model": "rtrl",
                "max_tokens": 4,
                "messages": [{"role": "user", "content": f"step {hour}"}],
            },
            headers={"X-Rtrl-User": f"person-{number}", "X-Rtrl-At": str(asked)},
        )
        assert answer.status_code == 200, answer.text
        kept = 10 if (number % 10) / 10 < kept_by[answer.json()["system_fingerprint"]] else 0
        lines = "".join(f"line number {index} of it\n" for index in range(10))
        left = {"path": "a.py", "horizon_s": HOUR, "added": 10, "added_kept": kept}
        rows = [
            ("edit_applied", asked + 1, {"path": "a.py", "before": "", "after": lines}),
            ("edit_survival", asked + 1 + HOUR, {**left, "deleted": 0, "deleted_kept": 0}),
        ]
        generation = answer.headers["x-rtrl-generation-id"]
        events = [
            {
                "id": f"{kind}-{generation}",
                "generation_id": generation,
                "type": kind,
                "at": at,
                "data": data,
            }
            for kind, at, data in rows
        ]
        taken = client.post("/events", json={"events": events})
        assert taken.json()["accepted"] == 2, taken.text

    with httpx.Client(base_url=world.url, headers=headers, timeout=60) as client:
        with ThreadPoolExecutor(8) as people:
            list(people.map(one, range(USERS)))
        later = str(T0 + (hour + 3) * HOUR)  # the clock of the events goes on: what was asked is mature
        answer = client.post(
            "/completions",
            json={"model": "rtrl", "prompt": "x", "max_tokens": 1},
            headers={"X-Rtrl-User": "clock", "X-Rtrl-No-Train": "1", "X-Rtrl-At": later},
        )
        assert answer.status_code == 200, answer.text


def short(artifact: Artifact) -> str:
    return artifact.digest.removeprefix("sha256:")[:16]


def live(world: World) -> str:
    found = world.store.alias("auto", "live")
    assert found is not None
    return found.digest


def test_good_bad_and_taken_back_by_hand(rollout: World) -> None:
    served = rollout
    good = served.second
    code, told = rtrl(served, "deploy", "--input", good.digest, "--canary", "0.5", salt=EVEN)
    assert code == 0, told
    use(served, 0, {short(served.first): 0.5, short(good): 0.9})
    code, told = rtrl(served, "ab", "--decide", "--set", "ab.horizon_s=0.001")
    assert code == 0, told
    assert live(served) == good.digest

    bad = child_of(served, good, "bad", 3)
    code, told = rtrl(served, "deploy", "--input", bad.digest, "--canary", "0.5", salt=EVEN)
    assert code == 0, told
    use(served, 10, {short(good): 0.9, short(bad): 0.1})
    code, told = rtrl(served, "ab", "--decide")
    assert (code, told["error"]["code"]) == (14, 14), str(told["error"])
    assert live(served) == good.digest

    third = child_of(served, good, "third", 4)
    code, told = rtrl(served, "deploy", "--input", third.digest)
    assert code == 0, told
    assert live(served) == third.digest
    code, told = rtrl(served, "rollback", "--reason", "a user called")
    assert code == 0, told
    assert live(served) == good.digest

    code, told = rtrl(served, "lineage", "checkpoint@live")
    assert code == 0, told
    tree = told["metrics"]["lineage"]
    assert tree["digest"] == good.digest
    assert tree["deployments"][0]["canary"] == 0.5
    assert tree["deployments"][-1]["state"] == "live"
    ends = {
        each["digest"]: [(one["state"], one["ended"]) for one in each["deployments"]]
        for each in tree["children"]
    }
    ((state, why),) = ends[bad.digest]
    assert state == "rolled_back"
    assert "edit_persistence" in why
    assert ends[third.digest] == [("rolled_back", "a user called")]
