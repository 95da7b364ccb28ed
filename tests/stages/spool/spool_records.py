"""Records for the spool's tests."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.records import Event, Generation, Payload, Sampling, Span
from stages.spool import Spool, SpoolWriter, Tokens
from stages.spool.frames import FRAME, HEADER
from stages.spool.index import Index
from stages.spool.segment import path_of
from stages.vault import Vault


def generation(gid: str, **fields: Any) -> Generation:
    defaults: dict[str, Any] = {
        "id": gid, "key_id": "k1", "user": "ada", "session": "s1", "episode": "s1/1", "ordinal": 0,
        "at": 1_000, "wall": 1_000, "line": "auto", "arm": "live", "deployment": "", "api": "chat",
        "sampling": Sampling(), "spans": (Span(0, 2, "sha256:a"),), "finish_reason": "stop",
        "prompt_tokens": 0, "output_tokens": 0, "ttft_ms": 1.0, "duration_ms": 2.0,
    }  # fmt: skip
    return Generation(**(defaults | fields))


def event(eid: str, gid: str, **fields: Any) -> Event:
    defaults: dict[str, Any] = {
        "id": eid, "key_id": "k1", "generation_id": gid, "type": "user_message", "at": 2_000,
        "wall": time.time_ns() // 1_000_000, "data": {"text": "still wrong"},
    }  # fmt: skip
    return Event(**(defaults | fields))


def tokens(prompt: list[int], output: list[int], logprobs: list[float] | None = None) -> Tokens:
    values = [-0.5] * len(output) if logprobs is None else logprobs
    return Tokens(np.array(prompt, np.int32), np.array(output, np.int32), np.array(values, np.float32))


def writer(root: Path, **limits: Any) -> SpoolWriter:
    return SpoolWriter(root / "spool", Vault.create(root / "keys"), **({"fsync_ms": 1.0} | limits))


def ids(reader: Spool) -> list[str]:
    return [g.id for _, g, _ in reader.generations(0, 1 << 60, on_damage=lambda _: None)]


def full_tokens(reader: Spool, gid: str, vault: Vault) -> Tokens:
    """Exact tokens of one generation, its prompt in full."""
    return reader.chains(vault).open(*reader.record(gid))[1]


def payload(reader: Spool, gid: str, vault: Vault) -> Payload:
    """What is stored of one generation; its prompt is a suffix."""
    return reader.chains(vault).open(*reader.record(gid))[0]


def checked(reader: Spool) -> int:
    """Read every byte. Returns the number of good records; raises SpoolDamagedError as any reader would."""
    generations = sum(1 for _ in reader.generations(0, 1 << 62))
    return generations + sum(1 for _ in reader.events(0, 1 << 62))


def fill(root: Path, n: int = 5) -> Path:
    """A closed spool of n generations, each with an event. Returns its one segment."""
    spool = writer(root)
    for i in range(n):
        spool.append_generation(generation(f"g{i}", at=i), tokens([1, 2, 3], [4]), "q", f"answer {i}")
        spool.append_events([event(f"e{i}", f"g{i}")])
    spool.close()
    return path_of(root / "spool", 1)


def killed_before_indexing(writer: SpoolWriter, act: Callable[[], object], patch: pytest.MonkeyPatch) -> None:
    """The writer writes what `act` writes, and ends before the index has it."""
    writer.flush()
    with patch.context() as broken:

        def full(*_: object) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        broken.setattr(Index, "commit", full)
        act()
        writer.close()


def offsets(path: Path) -> list[int]:
    """Where each frame begins."""
    data, place, found = path.read_bytes(), HEADER.size, []
    while place < len(data):
        found.append(place)
        place += FRAME.size + FRAME.unpack_from(data, place)[1]
    return found


def statuses(spool: SpoolWriter, *events: Event) -> list[str]:
    return [f"{r.status} {r.reason}".strip() for r in spool.append_events(events)]
