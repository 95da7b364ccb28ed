"""Codex rollouts: the real ones, copies of copies, and bytes nobody wrote."""

from __future__ import annotations

import json
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorbench.sessions import codex
from cursorbench.sessions.items import Edit, Interrupt, Quarantined, Read, SessionStart, ToolEnd, UserTurn
from cursorbench.sessions.seen import Seen
from tests.cursorbench.sessions.garbage import FEW, damaged, retyped
from tests.samples import DATA

SESSION = "019a0000-0000-7000-8000-00000000abcd"


def line(kind: str, number: int, **payload: Any) -> dict[str, Any]:
    return {"timestamp": f"2026-01-02T03:04:05.{number:03d}Z", "type": kind, "payload": payload}


def said(role: str, text: str, number: int) -> dict[str, Any]:
    content = [{"type": "input_text", "text": text}]
    return line("response_item", number, type="message", role=role, content=content)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / f"rollout-2026-01-02T03-04-05-{SESSION}.jsonl"


@pytest.mark.parametrize(
    ("sample", "people", "applied", "errors"),
    [("4f7325a9ab13/0", 10, 1, 0), ("a57b22d8d4bd/0", 6, 5, 2), ("b9220e73bdf9/1", 6, 1, 4)],
)
def test_real_rollouts(sample: str, people: int, applied: int, errors: int) -> None:
    path = DATA / "entire_agentv" / sample / "full.jsonl"
    if not path.exists():
        pytest.skip("the shared session logs are not here")
    assert codex.recognises(path, path.read_bytes()[: 64 << 10])
    found = list(codex.read(path, Seen()))
    assert not [one for one in found if isinstance(one, Quarantined | Interrupt)]
    assert sum(isinstance(one, UserTurn) and not one.automatic for one in found) == people
    assert sum(isinstance(one, Edit) and one.status == "applied" for one in found) == applied
    ends = [one.outcome for one in found if isinstance(one, ToolEnd)]
    assert (ends.count("error"), ends.count("rejected")) == (errors, 0)
    assert sum(isinstance(one, SessionStart) for one in found) == 1


PATCH = "*** Begin Patch\n*** Add File: b.py\n+new\n*** End Patch\n"
LOG = [
    line("session_meta", 0, id=SESSION, cwd="/w", git={"branch": "main"}),
    said("user", "please", 1),
    line("event_msg", 2, type="user_message", message="please"),
    line("response_item", 3, type="custom_tool_call", name="apply_patch", call_id="c1", input=PATCH),
    line("response_item", 4, type="custom_tool_call_output", call_id="c1", output="Success"),
    line("event_msg", 5, type="agent_message", message="Done."),
    said("assistant", "Done.", 6),
    line("event_msg", 7, type="turn_aborted", reason="interrupted"),
]
PATCHED = line("event_msg", 8, type="patch_apply_end", call_id="c", changes={"p": {}})
BYTES = "".join(json.dumps(one) + "\n" for one in LOG).encode()


def placeless(found: list[Read]) -> list[str]:
    return [repr({k: getattr(one, k) for k in one.__struct_fields__ if k != "place"}) for one in found
            if not isinstance(one, Quarantined)]  # fmt: skip


@FEW
@given(st.integers(0, len(LOG)), st.binary(max_size=60).map(lambda b: b.replace(b"\n", b"")))
def test_a_garbage_line_takes_nothing_with_it(path: Path, at: int, garbage: bytes) -> None:
    rows = BYTES.splitlines(keepends=True)
    path.write_bytes(BYTES)
    whole = placeless(list(codex.read(path, Seen())))
    path.write_bytes(b"".join([*rows[:at], b"{" + garbage + b"\xff\n", *rows[at:]]))
    assert placeless(list(codex.read(path, Seen()))) == whole


@FEW
@given(st.data())
def test_wrong_types_and_damaged_bytes(path: Path, data: st.DataObject) -> None:
    row = retyped(data.draw(st.sampled_from([*LOG, PATCHED])), data)
    path.write_bytes(BYTES)
    whole = list(codex.read(path, Seen()))
    raw = damaged(BYTES + json.dumps(row).encode(), data, changes=4)
    path.write_bytes(raw)
    found = list(codex.read(path, Seen()))
    assert {one.place.file for one in found} <= {str(path)}
    assert {one.place.line for one in found} <= {0, *range(1, len(raw.split(b"\n")) + 1)}
    pairs = zip(BYTES.split(b"\n"), raw.split(b"\n"), strict=False)
    intact = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))  # of them nothing is lost
    assert [one for one in found if 0 < one.place.line < intact] == [
        one for one in whole if 0 < one.place.line < intact
    ]
    json.dumps([repr(one) for one in found]).encode()


def test_cumulative_copies_are_said_once(path: Path, tmp_path: Path) -> None:
    seen, longer = Seen(), tmp_path / "full.jsonl"
    path.write_bytes(BYTES)
    longer.write_bytes(BYTES + json.dumps(said("user", "more", 9)).encode())
    assert len(list(codex.read(path, seen))) == 8
    assert [one.text for one in codex.read(longer, seen) if isinstance(one, UserTurn)] == ["more"]
    assert list(codex.read(longer, seen)) == []


def test_what_tells_nothing_is_no_unknown_type(path: Path) -> None:
    """Of 0.171."""
    events = (
        "environment_connected",
        "environment_disconnected",
        "thread_queue_changed",
        "elicitation_abandoned",
    )
    given = [line("event_msg", 1, type=one) for one in (*events, "auth_recovery_started")]
    given += [line("response_item", 1, type="configuration_update"), line("dynamic_tools_updated", 1)]
    path.write_text("".join(json.dumps(one) + "\n" for one in given))
    assert list(codex.read(path, Seen())) == []


def test_what_cannot_be_read_is_quarantined(path: Path) -> None:
    given = [
        {"type": "novel/\u00e9" + "x" * 60, "payload": {}},
        {"type": "session_meta", "payload": 3},
        line("event_msg", 1, type="brand_new"),
        line("response_item", 1, type="brand_new"),
        line("response_item", 1, type="function_call", call_id="c"),
        line("response_item", 1, type="function_call_output", call_id="c"),
        line("response_item", 1, type="message", role="user", content=4),
        line("event_msg", 1, type="user_message", message=None),
        {"x": 1},
    ]
    path.write_text("".join(json.dumps(one) + "\n" for one in given))
    found = list(codex.read(path, Seen()))
    assert [one.reason for one in found if isinstance(one, Quarantined)] == [
        "unknown_type",
        "session_meta without a payload",
        "unknown_type:event_msg",
        "unknown_type:response_item",
        "function_call without a name",
        "function_call_output without an output",
        "a message without content",
        "user_message without a message",
        "no type",
    ]
    assert len(found) == 9


def test_objects_that_share_a_line_are_read(path: Path) -> None:
    rows = BYTES.splitlines()
    path.write_bytes(BYTES)
    whole = placeless(list(codex.read(path, Seen())))
    path.write_bytes(b"".join(rows[:3]) + b"\n" + rows[3][:40] + b"\n".join(rows[3:]))
    found = list(codex.read(path, Seen()))
    assert placeless(found) == whole
    assert sum(isinstance(one, Quarantined) for one in found) == 1
