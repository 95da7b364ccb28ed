"""Logs are read as streams: a reader keeps ids so that nothing is told twice, and no texts."""

from __future__ import annotations

import json
import re
import tracemalloc
from pathlib import Path

import pytest

from cursorbench.sessions import kinds
from tests.samples import DATA, real

LONG = 3 << 20  # bytes of the log
HELD, EACH = 1 << 20, 160  # bytes that may be held at once: in any case, and for each item
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


WORDS = "bread " * 4_000


def _edited(kind: str, number: int) -> str:
    """The lines of an edit that was applied, with texts of 24 kB."""
    if kind == "aider":
        block = f"a.py\n```\n<<<<<<< SEARCH\n{number}\n=======\n{WORDS}\n>>>>>>> REPLACE\n```\n"
        return f"\n#### bake  \n\n{block}\n> Applied edit to a.py  \n> Commit {number:07x} bread  \n"
    one, when = f"c{number}", "2026-01-02T03:04:05Z"
    if kind == "codex":
        patch = f"*** Begin Patch\n*** Add File: a.py\n+{WORDS}\n*** End Patch"
        call = {"type": "custom_tool_call", "call_id": one, "name": "apply_patch", "input": patch}
        end = {"type": "custom_tool_call_output", "call_id": one, "output": "Done"}
        lines = [{"timestamp": when, "type": "response_item", "payload": each} for each in (call, end)]
    else:
        told = {"timestamp": when, "id": one}
        asked = {"toolCallId": one, "toolName": "create", "arguments": {"path": "a.py", "file_text": WORDS}}
        done = {"toolCallId": one, "success": True, "result": {"content": "Done"}}
        lines = [
            told | {"type": "tool.execution_start", "data": asked},
            told | {"type": "tool.execution_complete", "data": done, "id": f"{one}-end"},
        ]
    return "".join(json.dumps(each) + "\n" for each in lines)


@pytest.mark.parametrize("kind", ["codex", "copilot-cli", "aider"])
def test_what_may_be_undone_later_is_kept_without_its_texts(kind: str, tmp_path: Path) -> None:
    path = tmp_path / ("log.md" if kind == "aider" else "log.jsonl")
    begun = "# aider chat started at 2026-01-02 03:04:05\n" if kind == "aider" else ""
    path.write_text(begun + "".join(_edited(kind, number) for number in range(100)))
    assert kinds.kind_of(path) == kind
    items, held = _held(path)
    assert items > 300
    assert held < 1 << 20 < path.stat().st_size // 2
