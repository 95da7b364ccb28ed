"""The chaos script: a short real run, and a judge that sees what it is there to see."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import psutil
import pytest

from stages.gateway.stub_script import logprob
from stages.gateway.stub_weights import salt_of
from stages.records import Span
from stages.spool import SpoolWriter
from stages.vault import Vault
from tests.stages.serving.conftest import StubWorld
from tests.stages.spool.spool_records import generation, tokens

ROOT = Path(__file__).resolve().parents[2]
IDS = [72, 105, 33]


@pytest.mark.timeout(600)
def test_faults_under_load(tmp_path: Path) -> None:
    wanted = ("engine-killed", "gateway-killed")
    command = [
        sys.executable,
        str(ROOT / "scripts" / "chaos.py"),
        "--json",
        "--rate",
        "15",
        "--seconds",
        "400",  # both faults have to begin by then; it ends when they are over
        "--folder",
        str(tmp_path),
    ]
    for name in wanted:
        command += ["--fault", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=550)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["problems"] == []
    figures = {each["id"]: each for each in found["figures"]}
    assert figures["chaos.faults"]["value"] == 2
    assert (figures["chaos.lost"]["value"], figures["chaos.misattributed"]["value"]) == (0, 0)
    assert figures["chaos.lost"]["accepted"] > 20
    assert figures["chaos.misattributed"]["recorded"] >= figures["chaos.lost"]["accepted"]
    rows = {row["fault"]: row for row in found["faults"]}
    assert set(rows) == set(wanted)
    assert rows["engine-killed"]["503"] > 0, "while the engine was dead"
    assert rows["gateway-killed"]["unreachable"] > 0, "while nobody listened"
    assert all(row["converged_s"] != [None] for row in rows.values())
    assert not [
        p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or ())
    ]


@pytest.fixture(scope="module")
def verdict() -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT / "scripts"))
    from chaosing import verdict

    yield verdict
    sys.path.remove(str(ROOT / "scripts"))


class World(StubWorld):
    """What the judge looks at, with records as a test wants them."""

    engine, holdback = "stub", 0.0

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.folder, self.path = root, root / "ws"
        self.checkpoints = {"first": self.first, "second": self.second}
        self.vault = Vault.open(self.workspace.keys_dir)
        self.writer = SpoolWriter(self.workspace.spool_dir, self.vault)
        self.asked: list[Any] = []

    def record(self, gid: str, *, under: str, by: str, text: str = "Hi!", **fields: Any) -> None:
        """A generation sampled by checkpoint `by` and recorded under `under`."""
        salt = salt_of(self.checkpoints[by].path)
        spans = (Span(0, len(IDS), self.checkpoints[under].digest),)
        made = generation(gid, spans=spans, session=f"s-{gid}", **fields)
        self.vault.ensure([made.user])
        values = [logprob(index, token, salt) for index, token in enumerate(IDS)]
        self.writer.append_generation(made, tokens([1, 2], IDS, values), "words", text)

    def answered(self, gid: str, *, by: str = "first", outcome: str = "complete", **fields: Any) -> None:
        """What the client has of it."""
        from chaosing.records import Asked

        salt = salt_of(self.checkpoints[by].path)
        about: dict[str, Any] = {
            "user": "ada", "stream": True, "request": "words", "due": 1.0, "sent": 1.0, "ended": 2.0,
            "id": gid, "answer": "Hi!", "ids": IDS, "outcome": outcome,
            "fingerprint": self.checkpoints[by].digest.removeprefix("sha256:")[:16],
            "logprobs": [logprob(index, token, salt) for index, token in enumerate(IDS)],
        }  # fmt: skip
        self.asked.append(Asked(**(about | fields)))

    def judged(self, verdict: ModuleType, opened: Any = ()) -> Any:
        self.writer.close()
        self.vault.close()
        book = SimpleNamespace(asked=self.asked, told={}, rejected=[])
        return verdict.judge(self, book, opened)


def test_what_was_kept_is_fine(tmp_path: Path, verdict: ModuleType) -> None:
    world = World(tmp_path)
    world.record("a", under="first", by="first")
    world.answered("a")
    world.record("b", under="second", by="second", finish_reason="error", text="Hi! and more")
    world.answered("b", by="second", outcome="told", code="engine_lost", ids=IDS[:2], answer="Hi")
    world.answered("c", outcome="told", code="capture_unavailable")
    world.answered("d", outcome="cut")
    found = world.judged(verdict)
    assert (found.accepted, found.recorded, found.problems) == (2, 2, [])


def test_what_is_lost_or_changed_or_twice_is_seen(tmp_path: Path, verdict: ModuleType) -> None:
    world = World(tmp_path)
    world.answered("gone")
    world.answered("cut-gone", outcome="told", code="engine_lost")
    world.record("changed", under="first", by="first", text="Ho!")
    world.answered("changed")
    world.record("twice", under="first", by="first")
    world.record("twice", under="first", by="first")
    world.answered("twice")
    assert world.judged(verdict).lost == {"gone", "cut-gone", "changed", "twice"}


def test_wrong_weights_are_heard(tmp_path: Path, verdict: ModuleType) -> None:
    world = World(tmp_path)
    world.record("wrong", under="second", by="first")
    world.record("right", under="second", by="second")
    world.record("told-wrong", under="second", by="second")
    world.answered("told-wrong", by="first")
    found = world.judged(verdict)
    assert found.misattributed == {"wrong", "told-wrong"}


def test_a_user_who_changes_arms_is_seen(tmp_path: Path, verdict: ModuleType) -> None:
    from stages.gateway.arms import assigned

    world = World(tmp_path)
    made = world.store.deployments.create("auto", world.second.digest, by="test", reason="test")
    world.store.deployments.transition(made.id, "staged", "verifying")
    made = world.store.deployments.transition(made.id, "verifying", "canary", canary={"share": 0.5})
    users = [f"user-{number}" for number in range(20)]
    for user in users:
        by = "second" if assigned(user, made.salt, 0.5) else "first"
        arm = {"arm": "canary", "deployment": made.id} if by == "second" else {}
        world.record(f"g-{user}", under=by, by=by, user=user, **arm)
        world.answered(f"g-{user}", by=by, user=user)
    chosen = next(user for user in users if assigned(user, made.salt, 0.5))
    world.record("fallen", under="first", by="first", user=chosen)
    world.answered("fallen", user=chosen)
    from chaosing.arena import Open

    found = world.judged(verdict, [Open(made.id, 0.5, 3.0)])
    assert len(found.unsticky) == 1
    assert chosen in found.unsticky[0]
