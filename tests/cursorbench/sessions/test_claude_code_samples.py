"""Claude Code's logs: real sessions (counts in SOURCES.tsv), and damaged copies of them."""

import csv
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cursorbench.sessions import claude_code
from cursorbench.sessions.items import Edit, Interrupt, Place, Quarantined, ToolEnd, UserTurn
from cursorbench.sessions.seen import Seen
from tests.samples import DATA, real

DIFFERENT = {  # see docs/sources.md
    "entire_entireio_cli/00c9e2351016/3/full.jsonl": {"interrupts": 1},  # the second is quoted by a hook
    "entire_entireio_cli/20160c0576c0/0/full.jsonl": {"user": 6},  # the seventh is a hook's
}
SMALL = [
    b'{"type":"user","uuid":"first","sessionId":"s","isSidechain":false,"message":{"content":"hi"}}',
    b'{"type":"assistant","uuid":"call","sessionId":"s","message":{"model":"m","content":[{"type":"tool_use",'
    b'"id":"t","name":"Edit","input":{"file_path":"a","old_string":"b","new_string":"c"}}]}}',
    b'{"type":"user","uuid":"result","sessionId":"s","message":{"content":[{"type":"tool_result","tool_use_id":"t",'
    b'"content":"ok","is_error":false}]},"toolUseResult":{"filePath":"a","originalFile":"b"}}',
    b'{"type":"queue-operation","operation":"enqueue","sessionId":"s","content":"more"}',
    b'{"type":"user","uuid":"another","sessionId":"s","message":{"content":[{"type":"text","text":"no"}]}}',
]


def samples() -> list[dict[str, str]]:
    if not DATA.is_dir():
        return []
    with (DATA / "SOURCES.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [
        row
        for row in rows
        if row["format"] == "claude-code-jsonl"
        or (row["source"] == "fixtures_git-ai" and "claude" in row["local_path"])
    ]


@real
def test_counts_of_the_real_sessions() -> None:
    rows = samples()
    assert len(rows) == 27
    for row in rows:
        path = DATA / row["local_path"]
        with path.open("rb") as file:
            assert claude_code.recognises(path, file.read(64 << 10)), path
        items = list(claude_code.read(path, Seen()))
        turns = Counter(item.automatic for item in items if isinstance(item, UserTurn))
        ends = Counter(item.outcome for item in items if isinstance(item, ToolEnd))
        found = {
            "user": turns[""] + turns["plan"],  # the notes count plans as said by the user
            "edits": sum(isinstance(item, Edit) and item.status == "applied" for item in items),
            "tool_err": ends.total() - ends["ok"],
            "rejected": ends["rejected"],
            "interrupts": sum(isinstance(item, Interrupt) for item in items),
        }
        noted = re.findall(r"(user|edits|tool_err|rejected|interrupts)=(\d+)", row["note"])
        expected = {name: int(value) for name, value in noted} | DIFFERENT.get(row["local_path"], {})
        assert {name: found[name] for name in expected} == expected, row["local_path"]
        assert not any(isinstance(item, Quarantined) for item in items), row["local_path"]


def read(path: Path, data: bytes) -> list[Any]:
    path.write_bytes(data)
    return list(claude_code.read(path, Seen()))


def texts(items: list[Any], path: Path) -> list[str]:
    """The items without their lines' numbers; what was quarantined left out."""
    told = (item for item in items if not isinstance(item, Quarantined))
    return [re.sub(r"line=\d+", "", repr(item)) for item in told]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("claude") / "log.jsonl"


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(where=st.integers(0, len(SMALL)), garbage=st.binary(max_size=80))
def test_a_line_of_garbage_changes_nothing_else(path: Path, where: int, garbage: bytes) -> None:
    lines = list(SMALL)
    lines.insert(where, garbage.replace(b"\n", b" "))
    assert texts(read(path, b"\n".join(lines)), path) == texts(read(path, b"\n".join(SMALL)), path)


@settings(max_examples=50)
@given(data=st.data())
def test_damage_loses_no_other_line(path: Path, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(SMALL) - 1))
    line = bytearray(SMALL[number])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(line) - 1))
        line[place : place + data.draw(st.integers(0, 12))] = data.draw(st.binary(max_size=6))
        if not line:
            break
    damaged = [*SMALL[:number], bytes(line).replace(b"\n", b" "), *SMALL[number + 1 :]]
    said = [item.text for item in read(path, b"\n".join(damaged)) if isinstance(item, UserTurn)]
    for own, text in ((0, "hi"), (4, "no")):
        assert number == own or text in said


def test_two_lines_without_an_end_between_them(path: Path) -> None:
    assert texts(read(path, b"".join(SMALL)), path) == texts(read(path, b"\n".join(SMALL)), path)
    torn = read(path, SMALL[0][:60] + SMALL[4])
    assert [item.text for item in torn if isinstance(item, UserTurn)] == ["no"]
    assert sum(isinstance(item, Quarantined) for item in torn) == 1


@real
@settings(max_examples=40)
@given(data=st.data())
def test_damaged_real_sessions_raise_nothing(path: Path, data: st.DataObject) -> None:
    real = (DATA / "entire_entireio_cli/ee8f793bfeb9/0/full.jsonl").read_bytes()
    lines = data.draw(st.permutations(real.splitlines()[:12]))
    whole = bytearray(b"\n".join(lines))
    for _ in range(data.draw(st.integers(1, 30))):
        place = data.draw(st.integers(0, len(whole) - 1))
        whole[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    for item in read(path, bytes(whole)):
        assert isinstance(item.place, Place)
