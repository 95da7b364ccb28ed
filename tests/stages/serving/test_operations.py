"""`rtrl serve` as a service: what systemd is told, a drain that loses nothing, a second signal, its log."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import socket
import string
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from stages.deploy.run import DeployStage
from stages.runner import run_stage
from stages.spool import Spool
from stages.target.endpoint import running_endpoint
from tests import processes
from tests.stages.serving.conftest import StubWorld
from tests.stages.serving.test_lifecycle import gone
from tests.stages.serving.test_running import wait_for

ROOT = Path(__file__).resolve().parents[3]


class Manager:
    """The service manager's end: a datagram socket, and what came in."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.said: list[dict[str, str]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while message := self._socket.recv(4096):
            self.said.append(dict(line.split("=", 1) for line in message.decode().split("\n")))

    def has(self, name: str, value: str = "1") -> bool:
        return any(message.get(name) == value for message in self.said)

    def count(self, name: str) -> int:
        return sum(name in message for message in self.said)

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"", str(self.path))


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path / "notify")
    yield made
    made.close()


@pytest.fixture
def hold(tmp_path: Path) -> Path:
    """As long as this file is there, answers that ask for it do not end."""
    made = tmp_path / "hold"
    made.touch()
    return made


def started(world: StubWorld, manager: Manager, **settings: Any) -> processes.Popen:
    """`rtrl serve` as systemd starts it, ready."""
    given = [f"--set={name.replace('__', '.')}={value}" for name, value in settings.items()]
    line = [sys.executable, "-m", "rtrl_cli.main", "serve", "-w", str(world.workspace.root), *given]
    watched = {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "200000"}
    process = processes.Popen(
        line, env=os.environ | watched, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert wait_for(lambda: manager.has("READY"))
    return process


def stream(world: StubWorld, words: str, answers: list[str]) -> threading.Thread:
    """A client that reads a stream to its end."""

    def ask() -> None:
        body = {"model": "rtrl", "stream": True, "messages": [{"role": "user", "content": words}]}
        headers = {"Authorization": f"Bearer {world.key}"}
        url = f"{world.endpoint.url}/v1/chat/completions"
        try:
            answers.append(httpx.post(url, json=body, headers=headers, timeout=60).text)
        except httpx.TransportError as error:
            answers.append(type(error).__name__)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def in_flight(world: StubWorld) -> int:
    transport = httpx.HTTPTransport(uds=world.endpoint.admin_socket)
    with httpx.Client(transport=transport, base_url="http://admin") as client:
        text = client.get("/metrics").text
    return int(float(next(x for x in text.split("\n") if x.startswith("rtrl_in_flight{")).split()[-1]))


def test_systemd_hears_of_start_update_and_end_and_nothing_accepted_is_lost(
    idle: StubWorld, manager: Manager, hold: Path
) -> None:
    settings = {"gateway__log_format": "json", "gateway__log_requests": "all"}
    process = started(idle, manager, **settings)
    assert manager.said[0]["EXTEND_TIMEOUT_USEC"] == "360000000"  # startup_timeout_s, and a minute
    assert manager.count("READY") == 1
    run_stage(idle.workspace, idle.store, DeployStage())
    assert wait_for(lambda: manager.has("RELOADING"))
    reloading = next(message for message in manager.said if "RELOADING" in message)
    assert 0 < int(reloading["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
    assert wait_for(lambda: manager.count("READY") == 2)
    answers: list[str] = []
    threads = [stream(idle, f"stub:hold={hold}", answers) for _ in range(3)]
    assert wait_for(lambda: in_flight(idle) == 3)
    assert wait_for(lambda: manager.count("WATCHDOG") > 3)
    url = idle.endpoint.url
    process.send_signal(signal.SIGTERM)
    assert wait_for(lambda: manager.has("STOPPING"))
    late = httpx.get(f"{url}/health")
    assert (late.status_code, late.headers["connection"]) == (503, "close")
    hold.unlink()
    _, err = process.communicate(timeout=60)
    for thread in threads:
        thread.join()
    assert process.returncode == 0, err
    assert [answer.endswith("data: [DONE]\n\n") for answer in answers] == [True] * 3
    spool = Spool.open(idle.workspace.spool_dir)
    assert sorted(g.finish_reason for _, g, _ in spool.generations(0, 1 << 60)) == ["stop"] * 3
    spool.close()
    lines = [json.loads(line) for line in err.splitlines()]
    names = [line["event"] for line in lines]
    for name in ("engine", "ready", "deployment", "drain", "request", "drained"):
        assert name in names, name
    engine = next(line for line in lines if line["event"] == "engine")
    assert (engine["state"], engine["arm"], engine["warm_up_s"] > 0) == ("ready", "live", True)
    done = next(line for line in lines if line["event"] == "deployment")
    assert (done["kind"], done["outcome"], done["checkpoint"]) == ("swap", "done", idle.second.digest)
    assert next(line for line in lines if line["event"] == "drained")["cut_short"] == 0
    assert {"message"} >= {line["event"] for line in lines if "text" in line}


def test_what_outlasts_the_drain_is_told_so_and_the_exit_status_says_it(
    idle: StubWorld, manager: Manager, hold: Path
) -> None:
    process = started(idle, manager, gateway__shutdown_timeout_s=0.3, engine__stop_timeout_s=1)
    answers: list[str] = []
    thread = stream(idle, f"stub:hold={hold}", answers)
    assert wait_for(lambda: in_flight(idle) == 1)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    thread.join()
    assert process.returncode == 143
    assert '"code":"shutting_down"' in answers[0]
    assert "1 requests took longer than 0.3 s" in err


def test_a_terminal_that_is_closed_cuts_nobody_off(idle: StubWorld, hold: Path) -> None:
    """The shell says SIGHUP, the kernel says it again, and nothing can be said to the terminal any more."""
    ours, its = pty.openpty()
    command = [sys.executable, "-m", "rtrl_cli.main", "serve", "-w", str(idle.workspace.root)]
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has it ignored, by all that it starts
    process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, start_new_session=True)
    signal.signal(signal.SIGHUP, before)
    os.close(its)
    assert wait_for(lambda: running_endpoint(idle.workspace.run_dir) is not None)
    assert wait_for(lambda: idle.ask().status_code == 200)
    answers: list[str] = []
    thread = stream(idle, f"stub:hold={hold}", answers)
    assert wait_for(lambda: in_flight(idle) == 1)
    os.close(ours)
    for _ in range(2):
        process.send_signal(signal.SIGHUP)
    hold.unlink()
    assert process.wait(60) == 129
    thread.join()
    assert answers[0].endswith("data: [DONE]\n\n")


def test_a_second_signal_ends_it_at_once(idle: StubWorld, manager: Manager, hold: Path) -> None:
    process = started(idle, manager, gateway__shutdown_timeout_s=600)
    endpoint = idle.endpoint
    answers: list[str] = []
    thread = stream(idle, f"stub:hold={hold}", answers)
    assert wait_for(lambda: in_flight(idle) == 1)
    process.send_signal(signal.SIGTERM)
    assert wait_for(lambda: manager.has("STOPPING"))
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143, "the answer would have had ten minutes"
    thread.join()
    assert gone(endpoint.engine.pid)
    assert not Path(endpoint.engine.temporary).exists()
    assert running_endpoint(idle.workspace.run_dir) is None


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_the_unit_files_are_valid(tmp_path: Path) -> None:
    for path in sorted((ROOT / "scripts" / "systemd").iterdir()):
        text = path.read_text().replace("/srv/rtrl/.venv/bin/rtrl", "/bin/true").replace("User=rtrl\n", "")
        text = text.replace("file:///srv/rtrl/docs", "https://example.org")
        (tmp_path / path.name).write_text(text)
    units = [str(path) for path in sorted(tmp_path.glob("rtrl*"))]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    ours = [line for line in done.stderr.splitlines() if "rtrl" in line]
    assert not ours, ours


def told(name: str) -> dict[str, list[str]]:
    """The settings of a unit file, each with its values."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / "scripts" / "systemd" / name).read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


UNITS = sorted(path.name for path in (ROOT / "scripts" / "systemd").glob("*.service"))


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_can_keep_what_is_compiled(name: str) -> None:
    """With ProtectSystem=strict a user's home is read-only: vLLM inspected its models at every start anew."""
    unit = told(name)
    (folder,) = unit["CacheDirectory"]
    variables = dict(text.split("=", 1) for text in unit["Environment"])
    assert unit["ProtectSystem"] == ["strict"]
    assert variables["HOME"] == f"/var/cache/{folder}"
    assert variables["PYTHONPYCACHEPREFIX"].startswith(f"/var/cache/{folder}/")


def test_what_the_example_crontab_does_units_do() -> None:
    """Under systemd nothing checked and cleared the store, copied registry and keys, or decided a canary."""
    lines = (ROOT / "scripts" / "rtrl.crontab").read_text().splitlines()
    asked = {
        command
        for line in lines
        if line.lstrip("# ")[:1] in {*string.digits, "*"}  # also what some alone want
        for command in re.findall(r"\brtrl ([a-z]+(?: backup)?)", line)
    }
    done = {
        command
        for name in UNITS
        for key in ("ExecStart", "ExecStopPost")
        for value in told(name).get(key, [])
        for command in re.findall(r"bin/rtrl ([a-z]+(?: backup)?)", value)
    }
    assert asked == {"cycle", "ab", "verify", "gc", "db backup", "keys backup"}
    assert done == asked | {"serve"}
    for name in set(UNITS) - {"rtrl-serve.service"}:
        assert told(name.replace(".service", ".timer"))["WantedBy"] == ["timers.target"]


def test_the_cycles_unit_leaves_bubblewrap_what_it_needs() -> None:
    """Tried under systemd 252: with any of these no sandbox starts."""
    unit = told("rtrl-cycle.service")
    assert not {"RestrictNamespaces", "ProtectHostname", "ProtectKernelTunables"} & set(unit)
    assert {"@mount", "sethostname"} <= set(unit["SystemCallFilter"][0].split())


def test_a_store_that_is_mounted_late_is_started_again(idle: StubWorld) -> None:
    """The unit promised it and had 10 in its list: a start before the mount was the last one."""
    given_up = {int(code) for code in told("rtrl-serve.service")["RestartPreventExitStatus"][0].split()}
    for late in (idle.workspace.store_dir, idle.workspace.root):
        away = late.with_name(f"{late.name}-away")
        late.rename(away)
        late.mkdir()  # where it will be mounted
        try:
            done = processes.rtrl("serve", "-w", str(idle.workspace.root))
        finally:
            late.rmdir()
            away.rename(late)
        assert done.returncode not in {0, *given_up}, done.stderr
