"""The servers that `bench gateway` measures, each a process of its own, and what the figures are made of."""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from benches._processes import ROOT, environment, module

PEER_HOME = ROOT / "build" / "bench-litellm"
PEER = "litellm[proxy]>=1.106,<2"
START_S = 300.0  # the LiteLLM proxy takes 15 s on an idle machine


@dataclass(frozen=True)
class Servers:
    """Those that run: ports by name (`stub`, `gateway`, `litellm`), the API key, the gateway's process."""

    ports: dict[str, int]
    key: str
    gateway: int
    home: Path
    stop_gateway: Callable[[], None]  # its spool is complete then

    def url(self, server: str) -> str:
        """Where a server listens."""
        return f"http://127.0.0.1:{self.ports[server]}"


@contextlib.contextmanager
def servers(peer: Path | None) -> Iterator[Servers]:
    """Stub, gateway and (with its Python) the LiteLLM proxy until the block ends, started anew."""
    from stages.engine.free_port import free_port

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        home = Path(folder)
        key = make_key(home)
        names = ("stub", "gateway", "litellm")
        ports: dict[str, int] = {name: free_port() for name in names}
        stub = [sys.executable, "-m", "stages.gateway.stub_engine", "--port", str(ports["stub"])]
        stack.enter_context(running(stub, ports["stub"], "/health"))
        command = module("_gateway_server", folder, ports["stub"], ports["gateway"])
        of_gateway = stack.enter_context(contextlib.ExitStack())
        gateway = of_gateway.enter_context(running(command, ports["gateway"], "/health"))
        if peer is None:
            del ports["litellm"]
        else:
            stack.enter_context(running_peer(peer, home, ports["stub"], ports["litellm"]))
        yield Servers(ports, key, gateway, home, of_gateway.close)


class Load:
    """A load generator beside this process; what it prints goes to a file, so that it never waits for us."""

    def __init__(self, name: str, *arguments: object) -> None:
        self._printed = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed in `result`
        command = module(name, *arguments)
        self._process = subprocess.Popen(command, stdout=self._printed, env=environment())

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def result(self) -> Any:
        """What it printed. Raises RuntimeError when it failed."""
        if self._process.wait():
            raise RuntimeError(f"the load generator ended with {self._process.returncode}")
        self._printed.seek(0)
        with self._printed as file:
            return json.load(file)


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
def running(command: list[str], port: int, path: str, **variables: str) -> Iterator[int]:
    """A server until the block ends, its pid; waits until it answers."""
    log = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed with the process
    process = subprocess.Popen(
        command,
        env=environment() | variables,
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
        yield process.pid
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


def running_peer(python: Path, home: Path, engine: int, port: int) -> contextlib.AbstractContextManager[int]:
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
