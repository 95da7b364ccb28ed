"""Rows as the data sets have them, there and back."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorbench.errors import InputMissingError, IntegrityError
from cursorbench.exchange import rows
from cursorbench.exchange.rows import BadRow, Row
from cursorbench.sessions.compressed import unpacked
from cursorbench.sessions.reading import unreadable

GOOD: dict[str, Any] = {
    "repo": "django/django",
    "instance_id": "django__django-1",
    "base_commit": "a" * 40,
    "patch": "diff --git a/x b/x\n",
    "test_patch": "diff --git a/t b/t\n",
    "problem_statement": "It breaks.",
    "hints_text": "",
    "created_at": "2022-03-03T15:14:54Z",
    "version": "4.1",
    "FAIL_TO_PASS": '["t.py::test_a"]',
    "PASS_TO_PASS": "[]",
    "environment_setup_commit": "b" * 40,
}

text = st.text(st.characters(codec="utf-8"))
said = text.filter(lambda value: value.strip() != "")
names = st.lists(text, unique=True).map(tuple)
moments = st.datetimes(
    min_value=datetime(1990, 1, 1), max_value=datetime(2100, 1, 1), timezones=st.just(UTC)
).map(lambda moment: moment.isoformat())


@given(
    st.builds(
        Row,
        repo=said,
        instance_id=said,
        base_commit=said,
        patch=said,
        test_patch=said,
        problem_statement=said,
        hints_text=text,
        created_at=st.one_of(st.just(""), moments),
        version=text,
        fail_to_pass=names,
        pass_to_pass=names,
        environment_setup_commit=text,
    )
)
def test_there_and_back(row: Row) -> None:
    found = rows.dump(row)
    assert tuple(found) == rows.COLUMNS
    assert all(isinstance(value, str) for value in found.values())
    assert rows.parse(json.loads(json.dumps(found))) == row


def test_columns_of_the_published_ones() -> None:
    row = rows.parse(GOOD)
    assert (row.fail_to_pass, row.pass_to_pass) == (("t.py::test_a",), ())
    assert row.created_at == "2022-03-03T15:14:54+00:00"
    assert rows.dump(row) == GOOD


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        ("2022-03-03 15:14:54", "2022-03-03T15:14:54+00:00"),
        ("2022-03-03 15:14:54 UTC", "2022-03-03T15:14:54+00:00"),
        (1646320494, "2022-03-03T15:14:54+00:00"),
        (1646320494000, "2022-03-03T15:14:54+00:00"),
        (datetime(2022, 3, 3, tzinfo=UTC), "2022-03-03T00:00:00+00:00"),
        (None, ""),
    ],
)
def test_dates_of_variants(value: object, moment: str) -> None:
    assert rows.parse({**GOOD, "created_at": value}).created_at == moment


def test_lists_that_are_lists() -> None:
    row = rows.parse({**GOOD, "FAIL_TO_PASS": ["a", "b", "a"], "PASS_TO_PASS": None})
    assert (row.fail_to_pass, row.pass_to_pass) == (("a", "b"), ())


def test_lists_as_python_prints_them() -> None:
    """SWE-bench Pro has them so; all its rows were refused."""
    row = rows.parse({**GOOD, "FAIL_TO_PASS": """['a::t1', "b::it's"]""", "PASS_TO_PASS": "[]"})
    assert (row.fail_to_pass, row.pass_to_pass) == (("a::t1", "b::it's"), ())
    with pytest.raises(ValueError, match="FAIL_TO_PASS holds no list"):
        rows.parse({**GOOD, "FAIL_TO_PASS": "[exit()]"})


BAD = [
    ({"patch": ""}, "patch is missing or no text"),
    ({"problem_statement": 7}, "problem_statement is missing or no text"),
    ({"FAIL_TO_PASS": "test_a"}, "FAIL_TO_PASS holds no list"),
    ({"FAIL_TO_PASS": '{"a": 1}'}, "FAIL_TO_PASS is no list of test names"),
    ({"FAIL_TO_PASS": [1]}, "FAIL_TO_PASS is no list of test names"),
    ({"created_at": "yesterday"}, "created_at is no date: 'yesterday'"),
    ({"created_at": 1e300}, "created_at is no date"),
    ({"created_at": "9999-12-31T00:00:00Z"}, "created_at is no date"),
    ({"created_at": "0001-01-01T00:00:00+14:00"}, "created_at is no date"),
    ({"hints_text": ["a"]}, "hints_text is no text"),
    ({"FAIL_TO_PASS": "{[]: 1}"}, "FAIL_TO_PASS holds no list"),
    ({"patch": "diff \ud83d"}, "patch holds half a surrogate pair"),
    ({"hints_text": "\ud83d"}, "hints_text holds half a surrogate pair"),
    ({"PASS_TO_PASS": ["\ud83d"]}, "PASS_TO_PASS holds half a surrogate pair"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_a_row_that_is_none(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rows.parse({**GOOD, **change})


def test_files_of_rows(tmp_path: Path) -> None:
    lines = tmp_path / "rows.jsonl"
    lines.write_text(json.dumps(GOOD) + "\n\n{broken\n7\n" + json.dumps({**GOOD, "repo": ""}) + "\n")
    first, *bad = list(rows.read(lines))
    assert isinstance(first, Row)
    assert [(one.place, one.name) for one in bad if isinstance(one, BadRow)] == [
        (3, ""),
        (4, ""),
        (5, "django__django-1"),
    ]
    listed = tmp_path / "rows.json"
    listed.write_text(json.dumps([GOOD, GOOD]))
    assert list(rows.read(listed)) == [first, first]
    listed.write_text(json.dumps([GOOD]), encoding="utf-8-sig")
    assert list(rows.read(listed)) == [first]
    with pytest.raises(InputMissingError):
        rows.read(tmp_path / "none.jsonl")
    listed.write_text("[1,")
    with pytest.raises(IntegrityError, match="is no JSON list"):
        list(rows.read(listed))
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(lines.read_bytes()))
    assert list(rows.read(tmp_path / "rows.jsonl.gz")) == [first, *bad]
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(lines.read_bytes())[:-9])
    with pytest.raises(IntegrityError, match="the compressed file is damaged"):
        list(rows.read(tmp_path / "rows.jsonl.gz"))


def test_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist([GOOD]), tmp_path / "rows.parquet")
    assert list(rows.read(tmp_path / "rows.parquet")) == [rows.parse(GOOD)]
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(IntegrityError, match="is no parquet"):
        list(rows.read(tmp_path / "bad.parquet"))


def test_a_small_parquet_file_of_many_long_rows_takes_little_memory(tmp_path: Path) -> None:
    """All rows were in memory at once: 230 kB took 20 GB, and the kernel ended rtrl or somebody else."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    many = 1500
    columns: dict[str, Any] = {name: pa.repeat(GOOD[name], many) for name in ("repo", "base_commit", "patch")}
    columns |= {"test_patch": pa.repeat("t", many), "instance_id": pa.array([f"a-{n}" for n in range(many)])}
    columns |= {"problem_statement": pa.repeat("x" * 100_000, many), "of no use": pa.repeat("y" * 9999, many)}
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(columns), path, compression="zstd", store_schema=False)
    del columns
    assert path.stat().st_size < 100_000
    pool = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(pool)
    pa.set_memory_pool(counting)
    try:
        assert sum(isinstance(row, Row) for row in rows.read(path)) == many
    finally:
        pa.set_memory_pool(pool)
    assert 0 < counting.max_memory() < 32 << 20


def test_values_of_parquet_that_are_none_in_python(tmp_path: Path) -> None:
    """One of them was a bug's traceback, and one endless list took all memory."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def read(column: str, values: Any) -> Row | BadRow:
        table = pa.Table.from_pylist([{name: v for name, v in GOOD.items() if name != column}])
        pq.write_table(table.append_column(column, values), tmp_path / "odd.parquet", compression="zstd")
        (found,) = rows.read(tmp_path / "odd.parquet")
        return found

    found = read("created_at", pa.array([2**62], pa.timestamp("us")))
    assert isinstance(found, BadRow)
    assert "a value that cannot be read" in found.detail
    found = read("created_at", pa.array([1], pa.timestamp("us", tz="No/Where")))
    assert isinstance(found, BadRow)
    long = pa.ListArray.from_arrays(pa.array([0, 20_000_000], pa.int32()), pa.repeat("", 20_000_000))
    assert read("PASS_TO_PASS", long) == BadRow(1, "", "longer than 64 MB")
    found = read("created_at", pa.array([1_600_000_000_000], pa.timestamp("ms")))
    assert isinstance(found, Row)
    assert found.created_at == "2020-09-13T12:26:40+00:00"


@given(st.binary(max_size=300))
def test_any_bytes_are_rows_or_said_to_be_none(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(content)
    try:
        assert all(isinstance(one, Row | BadRow) for one in rows.read(path))
    except IntegrityError:  # also of four bytes that say that the rest is compressed
        with unpacked(path) as (file, damage):
            assert damage or file.read_bytes().lstrip().startswith(b"[") or unreadable(path)
