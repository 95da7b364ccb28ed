"""The parts of `bench gateway` beside latency: concurrent streams, saturation, soak.

Each returns figures, the ids that the gateway answered with, and how many of its requests had no answer.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import psutil

from benches._gateway_servers import Load, figure, quantile

if TYPE_CHECKING:
    from benches._gateway_servers import Servers

STREAMS = (32, 256)
CONNECTIONS = 64
SOAK_RATE = 50  # whole answers per second, beside them
SOAK_STREAMS = 16
SAMPLE_S = 0.25
MIB = 1 << 20

Measured = tuple[list[dict[str, Any]], list[str], int]


def turns(started: Servers, runs: int, what: str) -> Iterable[str]:
    """The servers in turn, every second time the other way round."""
    for run in range(runs):
        for server in started.ports if run % 2 == 0 else reversed(started.ports):
            print(f"run {run + 1} of {runs}: {server}, {what}", file=sys.stderr, flush=True)
            yield server


def streams(started: Servers, runs: int, seconds: float) -> Measured:
    """So many streams open all the time; each new one begins when one has ended."""
    found: list[dict[str, Any]] = []
    ids: list[str] = []
    failed = 0
    for count in STREAMS:
        by: dict[str, list[Any]] = {}
        for server in turns(started, runs, f"{count} streams"):
            result = Load("_streams", started.url(server), started.key, count, seconds).result()
            by.setdefault(server, []).append(result)
            if server == "gateway":
                ids += result["ids"]
                failed += result["failed"]
        for server, results in by.items():
            for q, label in ((0.5, "p50"), (0.99, "p99")):
                first = [quantile(sorted(one["ttft_ms"]), q) for one in results]
                alone = [quantile(sorted(one["ttft_ms"]), q) for one in by["stub"]]
                end = f"{server}_{count}_streams"
                what = f"{label} until the first token, {count} streams, {server}"
                found.append(figure(f"gateway.ttft_{label}_{end}", what, first, "ms", ""))
                if server != "stub":
                    more = [a - b for a, b in zip(first, alone, strict=True)]
                    found.append(
                        figure(f"gateway.ttft_added_{label}_{end}", f"added: {what}", more, "ms", "")
                    )
            rate = [one["events"] / one["seconds"] for one in results]
            what = f"pieces per second, {count} streams, {server}"
            found.append(figure(f"gateway.pieces_{server}_{count}_streams", what, rate, "1/s", ""))
    return found, ids, failed


def saturation(started: Servers, runs: int, seconds: float) -> Measured:
    """Whole answers per second from connections that send the next request at once."""
    by: dict[str, list[Any]] = {}
    process, cpu_ms = psutil.Process(started.gateway), []
    for server in turns(started, runs, f"{CONNECTIONS} connections, as fast as it goes"):
        used = sum(process.cpu_times()[:2])
        result = Load("_load", started.url(server), started.key, f"x{CONNECTIONS}", seconds).result()
        by.setdefault(server, []).append(result)
        if server == "gateway":
            used = sum(process.cpu_times()[:2]) - used
            cpu_ms.append(used * 1000 / max(1, len(result["ids"])))
    rates = {server: [len(one["ms"]) / seconds for one in results] for server, results in by.items()}
    found = [
        figure(
            f"gateway.saturation_{server}", f"answers per second at saturation, {server}", values, "1/s", ""
        )
        for server, values in rates.items()
    ]
    what = "processor time per answer, gateway"
    found.append(figure("gateway.cpu_ms_per_answer", what, cpu_ms, "ms", ""))
    if "litellm" in rates:
        ours, theirs = rates["gateway"], rates["litellm"]
        ratio = [a / b for a, b in zip(ours, theirs, strict=True)]
        what = "answers per second at saturation over the LiteLLM proxy's"
        found.insert(0, figure("gateway.saturation_vs_litellm", what, ratio, "ratio", "", ours, theirs))
    ids = [one for result in by["gateway"] for one in result["ids"]]
    return found, ids, sum(result["failed"] for result in by["gateway"])


def soak(started: Servers, seconds: float) -> Measured:
    """Memory of the gateway under a steady load of returning conversations.

    The slope is of the second half: in the first, caches with a bound fill up.
    """
    print(f"soak: {SOAK_RATE}/s and {SOAK_STREAMS} streams for {seconds:g} s", file=sys.stderr, flush=True)
    address = (started.url("gateway"), started.key)
    loads = [
        Load("_load", *address, SOAK_RATE, seconds, "returning"),
        Load("_streams", *address, SOAK_STREAMS, seconds, "returning"),
    ]
    process = psutil.Process(started.gateway)
    samples: list[tuple[float, float]] = []
    began = time.monotonic()
    while any(load.running for load in loads):
        samples.append((time.monotonic() - began, process.memory_info().rss / MIB))
        time.sleep(SAMPLE_S)
    results = [load.result() for load in loads]
    inside = [one for one in samples if seconds / 2 <= one[0] <= seconds]
    slope = statistics.linear_regression(*zip(*inside, strict=True)).slope * 60
    length = f"{seconds / 60:.1f} minutes"
    found = [
        figure("gateway.soak_mib_per_min", f"growth of memory, second half of {length}",
               [slope], "MiB/min", "<= 0.5"),
        figure("gateway.soak_mib", f"memory after {length}", [samples[-1][1]], "MiB", ""),
        figure("gateway.soak_requests", f"answered within {length}",
               [float(sum(len(one["ids"]) for one in results))], "requests", ""),
    ]  # fmt: skip
    return found, [id for one in results for id in one["ids"]], sum(one["failed"] for one in results)
