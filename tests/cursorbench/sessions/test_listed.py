"""Logs that are one list: the same records however it is laid out, how long it is, and wherever it ends."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from cursorbench.sessions import kinds, listed, records
from cursorbench.sessions.items import Place, Quarantined, UserTurn
from cursorbench.sessions.reading import json_document

Layout = Callable[[list[Any]], str]
LAYOUTS: dict[str, Layout] = {
    "compact": partial(json.dumps, separators=(",", ":")),
    "spaced": json.dumps,
    "indented": partial(json.dumps, indent=2),
    "tabs": partial(json.dumps, indent="\t"),
    "lines": lambda rows: "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n",
    "commas first": lambda rows: "[" + "\n,".join(map(json.dumps, rows)) + "]",
}
SESSION = {"sessionId": "5a0c1f6e-1111-4222-8333-444455556666", "timestamp": "2026-01-02T03:04:05Z"}
LOG = [
    {"type": "user", "uuid": f"u{n}", **SESSION, "message": {"role": "user", "content": f"ask ] }},{n}"}}
    for n in range(9)
]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of more than 64 bytes is too long to be read as one document."""
    for module in (listed, records):
        monkeypatch.setattr(module, "json_document", partial(json_document, max_bytes=64))


def told(path: Path) -> tuple[list[Any], list[str]]:
    """What a log tells, wherever that stands; and what of it cannot be read."""
    found = [item for _, item in kinds.read(path)]
    lost = [one.reason for one in found if isinstance(one, Quarantined)]
    return [structs.replace(one, place=Place("")) for one in found if not isinstance(one, Quarantined)], lost


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_that_is_too_long_for_a_document_is_read(layout: str, tmp_path: Path) -> None:
    """Of 300 MB all was lost where they stand on one line, and each line was quarantined, though read."""
    plain, path = tmp_path / "plain.jsonl", tmp_path / "list.json"
    plain.write_text("".join(json.dumps(one) + "\n" for one in LOG))
    path.write_text("\ufeff" * (layout == "tabs") + LAYOUTS[layout](LOG))
    assert kinds.kind_of(path) == "claude-code"
    assert told(path) == told(plain)
    assert len([one for one in told(path)[0] if isinstance(one, UserTurn)]) == len(LOG)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_of_one_that_is_cut_off_what_is_before_is_read(layout: str, tmp_path: Path) -> None:
    """Clients are killed while they write; of an indented one all was lost."""
    path = tmp_path / "list.json"
    text = LAYOUTS[layout](LOG)
    path.write_text(text[: text.index("ask ] },7")])
    items, lost = told(path)
    assert [one.text for one in items if isinstance(one, UserTurn)] == [f"ask ] }},{n}" for n in range(7)]
    by_line = layout in ("lines", "commas first")
    cut = "the list is cut off"
    assert lost == (["not valid JSON", cut] if by_line else [f"{cut}: what is behind is not read"])


def test_a_damaged_line_of_one_costs_that_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    lines = LAYOUTS["lines"](LOG).split("\n")
    lines[3] = lines[3][:40]
    path.write_text("\n".join(lines))
    found = [item for _, item in kinds.read(path)]
    assert [one.text[-1] for one in found if isinstance(one, UserTurn)] == list("01345678")
    assert [(one.reason, one.place.line) for one in found if isinstance(one, Quarantined)] == [
        ("not valid JSON", 4)
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[{"a": 1}, {"b": 2}] [{"c": 3}]', "more stands behind the list: what is behind is not read"),
        ('[{"a": 1}, {"b": 2}, {"c": NaN}]', "the list is cut off: what is behind is not read"),
    ],
)
def test_why_not_all_of_one_is_read(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "list.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with listed.lined(path) as (file, why):
        assert [one[1] for one in records.records(file) if isinstance(one, tuple)][:2] == [{"a": 1}, {"b": 2}]
    assert why == reason


def test_bytes_that_are_no_utf_8_cost_their_record(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_bytes(b'[{"a":\n 1},\n {"b": "\xff"},\n {"c":\n "\xc3\xa9"}]')
    with listed.lined(path) as (file, why):
        found = list(records.records(file))
    assert why == ""
    assert [one[1] for one in found if isinstance(one, tuple)] == [{"a": 1}, {"c": "\u00e9"}]
    assert [(one.reason, one.place.line) for one in found if isinstance(one, Quarantined)] == [
        ("not valid JSON", 2)
    ]


@pytest.mark.parametrize("text", ['[INFO] begun\n{"a": 1}\n', '[1, 2]\n{"a": 1}\n', "[[{}]]", "[", "[]", ""])
def test_what_is_no_list_of_records_is_read_as_it_stands(tmp_path: Path, text: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    with listed.lined(path) as (file, why):
        assert (file, why) == (path, "")


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["],", "[{", "\u2028"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(
    rows=st.lists(st.dictionaries(st.text(max_size=4), _VALUES, max_size=4), min_size=1, max_size=8),
    layout=st.sampled_from(sorted(LAYOUTS)),
    part=st.floats(0, 1),
    piece=st.integers(1, 40),
    backwards=st.booleans(),
)
def test_any_cut_off_anywhere_gives_its_first_records(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[dict[str, Any]],
    layout: str,
    part: float,
    piece: int,
    backwards: bool,
) -> None:
    rows = [{**row, "number": n} for n, row in enumerate(rows)]
    text = LAYOUTS[layout](rows)
    whole = [text.index(f'"number":{" " * (layout != "compact")}{n}') for n in range(len(rows))]
    cut = round(part * len(text))
    path = tmp_path_factory.mktemp("lists") / "list.json"
    path.write_text(text[:cut])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(listed, "_PIECE", piece)
        with listed.lined(path) as (file, _):
            read = [one[1] for one in records.records(file, backwards=backwards) if isinstance(one, tuple)]
    read = read[::-1] if backwards else read
    begun = sum(at < cut for at in whole)
    assert read == rows[: len(read)]
    assert len(read) >= min(begun - 1, len(rows))
    assert cut < len(text.rstrip()) or read == rows


def test_one_that_is_long_takes_no_memory_for_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps([{"text": "bread " * 1000, "n": n} for n in range(1000)]))
    monkeypatch.setattr(listed, "json_document", partial(json_document, max_bytes=1 << 20))
    monkeypatch.setattr(listed, "_PIECE", 1 << 16)
    tracemalloc.start()
    try:
        with listed.lined(path) as (file, why):
            assert sum(1 for _ in file.open()) == 1000
            held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert not why
    assert held < 1 << 20 < path.stat().st_size // 4
