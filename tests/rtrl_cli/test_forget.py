"""`rtrl forget` as a person and a script see it; what it does is in tests/stages/test_forget.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import processes
from tests.stages.forget_world import used
from tests.stages.world import World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("forget"))
    used(world)
    yield world
    world.close()


def rtrl(world: World, *arguments: str) -> tuple[int, str, str]:
    root: Path = world.workspace.root
    done = processes.rtrl(*arguments, "-w", str(root), timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_from_an_unknown_name_to_a_forgotten_user(world: World) -> None:
    code, out, _ = rtrl(world, "forget", "evee", "--json")
    error = json.loads(out)["error"]
    assert (code, error["code"], error["kind"]) == (5, 5, "unknown_user")
    assert "'eve'" in error["hint"]

    code, out, said = rtrl(world, "forget", "eve", "--dry-run")
    assert code == 0
    assert "keys to destroy" in out
    assert "nothing was changed" in said

    code, out, said = rtrl(world, "forget", "eve", "--reason", "asked to")
    assert (code, "eve is forgotten" in said) == (0, True)
    held = ("interactions@v1", "checkpoint@v2", "checkpoint@v3")
    for line in ("keys destroyed", "not forgotten, alike", *held):
        assert line in out
    assert "live" in next(row for row in out.splitlines() if row.startswith("checkpoint@v3"))

    code, out, said = rtrl(world, "forget", "eve", "--json")
    document = json.loads(out)
    assert (code, document["status"], document["metrics"]["destroyed"]) == (0, "noop", 0)
    assert document["metrics"]["before"][0]["forgotten"].startswith("20")
    assert [one["episodes"] for one in document["metrics"]["holdings"]["checkpoints"]] == [3, 0]
    assert "was forgotten on 20" in said

    code, out, _ = rtrl(world, "verify", "--full", "--json")
    assert (code, json.loads(out)["metrics"]["problems"]) == (0, [])
