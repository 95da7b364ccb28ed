"""How fast new weights reach users, and the old ones come back: real vLLM, real gateway, real commands.

For each model a line is served with clients asking all the time, and then

    in place   `rtrl deploy` of a child that the engine never held, and `rtrl rollback`, RUNS times
    restart    `rtrl serve --stop`, `rtrl deploy --offline`, `rtrl serve --detach`, once

Seconds count from the start of the command to the first token of the new weights at a client. Client
latencies count from when a request was due; those that were under way between a command's start and its end
are compared with all others.

RTRL_BENCH_MODELS (default "seed,100m") chooses the models, RTRL_BENCH_RUNS (default 5) how often. Of
`seed-lora` and `100m-lora` the children are adapters of the parent, and in place is an adapter swap. One
engine runs at a time, on the CPU; about four minutes on two cores.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benches._timing import rtrl

if TYPE_CHECKING:
    from benches._deploy_clients import Clients, Request
    from benches._deploy_world import World

MODELS = [name for name in os.environ.get("RTRL_BENCH_MODELS", "seed,100m").split(",") if name]
RUNS = int(os.environ.get("RTRL_BENCH_RUNS", "5"))
LOADS = {"seed": (20.0, 8), "100m": (2.0, 8)}  # requests/s, tokens each: about a third of what the engine can
QUIET_S = 4.0  # between two commands


@dataclass
class Measured:
    """Of one model. Seconds; `inplace` and `rollback` to the first token, `*_command` of the command."""

    model: str
    parameters: int
    moved: tuple[int, int]
    inplace: list[float] = field(default_factory=list)
    inplace_command: list[float] = field(default_factory=list)
    rollback: list[float] = field(default_factory=list)
    rollback_command: list[float] = field(default_factory=list)
    restart: float = 0.0
    engine_start: float = 0.0
    during: list[float] = field(default_factory=list)  # ms
    quiet: list[float] = field(default_factory=list)
    failed: dict[str, int] = field(default_factory=dict)


def figures() -> list[dict[str, Any]]:
    """The two figures with a bar, then what each model took."""
    from benches._deploy_world import MODELS as KNOWN

    if unknown := set(MODELS) - set(KNOWN):
        raise ValueError(f"no model {unknown.pop()!r}; there are: {', '.join(KNOWN)}")
    found = []
    for model in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            found.append(measure(Path(folder), model))
    return [*_barred(found), *(row for one in found for row in _rows(one))]


def measure(home: Path, model: str) -> Measured:
    """Serve the model's line and change its weights, both ways."""
    from benches._deploy_clients import Clients
    from benches._deploy_world import LORA, make
    from stages.target.endpoint import require_endpoint

    world = make(home, model, RUNS)
    found = Measured(model, world.parameters, world.moved)
    rate, tokens = LOADS[model.removesuffix(LORA)]
    try:
        began = time.monotonic()
        command(world, "serve", "--detach")
        found.engine_start = time.monotonic() - began
        address = {"url": require_endpoint(world.workspace.run_dir).url}
        clients = Clients(lambda: address["url"], world.key, rate, tokens)
        try:
            clients.first_of(world.first.digest, 0.0)
            windows = in_place(world, clients, found)
            share_out(clients.requests, windows, found)
            address["url"] = restart(world, clients, found, address)
        finally:
            clients.close()
    finally:
        command(world, "serve", "--stop")
    return found


def in_place(world: World, clients: Clients, found: Measured) -> list[tuple[float, float]]:
    """Deploy each child and roll it back. When each command began and ended."""
    from benches._deploy_world import LORA

    windows = []
    for child in world.children:
        steps = [("deploy", child, found.inplace, found.inplace_command)]
        steps += [("rollback", world.first, found.rollback, found.rollback_command)]
        for name, target, first_token, whole in steps:
            time.sleep(QUIET_S)
            began = time.monotonic()
            told = command(world, name, "--json", *(("--input", child.ref) if name == "deploy" else ()))
            ended = time.monotonic()
            if found.model.endswith(LORA) and "adapter swap" not in told:
                raise RuntimeError(f"{name} was no adapter swap: {told}")
            first_token.append(clients.first_of(target.digest, began) - began)
            whole.append(ended - began)
            windows.append((began, ended))
    time.sleep(QUIET_S)
    return windows


def restart(world: World, clients: Clients, found: Measured, address: dict[str, str]) -> str:
    """The same change by stopping and starting what serves. Returns the new address."""
    from stages.target.endpoint import require_endpoint

    child = world.children[0]
    began = time.monotonic()
    command(world, "serve", "--stop")
    command(world, "deploy", "--offline", "--input", child.ref)
    command(world, "serve", "--detach")
    address["url"] = require_endpoint(world.workspace.run_dir).url
    found.restart = clients.first_of(child.digest, began) - began
    return address["url"]


def command(world: World, *arguments: str) -> str:
    """What `rtrl ARGUMENTS` prints in the workspace; it must succeed."""
    done = subprocess.run(
        [*rtrl(), *arguments, "-w", str(world.workspace.root)],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode not in (0, 130, 143):
        raise RuntimeError(f"rtrl {arguments[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def share_out(requests: Sequence[Request], windows: list[tuple[float, float]], found: Measured) -> None:
    """Latencies of the requests that met a command, and of the others; what failed, by its reason."""
    for request in requests:
        if request.failed:
            found.failed[request.failed] = found.failed.get(request.failed, 0) + 1
        elif request.done:
            met = any(request.due < ended and request.done > began for began, ended in windows)
            (found.during if met else found.quiet).append(1000 * (request.done - request.due))


def p99(values: Sequence[float]) -> float:
    """The 99th percentile, by the nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]


def _barred(found: list[Measured]) -> list[dict[str, Any]]:
    ratios = {one.model: one.restart / statistics.median(one.inplace) for one in found}
    worst = min(found, key=lambda one: ratios[one.model])
    back = max(found, key=lambda one: statistics.median(one.rollback))
    return [
        {
            "id": "deploy.restart_over_inplace",
            "what": f"restart over update in place, command to first token of the new weights; the worst of "
            f"{', '.join(ratios)}: {worst.model}",
            "value": ratios[worst.model],
            "unit": "ratio",
            "bar": ">= 10",
            "ours": statistics.median(worst.inplace),
            "theirs": worst.restart,
            "runs": len(worst.inplace),
            "spread": sorted(ratios.values()),
        },
        {
            "id": "deploy.rollback_s",
            "what": "`rtrl rollback` to the first token of the previous weights, median; the worst of "
            f"{', '.join(ratios)}: {back.model}",
            "value": statistics.median(back.rollback),
            "unit": "s",
            "bar": "<= 1",
            "runs": len(back.rollback),
            "spread": [min(back.rollback), max(back.rollback)],
        },
    ]


def _rows(one: Measured) -> list[dict[str, Any]]:
    name, what = f"deploy.{one.model}", f"{one.model}, {one.parameters / 1e6:.1f} M parameters"
    added = p99(one.during) - p99(one.quiet)
    return [
        _times(
            f"{name}_inplace_s", f"{what}: `rtrl deploy` to the first token of the new weights", one.inplace
        ),
        _times(f"{name}_deploy_s", f"{what}: the whole command `rtrl deploy`", one.inplace_command),
        _times(f"{name}_rollback_s", f"{what}: `rtrl rollback` to the first token", one.rollback),
        _times(f"{name}_rollback_command_s", f"{what}: the whole command", one.rollback_command),
        _times(
            f"{name}_restart_s", f"{what}: stop, deploy --offline, serve: to the first token", [one.restart]
        ),
        _times(f"{name}_start_s", f"{what}: `rtrl serve --detach`", [one.engine_start]),
        {
            "id": f"{name}_p99_added_ms",
            "what": f"{what}: p99 of whole answers that met a deploy or rollback, minus p99 of the others; "
            f"failed: {one.failed or 0}",
            "value": added,
            "unit": "ms",
            "bar": None,
            "ours": p99(one.during),
            "theirs": p99(one.quiet),
            "runs": len(one.during),
        },
        {
            "id": f"{name}_moved",
            "what": f"{what}: bytes published as a delta over the whole weights",
            "value": one.moved[0] / one.moved[1],
            "unit": "ratio",
            "bar": None,
            "ours": one.moved[0],
            "theirs": one.moved[1],
        },
    ]


def _times(name: str, what: str, seconds: list[float]) -> dict[str, Any]:
    return {
        "id": name,
        "what": what,
        "value": statistics.median(seconds),
        "unit": "s",
        "bar": None,
        "runs": len(seconds),
        "spread": [min(seconds), max(seconds)],
    }
