"""`rtrl serve` as a process, with the stub engine: readiness, signals, SIGKILL, a start that fails."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from rtrl_cli.main import run
from stages.errors import IntegrityError
from stages.serving import detach
from stages.serving.addresses import clean_up_after_killed
from stages.serving.detach import start_detached, stop
from stages.target.endpoint import Endpoint, EngineAt, read_endpoint, running_endpoint, write_endpoint
from tests.stages.serving.conftest import StubWorld
from tests.stages.serving.test_running import wait_for


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def command(world: StubWorld, *arguments: str) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "rtrl_cli.main", "serve", "-w", str(world.workspace.root), *arguments]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_sigkill_leaves_nothing_running(idle: StubWorld) -> None:
    endpoint = start_detached(idle.workspace)
    os.kill(endpoint.pid, signal.SIGKILL)
    assert wait_for(lambda: gone(endpoint.pid) and gone(endpoint.engine.pid))
    assert wait_for(lambda: running_endpoint(idle.workspace.run_dir) is None)
    assert read_endpoint(idle.workspace.run_dir) is not None  # stale; the next start cleans up


def test_status_says_that_an_engine_is_away(idle: StubWorld, capsys: pytest.CaptureFixture[str]) -> None:
    """Users had 503 for as long as vLLM took to start again, and it said that the line is served."""

    def told() -> list[str]:
        assert run(["status", "-w", str(idle.workspace.root), "--json"]) == 0
        warnings: list[str] = json.loads(capsys.readouterr().out)["warnings"]
        return [each for each in warnings if "other settings" not in each]

    endpoint = start_detached(idle.workspace, overrides=["engine.restart_backoff_s=60"])
    assert told() == []
    os.kill(endpoint.engine.pid, signal.SIGKILL)
    assert wait_for(lambda: told() != [])
    assert told() == [f"the engine of auto is down (log: {endpoint.engine.log})"]
    os.kill(endpoint.pid, signal.SIGSTOP)
    try:
        assert told() == ["the gateway does not say how its engines are: see the output of `rtrl serve`"]
    finally:
        os.kill(endpoint.pid, signal.SIGCONT)
        stop(idle.workspace)


def test_readiness_is_one_document_and_sigterm_ends_cleanly(idle: StubWorld) -> None:
    stale = read_endpoint(idle.workspace.run_dir)
    process = command(idle, "--json")
    assert process.stdout is not None
    text = process.stdout.readline()
    while text.count("{") != text.count("}"):
        text += process.stdout.readline()
    document = json.loads(text)
    facts = document["metrics"]
    assert (document["command"], document["status"]) == ("serve", "succeeded")
    assert (facts["checkpoint"], facts["pid"]) == (idle.first.ref, process.pid)
    assert facts["url"] == f"{idle.endpoint.url}/v1"
    assert stale is None or not Path(stale.engine.temporary).exists()
    temporary = Path(idle.endpoint.engine.temporary)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert err.splitlines()[-1] == "stopped"
    assert gone(facts["engine_pid"])
    assert not temporary.exists()
    assert {path.name for path in idle.workspace.run_dir.iterdir()} <= {
        "serve.lock",
        "serve.log",
        "serve-before.log",
    }


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_it_starts(idle: StubWorld, number: int, code: int) -> None:
    """One document; and nobody waits for an engine that does not heed SIGTERM yet."""
    # the engine listens where nobody looks for it: it stays "starting"
    nowhere = ("--set", 'engine.extra_args=["--host", "127.0.0.2"]', "--set", "engine.stop_timeout_s=600")
    process = command(idle, "--json", *nowhere)
    assert wait_for(lambda: _child(process.pid) is not None)
    child = _child(process.pid)
    assert child is not None
    os.kill(child, signal.SIGSTOP)  # as deaf as vLLM while it starts
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, (out, err)
    document = json.loads(out)
    assert (document["command"], document["status"], document["error"]["code"]) == ("serve", "failed", code)
    assert gone(child)
    assert running_endpoint(idle.workspace.run_dir) is None


def _child(pid: int) -> int | None:
    """The engine's process; one that is stopped before its exec would stop its parent too."""
    for child in psutil.Process(pid).children():
        with suppress(psutil.Error):  # another one, that ended meanwhile
            if "stages.engine.launch" in " ".join(child.cmdline()):
                return child.pid
    return None


def test_stop_wants_no_store(idle: StubWorld) -> None:
    """Its disk may be away, which is when one wants to stop: it was exit 10, or 13."""
    log = idle.workspace.run_dir / "serve.log"
    log.write_text("why the one before ended\n")
    endpoint = start_detached(idle.workspace)
    away = idle.workspace.root / "store.away"
    idle.workspace.store_dir.rename(away)
    os.truncate(log, 0)
    try:
        assert run(["serve", "--stop", "-w", str(idle.workspace.root)]) == 0
    finally:
        away.rename(idle.workspace.store_dir)
    assert wait_for(lambda: gone(endpoint.pid))
    assert log.read_bytes()[:1] not in (b"", b"\0"), (
        "logrotate's copytruncate: a hole as long as what was before"
    )
    assert log.with_name("serve-before.log").read_text() == "why the one before ended\n"
    lines = log.read_text().splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ stopped", lines[-1]), "of weeks, on which day"


def test_stop_without_one_is_no_work(idle: StubWorld) -> None:
    assert stop(idle.workspace) is None


def test_a_checkpoint_without_fingerprint_is_not_served(idle: StubWorld) -> None:
    bare = idle.checkpoint("bare", None, fingerprint=False)
    idle.store.move_alias("auto", "live", bare.digest, reason="test", by="test")
    said: list[str] = []
    try:
        with pytest.raises(IntegrityError, match="served_fingerprint") as caught:
            start_detached(idle.workspace, say=said.append)
    finally:
        idle.store.move_alias("auto", "live", idle.first.digest, reason="test", by="test")
    assert caught.value.hint
    assert not [line for line in said if line.startswith(("error:", "hint:"))]  # said once, by the caller
    assert running_endpoint(idle.workspace.run_dir) is None


@pytest.mark.parametrize("left", ["", '{"schema": "rtrl-serve/0"}', "\0" * 512])
def test_a_file_that_a_power_cut_damaged_is_stale(idle: StubWorld, left: str) -> None:
    """It was exit 12 at each start, after which systemd starts nothing again."""
    (idle.workspace.run_dir / "serve.json").write_text(left)
    said: list[str] = []
    endpoint = start_detached(idle.workspace, say=said.append)
    assert running_endpoint(idle.workspace.run_dir) == endpoint
    assert [line for line in said if "serve.json cannot be read" in line]


def test_a_damaged_file_that_is_not_removed_yet_is_waited_for(
    idle: StubWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Path] = []

    def damaged_at_first(run_dir: Path) -> Endpoint | None:
        seen.append(run_dir)
        if len(seen) < 3:
            raise IntegrityError("between its lock and its clean-up")
        return running_endpoint(run_dir)

    monkeypatch.setattr(detach, "running_endpoint", damaged_at_first)
    start_detached(idle.workspace)
    assert len(seen) >= 3


@pytest.mark.parametrize("end", [None, -2])
def test_a_copy_of_a_workspace_that_is_served_leaves_its_engine_alone(
    idle: StubWorld, tmp_path: Path, end: int | None
) -> None:
    """`rtrl serve` in a restored backup deleted the folder of the engine that runs in the original."""
    endpoint = start_detached(idle.workspace)
    copy = Path(shutil.copytree(idle.workspace.run_dir, tmp_path / "run", ignore=lambda *_: {"admin.sock"}))
    path = copy / "serve.json"
    path.write_bytes(path.read_bytes()[:end])
    clean_up_after_killed(copy, lambda _: None)
    assert not path.exists()
    assert Path(endpoint.engine.temporary).is_dir()
    stop(idle.workspace)
    assert not Path(endpoint.engine.temporary).exists()


@pytest.mark.parametrize("end", [None, -2, 400])
def test_what_a_killed_one_left_is_removed_as_far_as_its_file_tells(idle: StubWorld, end: int | None) -> None:
    folders = [Path(tempfile.mkdtemp(prefix="rtrl-engine-", dir="/tmp")) for _ in range(2)]
    other = Path(tempfile.mkdtemp(prefix="rtrl-", dir="/tmp"))
    engines = [EngineAt(pid=0, url="http://x", key="k", log="", temporary=str(each)) for each in folders]
    more = EngineAt(pid=0, url="http://x", key="k", log="", temporary=f"{folders[0]}/../{other.name}")
    run_dir, said = idle.workspace.run_dir, list[str]()
    path = write_endpoint(
        run_dir,
        Endpoint(
            pid=1, started_at="", line="auto", url="", admin_key="k", engine=engines[0],
            more=(engines[1], more),
        ),
    )  # fmt: skip
    path.write_bytes(path.read_bytes()[:end])
    assert b"rtrl-engine-" in path.read_bytes()
    try:
        clean_up_after_killed(run_dir, said.append)
        assert [each.exists() for each in (*folders, other, path)] == [False, end == 400, True, False]
        assert len(said) == (end is not None)
        clean_up_after_killed(run_dir, said.append)
        assert len(said) == (end is not None)
    finally:
        for each in (*folders, other):
            shutil.rmtree(each, ignore_errors=True)
