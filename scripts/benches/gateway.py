"""What the gateway costs: latency against the stub engine alone and against the LiteLLM proxy.

Stub, gateway, peer and load generator are processes of their own, measured in turn within one run, so
that a change in the machine's load meets all of them. Capture is on: at the end every answered
generation is looked for in the spool.

LiteLLM (PyPI, `litellm[proxy]`) is installed into build/bench-litellm on the first run.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[2]
PEER_HOME = ROOT / "build" / "bench-litellm"
PEER = "litellm[proxy]>=1.106,<2"
RATES = (50, 200, 500)
RUNS = int(os.environ.get("RTRL_BENCH_RUNS", "5"))
SECONDS = {50: 10.0, 200: 6.0, 500: 6.0}  # of each run, after two seconds of warm-up
START_S = 300.0  # the LiteLLM proxy takes 15 s on an idle machine
PEER_RATE = 50


def figures() -> list[dict[str, Any]]:
    """Everything in `docs/` about the gateway's speed."""
    from stages.engine.process import free_port

    peer = install_peer()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        home = Path(folder)
        key = make_key(home)
        ports = [free_port() for _ in range(3)]
        command = [sys.executable, "-m", "stages.gateway.stub_engine", "--port", str(ports[0])]
        stack.enter_context(running(command, ports[0], "/health"))
        server = str(Path(__file__).with_name("_gateway_server.py"))
        gateway = [sys.executable, server, folder, str(ports[0]), str(ports[1])]
        with running(gateway, ports[1], "/health"):
            stack.enter_context(running_peer(peer, home, ports[0], ports[2]))
            measured = measure(dict(zip(("stub", "gateway", "litellm"), ports, strict=True)), key)
        lost = missing(home, measured.pop("ids"))
    return [*ratios(measured), lost_figure(lost, measured), *plain(measured)]


def measure(ports: dict[str, int], key: str) -> dict[str, Any]:
    """Latencies in ms by (server, rate): one sorted list per run; and ids of all answers of the gateway."""
    found: dict[str, Any] = {"ids": [], "failed": 0}
    for run in range(RUNS):
        for rate in RATES:
            servers = ("stub", "gateway", "litellm") if rate == PEER_RATE else ("stub", "gateway")
            for server in servers if run % 2 == 0 else reversed(servers):
                print(f"run {run + 1} of {RUNS}: {server} at {rate}/s", file=sys.stderr, flush=True)
                result = load(ports[server], key, rate)
                found.setdefault(f"{server}/{rate}", []).append(sorted(result["ms"]))
                if server == "gateway":
                    found["ids"] += result["ids"]
                    found["failed"] += result["failed"]
                elif result["failed"]:
                    print(f"{server} at {rate}/s failed {result['failed']} requests", file=sys.stderr)
    return found


def load(port: int, key: str, rate: int) -> dict[str, Any]:
    """One run of the load generator."""
    script = str(Path(__file__).with_name("_load.py"))
    command = [sys.executable, script, f"http://127.0.0.1:{port}", key, str(rate), str(SECONDS[rate])]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result = json.loads(done.stdout)
    assert isinstance(result, dict)
    return result


def ratios(measured: dict[str, Any]) -> list[dict[str, Any]]:
    """The two figures with a bar on latency: per run, then the median of the runs."""
    stub, ours = p99s(measured, "stub", 500), p99s(measured, "gateway", 500)
    over_stub = [a / b for a, b in zip(ours, stub, strict=True)]
    idle = p99s(measured, "stub", PEER_RATE)
    added = [a - b for a, b in zip(p99s(measured, "gateway", PEER_RATE), idle, strict=True)]
    theirs = [a - b for a, b in zip(p99s(measured, "litellm", PEER_RATE), idle, strict=True)]
    over_peer = [a / b for a, b in zip(added, theirs, strict=True)]
    return [
        figure("gateway.p99_vs_stub_500", "p99 through the gateway over p99 of the stub engine alone, 500/s",
               over_stub, "ratio", "<= 4", ours, stub),
        figure("gateway.p99_vs_litellm_50", "added p99 over the LiteLLM proxy's added p99, 50/s",
               over_peer, "ratio", "<= 0.1", added, theirs),
    ]  # fmt: skip


def plain(measured: dict[str, Any]) -> list[dict[str, Any]]:
    """p50 and p99 in milliseconds of every server at every rate."""
    found = []
    for name, runs in measured.items():
        if "/" not in name:
            continue
        server, rate = name.split("/")
        for q, label in ((0.5, "p50"), (0.99, "p99")):
            values = [quantile(run, q) for run in runs]
            what = f"{label} at {rate} requests/s, {server}"
            found.append(figure(f"gateway.{label}_{server}_{rate}", what, values, "ms", ""))
    return found


def figure(
    name: str,
    what: str,
    values: list[float],
    unit: str,
    bar: str,
    ours: list[float] | None = None,
    theirs: list[float] | None = None,
) -> dict[str, Any]:
    """The median over the runs, with their spread."""
    found = {
        "id": name,
        "what": what,
        "value": round(statistics.median(values), 4),
        "unit": unit,
        "bar": bar,
        "runs": len(values),
        "spread": [round(min(values), 4), round(max(values), 4)],
    }
    for label, side in (("ours", ours), ("theirs", theirs)):
        if side is not None:
            found[label] = round(statistics.median(side), 4)
    return found


def lost_figure(lost: int, measured: dict[str, Any]) -> dict[str, Any]:
    """Answered and not in the spool; requests that were not answered count too."""
    return {
        "id": "gateway.lost",
        "what": "generations answered but not in the spool, and requests not answered",
        "value": lost + measured["failed"],
        "unit": "generations",
        "bar": "== 0",
        "runs": RUNS,
    }


def p99s(measured: dict[str, Any], server: str, rate: int) -> list[float]:
    """The p99 of each run, ms."""
    return [quantile(run, 0.99) for run in measured[f"{server}/{rate}"]]


def quantile(values: list[float], q: float) -> float:
    """Of sorted values, the nearest rank."""
    return values[min(len(values) - 1, int(q * len(values)))]


def missing(home: Path, ids: list[str]) -> int:
    """How many of `ids` the spool does not hold."""
    from stages.spool import Spool

    spool = Spool.open(home / "spool")
    there = {g.id for _, g, _ in spool.generations(0, 1 << 60)}
    spool.close()
    return len(set(ids) - there)


def make_key(home: Path) -> str:
    """An API key of the gateway under test."""
    from stages.gateway.keys import ApiKeys

    return ApiKeys.create(home / "keys", "bench")


@contextlib.contextmanager
def running(command: list[str], port: int, path: str, **environment: str) -> Iterator[None]:
    """A server until the block ends; waits until it answers."""
    log = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed with the process
    process = subprocess.Popen(
        command,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        deadline = time.monotonic() + START_S
        while not answers(f"http://127.0.0.1:{port}{path}"):
            if process.poll() is not None or time.monotonic() > deadline:
                log.seek(0)
                raise RuntimeError(f"{command[0]} did not start:\n{log.read()[-2000:]}")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


def answers(url: str) -> bool:
    """Whether a GET gets 200."""
    try:
        with urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def running_peer(python: Path, home: Path, engine: int, port: int) -> contextlib.AbstractContextManager[None]:
    """The LiteLLM proxy before the same stub, one worker, no keys, no database."""
    config = home / "litellm.yaml"
    config.write_text(
        "model_list:\n  - model_name: rtrl\n    litellm_params:\n      model: openai/rtrl\n"
        f"      api_base: http://127.0.0.1:{engine}/v1\n      api_key: none\n"
    )
    command = [str(python.parent / "litellm"), "--config", str(config), "--port", str(port)]
    return running(
        [*command, "--host", "127.0.0.1", "--num_workers", "1"],
        port,
        "/health/liveliness",
        PYTHONPATH="",
        LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY="true",
        LITELLM_LOCAL_MODEL_COST_MAP="True",
        LITELLM_TELEMETRY="False",
        LITELLM_LOG="ERROR",
    )


def install_peer() -> Path:
    """The Python of LiteLLM's own environment; made on the first run."""
    python = PEER_HOME / "bin" / "python"
    if not (PEER_HOME / "bin" / "litellm").exists():
        print("installing the LiteLLM proxy into build/bench-litellm", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(PEER_HOME)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", PEER]
        subprocess.run(install, check=True, stdout=sys.stderr)
    return python
