"""From the spool to experience, as processes: time, memory, and how near that is to merely reading.

A spool is written first, as a gateway would: one million episodes of a thousand tokens (RTRL_BENCH_EPISODES:
so many), each with an answer, an edit, a measurement of what stands of it, and a next message. Then
`rtrl collect` and `rtrl distill`; and, by as many processes, the same columns read, decompressed and unsealed
by a loop that does nothing with them. Ten times less is run beside it. It needs 20 GB of disk and half an
hour; where it is stands on stderr. With RTRL_BENCH_FOLDER the spools are written there once, and kept.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benches._episodes import Texts
from benches._processes import environment, module
from benches._timing import rtrl

EPISODES = int(os.environ.get("RTRL_BENCH_EPISODES", "1000000"))
KEPT = os.environ.get("RTRL_BENCH_FOLDER", "")
PROMPT, OUTPUT = 800, 200  # tokens
USERS = 5000
START = 1_760_000_000_000  # ms


def say(text: str) -> None:
    """One line for whoever waits."""
    print(text, file=sys.stderr, flush=True)


def fill(root: Path, episodes: int) -> None:
    """A workspace with a spool of so many episodes, written by the gateway's writer."""
    from stages.init import init_tiny
    from stages.records import Event, Generation, Sampling, Span
    from stages.spool import SpoolWriter, Tokens
    from stages.vault import Vault

    live = init_tiny(root).checkpoint.digest
    random, texts = np.random.default_rng(0), Texts(0)
    prompts = [random.integers(0, 800, PROMPT, dtype=np.int32) for _ in range(64)]
    outputs = [random.integers(0, 800, OUTPUT, dtype=np.int32) for _ in range(64)]
    logprobs = [-random.exponential(0.3, OUTPUT).astype(np.float32) for _ in range(64)]
    vault = Vault.open(root / "keys")
    vault.ensure(f"user-{n}" for n in range(USERS))
    writer = SpoolWriter(root / "spool", vault, fsync_ms=1000.0)
    for n in range(episodes):
        user, at = f"user-{n % USERS}", START + 20 * n
        name = f"{user}/{n // USERS}"
        generation = Generation(
            id=f"gen_{n:032x}", key_id="key", user=user, session=user, episode=name, ordinal=0,
            at=at, wall=at,
            line="auto", arm="live", deployment="", api="chat", sampling=Sampling(),
            spans=(Span(0, OUTPUT, live),), finish_reason="stop", prompt_tokens=PROMPT, output_tokens=OUTPUT,
            ttft_ms=50.0, duration_ms=900.0,
        )  # fmt: skip
        tokens = Tokens(prompts[n % 64], outputs[n % 63], logprobs[n % 61])
        writer.append_generation(generation, tokens, texts.request(), texts.answer())
        edit = texts.edit()
        told: dict[str, tuple[int, dict[str, Any]]] = {
            "edit_applied": (1000, edit),
            "user_message": (30_000, {"text": texts.follow_up()}),
            "edit_survival": (
                3_601_000,
                {"path": edit["path"], "horizon_s": 3600, "now": texts.later(edit)},
            ),
        }
        writer.append_events(
            [
                Event(id=f"{kind}-{n}", key_id="key", generation_id=generation.id, type=kind, at=at + later,  # type: ignore[arg-type]
                      wall=at + later, data=data)
                for kind, (later, data) in told.items()
            ]
        )  # fmt: skip
        if n % 100_000 == 99_999:
            say(f"spool: {n + 1:,} of {episodes:,} episodes written")
    writer.close()
    vault.close()


class Peak(threading.Thread):
    """The most memory a process and its children hold together: proportional set size, each 0.2 s."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._process = psutil.Process(pid)
        self._ended = threading.Event()
        self.bytes = 0

    def run(self) -> None:
        """Until `stop`."""
        while not self._ended.wait(0.2):
            total = 0
            try:
                for process in (self._process, *self._process.children(recursive=True)):
                    total += process.memory_full_info().pss
            except psutil.Error:  # one of them has just ended
                continue
            self.bytes = max(self.bytes, total)

    def stop(self) -> int:
        """Bytes at the peak."""
        self._ended.set()
        self.join()
        return self.bytes


def run(root: Path, *arguments: str) -> tuple[float, int, dict[str, Any]]:
    """Seconds and peak memory (bytes) of one command, and its JSON document."""
    began = time.perf_counter()
    command = [*rtrl(), *arguments, "-w", str(root), "--json", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        peak = Peak(process.pid)
        peak.start()
        output, _ = process.communicate()
    seconds = time.perf_counter() - began
    held = peak.stop()
    if process.returncode:
        raise RuntimeError(f"{arguments[0]} ended with {process.returncode}: {output.decode()[-2000:]}")
    return seconds, held, json.loads(output)


def measure(episodes: int) -> dict[str, float]:
    """Seconds and bytes of one size."""
    folder = Path(KEPT) if KEPT else Path(tempfile.mkdtemp(prefix="rtrl-bench-"))
    root, written = folder / str(episodes), folder / f"{episodes}.written"
    try:
        if not written.exists():
            fill(root, episodes)
            written.touch()
        collected, of_collect, document = run(root, "collect", "--force")
        assert document["metrics"]["episodes"] == episodes, document["metrics"]
        distilled, of_distill, _ = run(root, "distill", "--force")
        say(f"{episodes:,} episodes: collect {collected:.1f} s, distill {distilled:.1f} s")
        objects = max((root / "store").rglob("part-00000"), key=lambda part: part.stat().st_mtime).parent
        read = subprocess.run(
            module("_read", root / "spool", root / "keys", objects),
            check=True, stdout=subprocess.PIPE, text=True, env=environment(),
        )  # fmt: skip
        say(f"{episodes:,} episodes: merely read {float(read.stdout):.1f} s")
        return {
            "collect": round(collected, 2),
            "distill": round(distilled, 2),
            "read": float(read.stdout),
            "peak_collect": of_collect,
            "peak_distill": of_distill,
        }
    finally:
        if not KEPT:
            shutil.rmtree(folder, ignore_errors=True)


def figures() -> list[dict[str, Any]]:
    """Whole processes, once: minutes each."""
    small = measure(EPISODES // 10)
    whole = measure(EPISODES)
    seconds = whole["collect"] + whole["distill"]
    less = small["collect"] + small["distill"]
    about = f"{EPISODES:,} episodes, {EPISODES * (PROMPT + OUTPUT):,} tokens"
    peak = max(whole["peak_collect"], whole["peak_distill"])
    return [
        {
            "id": "distill.seconds_1b", "what": f"spool to experience, {about}", "value": round(seconds, 1),
            "unit": "s", "bar": "<= 300", "ours": whole, "runs": 1,
        },
        {
            "id": "distill.rss_gib", "what": "resident memory of all processes, the larger of both commands",
            "value": round(peak / 2**30, 2), "unit": "GiB", "bar": "<= 4", "runs": 1,
        },
        {
            "id": "distill.vs_read", "what": "its time over merely reading and unsealing the same columns",
            "value": round(seconds / whole["read"], 2), "unit": "ratio", "bar": "<= 2",
            "ours": round(seconds, 1), "theirs": whole["read"], "runs": 1,
        },
        {
            "id": "distill.growth_10x", "what": "its time over that of ten times less",
            "value": round(seconds / less, 2), "unit": "ratio", "bar": "<= 11", "ours": small, "runs": 1,
        },
    ]  # fmt: skip
