"""`collect --received`, and `verify`, `gc` and `forget` on what was received, as a person sees them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rtrl_cli.main import run
from stages.inbox.reader import Inbox
from stages.inbox.writer import InboxWriter, Received
from stages.init import init_bare
from stages.spool import segment
from stages.vault import Vault
from stages.workspace import Workspace
from tests.stages.gateway.spans import chat, claude, logs, traces

SAID = [
    claude("user_prompt", 1, prompt="rename it"),
    claude("assistant_response", 2, response="renamed", model="m"),
    claude("assistant_response", 2, response="renamed", model="m"),
    claude("brand_new", 3),
]


def received(workspace: Workspace) -> None:
    """Two segments: one with Claude Code's events of two people, one with a span of another tool."""
    vault = Vault.open(workspace.keys_dir)
    inbox = InboxWriter(workspace.inbox_dir, vault, segment_bytes=200, max_bytes=1 << 20)
    lines = [json.dumps(logs(one)).encode() for one in SAID]
    inbox.append([Received("k", "ada", "otel", lines)])
    inbox.append([Received("k", "eve", "otel", lines[:2])])
    inbox.append([Received("k", "eve", "otel", [json.dumps(traces(chat("a", "b"))).encode()])])
    inbox.close()
    vault.close()


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    made = init_bare(tmp_path_factory.mktemp("received") / "ws")
    received(made)
    return made


class Terminal:
    """Runs commands in this process and reads what they print."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, workspace: Workspace, *arguments: str) -> tuple[int, dict[str, Any]]:
        code = run([*arguments, "--json", "-w", str(workspace.root)], debug=False)
        return code, json.loads(self._capsys.readouterr().out)


@pytest.fixture
def rtrl(capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(capsys)


def test_from_the_first_collect_to_a_damaged_segment(
    workspace: Workspace, tmp_path: Path, rtrl: Terminal
) -> None:
    empty = init_bare(tmp_path / "empty")
    code, said = rtrl(empty, "collect", "--received")
    assert (code, said["error"]["kind"]) == (5, "input_missing")

    code, said = rtrl(workspace, "collect", "--received", "--user", "ada")
    assert code == 2

    for path in (old := [path for _, path in Inbox(workspace.inbox_dir).segments()]):
        os.utime(path, (1000, 1000))
    code, said = rtrl(workspace, "gc")
    assert (code, said["metrics"]["would_remove"]) == (0, []), "not collected yet"

    code, said = rtrl(workspace, "collect", "--received")
    assert code == 0
    metrics = said["metrics"]
    assert (metrics["episodes"], metrics["generations"]) == (3, 3), "one session name of two people is two"
    assert metrics["received"] == {"repeated": 1}
    assert metrics["quarantined"] == {"unknown_type": 1}

    made = said["outputs"]["interactions"]["ref"]
    code, said = rtrl(workspace, "collect", "--received")
    assert (said["status"], said["outputs"]["interactions"]["ref"]) == ("noop", made), "what distill is told"

    code, said = rtrl(workspace, "verify", "--full")
    found = {"segments": len(old), "batches": 3, "damaged": 0}
    assert (code, said["metrics"]["received"]) == (0, found)

    code, said = rtrl(workspace, "forget", "eve", "--dry-run")
    assert (code, said["metrics"]["received_batches"], said["metrics"]["destroyed"]) == (0, 2, 1)
    code, said = rtrl(workspace, "forget", "eve", "--reason", "asked")
    assert (code, said["metrics"]["received_batches"], said["metrics"]["destroyed"]) == (0, 2, 1)
    code, said = rtrl(workspace, "collect", "--received", "--force")
    assert said["metrics"]["received"] == {"repeated": 1, "forgotten": 2}
    assert said["metrics"]["episodes"] == 1

    newest = segment.path_of(workspace.inbox_dir, len(old))
    data = bytearray(newest.read_bytes())
    data[-60] ^= 1
    newest.write_bytes(data)
    code, said = rtrl(workspace, "verify", "--full")
    assert code == 12
    assert "received records" in said["error"]["message"]

    code, said = rtrl(workspace, "gc", "--yes")
    assert code == 0
    assert said["metrics"]["removed"] == ["received segment 1", "received segment 2"]
    assert [path for _, path in Inbox(workspace.inbox_dir).segments()] == [newest]
