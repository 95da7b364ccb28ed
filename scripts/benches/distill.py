"""From the spool to experience, as processes: time, memory, and how near that is to merely reading.

A spool is written first, as a gateway would: one million episodes of a thousand tokens (RTRL_BENCH_EPISODES:
so many), each with an answer that is edited in, a measurement of what stands, and a next message. Then
`rtrl collect` and `rtrl distill`, and the same columns read, decompressed and opened by a loop that does
nothing with them. Ten times less is run beside it. It needs 20 GB of disk; where it is stands on stderr.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from _timing import rtrl

EPISODES = int(os.environ.get("RTRL_BENCH_EPISODES", "1000000"))
PROMPT, OUTPUT = 800, 200  # tokens
USERS = 5000
START = 1_760_000_000_000  # ms
BEFORE = """def total(items):
    result = 0
    for item in items:
        result += item.price
    return result
"""
AFTER = BEFORE.replace("item.price", "item.price * item.quantity")
REQUESTS = (
    "make total() respect the quantity",
    "still wrong, it ignores quantity",
    "thanks, now rename it to sum_up",
)

READ = """
import sys, time
from pathlib import Path
from stages import schemas, tables
from stages.distill.facts import _COLUMNS
from stages.spool import Spool
from stages.vault import Vault
began = time.perf_counter()
spool = Spool.open(Path(sys.argv[1]))
bounds = spool.range()
for _ in spool.generations(bounds.first_seq, bounds.last_seq): pass
for _ in spool.events(bounds.first_seq, bounds.last_seq): pass
vault = Vault.open(Path(sys.argv[2]))
from stages.spool.codec import event_aad, generation_aad
for part in tables.parts(Path(sys.argv[3])):
    for batch in tables.batches(part / schemas.GENERATIONS_FILE, schemas.GENERATIONS, _COLUMNS, rows=1024):
        for i, user, sealed in zip(*(batch.column(n).to_pylist() for n in ("id", "user", "sealed"))):
            vault.unseal(user, sealed, generation_aad(i))
    for batch in tables.batches(part / schemas.EVENTS_FILE, schemas.EVENTS, rows=1024):
        columns = [batch.column(n).to_pylist() for n in ("id", "key_id", "user", "sealed")]
        for i, k, user, sealed in zip(*columns):
            if sealed: vault.unseal(user, sealed, event_aad(k, i))
print(time.perf_counter() - began)
"""


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
    random = np.random.default_rng(0)
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
        writer.append_generation(
            generation, tokens, REQUESTS[n % 3], "Done: total() multiplies by quantity now."
        )
        told = {
            "edit_applied": (1000, {"path": "shop.py", "before": BEFORE, "after": AFTER}),
            "edit_survival": (
                3_601_000,
                {"path": "shop.py", "horizon_s": 3600, "now": AFTER if n % 4 else BEFORE},
            ),
            "user_message": (30_000, {"text": REQUESTS[(n + 1) % 3]}),
        }
        writer.append_events(
            [
                Event(id=f"{kind}-{n}", key_id="key", generation_id=generation.id, type=kind, at=at + later,  # type: ignore[arg-type]
                      wall=at + later, data=data)
                for kind, (later, data) in told.items()
            ]
        )  # fmt: skip
        if n % 100_000 == 99_999:
            say(f"spool: {n + 1} of {episodes} episodes written")
    writer.close()
    vault.close()


def run(root: Path, *arguments: str) -> tuple[float, dict[str, Any]]:
    """Seconds of one command, and its JSON document."""
    began = time.perf_counter()
    done = subprocess.run(
        [*rtrl(), *arguments, "-w", str(root), "--json", "--quiet"], check=True, stdout=subprocess.PIPE
    )
    return time.perf_counter() - began, json.loads(done.stdout)


def measure(episodes: int) -> dict[str, float]:
    """Seconds and bytes of one size."""
    folder = Path(tempfile.mkdtemp(prefix="rtrl-bench-"))
    root = folder / "w"
    try:
        fill(root, episodes)
        collected, document = run(root, "collect")
        assert document["metrics"]["episodes"] == episodes, document["metrics"]
        distilled, _ = run(root, "distill")
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        say(f"{episodes} episodes: collect {collected:.1f} s, distill {distilled:.1f} s")
        objects = next((root / "store").rglob("part-00000")).parent
        read = subprocess.run(
            [sys.executable, "-c", READ, str(root / "spool"), str(root / "keys"), str(objects)],
            check=True, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        return {"collect": collected, "distill": distilled, "peak": peak, "read": float(read.stdout)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def figures() -> list[dict[str, Any]]:
    """Whole processes, once: minutes each."""
    small = measure(EPISODES // 10)
    whole = measure(EPISODES)
    seconds = whole["collect"] + whole["distill"]
    less = small["collect"] + small["distill"]
    about = f"{EPISODES:,} episodes, {EPISODES * (PROMPT + OUTPUT):,} tokens"
    return [
        {
            "id": "distill.seconds", "what": f"spool to experience, {about}", "value": round(seconds, 1),
            "unit": "s", "bar": "< 300", "ours": whole, "runs": 1,
        },
        {
            "id": "distill.peak", "what": "resident memory, the larger of both commands",
            "value": round(whole["peak"] / 2**30, 2), "unit": "GiB", "bar": "< 4", "runs": 1,
        },
        {
            "id": "distill.over_reading", "what": "its time over merely reading and opening the same columns",
            "value": round(seconds / whole["read"], 2), "unit": "x", "bar": "<= 2", "theirs": whole["read"],
            "runs": 1,
        },
        {
            "id": "distill.tenth", "what": "its time over that of ten times less",
            "value": round(seconds / less, 2),
            "unit": "x", "bar": "<= 12", "ours": small, "runs": 1,
        },
    ]  # fmt: skip
