"""Logs are read as streams: a reader keeps ids so that nothing is told twice, and no texts."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path

import pytest

from cursorbench.sessions import kinds
from tests.samples import DATA, real

LONG = 8 << 20  # bytes of the log
HELD, EACH = 2 << 20, 160  # bytes that may be held at once: in any case, and for each item
SAMPLES = {
    "claude-code": "entire_entireio_cli/*/*/full.jsonl",
    "codex": "entire_agentv/*/*/full.jsonl",
    "copilot-cli": "entire_agentv/*/*/full.jsonl",
    "specstory": "specstory_*/*.md",
    "aider": "aider_*/*",
}


def _sample(kind: str) -> str:
    """The shortest of the real logs of a kind."""
    found = [path for path in DATA.glob(SAMPLES[kind]) if kinds.kind_of(path) == kind]
    assert found, f"no log of {kind} is there"
    return min((path.read_text("utf-8") for path in found), key=len)


def _held(path: Path) -> tuple[int, int]:
    """(items, bytes held at most) of reading a log and keeping nothing."""
    tracemalloc.start()
    try:
        return sum(1 for _ in kinds.read(path)), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@real
@pytest.mark.parametrize("kind", SAMPLES)
def test_the_memory_a_reader_takes_is_not_that_of_the_logs_text(kind: str, tmp_path: Path) -> None:
    text = _sample(kind)
    suffix = ".md" if kind in ("specstory", "aider") else ".jsonl"
    path = tmp_path / f"log{suffix}"
    with path.open("w", encoding="utf-8") as file:
        for number in range(LONG // len(text.encode()) + 1):
            file.write(re.sub(r"[0-9a-f]{8}(?=-[0-9a-f]{4}-)", f"{number:08x}", text).rstrip("\n") + "\n")
    items, held = _held(path)
    assert items > 100
    assert held < HELD + EACH * items < LONG
