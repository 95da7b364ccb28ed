"""What the gateway costs and bears: latency beside the stub engine alone and beside the LiteLLM proxy,
concurrent streams, throughput at saturation, and memory over a soak.

Stub, gateway, peer and load generator are processes of their own, measured in turn within one run, so
that a change in the machine's load meets all of them. Capture is on: at the end every answered
generation is looked for in the spool. LiteLLM (PyPI, `litellm[proxy]`) is installed into
build/bench-litellm on the first run.

    --part latency      50, 200, 500 and 1,000 requests/s
    --part streams      32 and 256 streams open at a time
    --part saturation   as much as each server gives, 64 connections that never wait
    --part soak         memory of the gateway under a steady load, --soak-seconds long (600)

Without --part all of them. --runs (5) says how often each is repeated but the soak, --seconds how long one
measurement takes.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from benches._gateway_servers import Load, figure, install_peer, missing, quantile, servers

if TYPE_CHECKING:
    from benches._gateway_servers import Servers

PARTS = ("latency", "streams", "saturation", "soak")
RATES = (50, 200, 500, 1000)
PEER_RATES = (50, 200)  # beyond them the proxy's queue only grows
SECONDS = {50: 10.0, 200: 6.0, 500: 6.0, 1000: 6.0}  # of each run, after two seconds of warm-up
PEER_RATE = 50
RUNS = int(os.environ.get("RTRL_BENCH_RUNS", "5"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen on the command line."""
    parser.add_argument("--part", action="append", choices=PARTS, help="gateway: only this; repeatable")
    parser.add_argument("--runs", type=int, default=RUNS, help="gateway: repetitions (%(default)s)")
    parser.add_argument("--seconds", type=float, help="gateway: of each measurement")
    parser.add_argument("--soak-seconds", type=float, default=600.0, help="gateway: (%(default)s)")
    parser.add_argument("--no-peer", action="store_true", help="gateway: without LiteLLM, to try something")


def figures(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Everything in `docs/` about the gateway's speed."""
    from benches._gateway_bearing import saturation, soak, streams

    parts = arguments.part or PARTS
    peer = None if arguments.no_peer else install_peer()
    found: list[dict[str, Any]] = []
    ids: list[str] = []
    unanswered = 0
    for part in (name for name in PARTS if name in parts):
        with servers(None if part == "soak" else peer) as started:
            if part == "latency":
                measured = measure(started, arguments)
                more, answered, failed = told(measured), measured["ids"], measured["failed"]
            elif part == "streams":
                more, answered, failed = streams(started, arguments.runs, arguments.seconds or 6.0)
            elif part == "saturation":
                more, answered, failed = saturation(started, arguments.runs, arguments.seconds or 6.0)
            else:
                more, answered, failed = soak(started, arguments.soak_seconds)
            started.stop_gateway()
            not_there = missing(started.home, answered)
            if failed or not_there:
                print(f"{part}: {failed} not answered, {not_there} not in the spool", file=sys.stderr)
            found += more
            unanswered += failed + not_there
            ids += answered
    return [*found, lost_figure(unanswered, len(ids), arguments.runs)]


def measure(started: Servers, arguments: argparse.Namespace) -> dict[str, Any]:
    """Latencies in ms by (server, rate): one sorted list per run; and ids of all answers of the gateway."""
    found: dict[str, Any] = {"ids": [], "failed": 0, "lost_1000": [], "refused_1000": []}
    for run in range(arguments.runs):
        for rate in RATES:
            wanted = ("stub", "gateway", "litellm") if rate in PEER_RATES else ("stub", "gateway")
            here = [name for name in wanted if name in started.ports]
            for server in here if run % 2 == 0 else reversed(here):
                print(f"run {run + 1} of {arguments.runs}: {server} at {rate}/s", file=sys.stderr, flush=True)
                seconds = arguments.seconds or SECONDS[rate]
                result = Load("_load", started.url(server), started.key, rate, seconds).result()
                found.setdefault(f"{server}/{rate}", []).append(sorted(result["ms"]))
                if server == "gateway":
                    found["ids"] += result["ids"]
                    found["failed"] += result["failed"]
                    if rate == 1000:
                        found["lost_1000"].append(float(result["failed"]))
                        found["refused_1000"].append(float(result["refused"]))
                elif result["failed"]:
                    print(f"{server} at {rate}/s failed {result['failed']} requests", file=sys.stderr)
    return found


def told(measured: dict[str, Any]) -> list[dict[str, Any]]:
    """Figures of the latency part."""
    what = "at 1,000 requests/s, by the gateway"
    return [
        *ratios(measured),
        figure("gateway.lost_1000", f"neither answered nor told when to come back, {what}",
               measured["lost_1000"], "requests", "== 0"),
        figure("gateway.refused_1000", f"answered 429 with Retry-After, {what}",
               measured["refused_1000"], "requests", ""),
        *added(measured),
        *plain(measured),
    ]  # fmt: skip


def ratios(measured: dict[str, Any]) -> list[dict[str, Any]]:
    """The two figures with a bar on latency: per run, then the median of the runs."""
    stub, ours = p99s(measured, "stub", 500), p99s(measured, "gateway", 500)
    over_stub = [a / b for a, b in zip(ours, stub, strict=True)]
    found = [
        figure("gateway.p99_vs_stub_500", "p99 through the gateway over p99 of the stub engine alone, 500/s",
               over_stub, "ratio", "<= 4", ours, stub)
    ]  # fmt: skip
    for rate in PEER_RATES:
        if f"litellm/{rate}" in measured:
            mine, theirs = over(measured, "gateway", rate, 0.99), over(measured, "litellm", rate, 0.99)
            ratio = [a / b for a, b in zip(mine, theirs, strict=True)]
            bar = "<= 0.1" if rate == PEER_RATE else ""
            what = f"added p99 over the LiteLLM proxy's added p99, {rate}/s"
            found.append(figure(f"gateway.p99_vs_litellm_{rate}", what, ratio, "ratio", bar, mine, theirs))
    return found


def over(measured: dict[str, Any], server: str, rate: int, q: float) -> list[float]:
    """What a server adds to the stub's quantile in each run, ms."""
    there = [quantile(run, q) for run in measured[f"{server}/{rate}"]]
    alone = [quantile(run, q) for run in measured[f"stub/{rate}"]]
    return [a - b for a, b in zip(there, alone, strict=True)]


def added(measured: dict[str, Any]) -> list[dict[str, Any]]:
    """p50 and p99 over the stub's, in milliseconds."""
    found = []
    for name in measured:
        server, _, rate = name.partition("/")
        if rate and server != "stub":
            for q, label in ((0.5, "p50"), (0.99, "p99")):
                what = f"{label} added at {rate} requests/s, {server}"
                values = over(measured, server, int(rate), q)
                found.append(figure(f"gateway.added_{label}_{server}_{rate}", what, values, "ms", ""))
    return found


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


def lost_figure(lost: int, answered: int, runs: int) -> dict[str, Any]:
    """Answered and not in the spool; requests that were not answered count too (429 is an answer)."""
    return {
        "id": "gateway.lost",
        "what": f"generations answered but not in the spool, and requests not answered, of {answered}",
        "value": lost,
        "unit": "generations",
        "bar": "== 0",
        "runs": runs,
    }


def p99s(measured: dict[str, Any], server: str, rate: int) -> list[float]:
    """The p99 of each run, ms."""
    return [quantile(run, 0.99) for run in measured[f"{server}/{rate}"]]
