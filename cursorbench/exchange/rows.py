"""Rows of SWE-bench and its variants, read and written as the published data sets have them.

All values are texts; FAIL_TO_PASS and PASS_TO_PASS are texts that hold a JSON list. Variants that give real
lists (SWE-Gym, SWE-rebench, SWE-bench-extra) are read as well. Not here: making tasks of rows
(`swebench_import.py`), rows of tasks (`swebench_export.py`).
"""

from __future__ import annotations

import ast
import codecs
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cursorbench.errors import InputMissingError, IntegrityError
from cursorbench.sessions.compressed import unpacked
from cursorbench.sessions.reading import unreadable

if TYPE_CHECKING:
    import pyarrow

COLUMNS = (
    "repo",
    "instance_id",
    "base_commit",
    "patch",
    "test_patch",
    "problem_statement",
    "hints_text",
    "created_at",
    "version",
    "FAIL_TO_PASS",
    "PASS_TO_PASS",
    "environment_setup_commit",
)
_NEEDED = ("repo", "instance_id", "base_commit", "patch", "test_patch", "problem_statement")
_PATCHES = ("patch", "test_patch")  # bytes that are no UTF-8 may stand in them, as Python writes such
_MOST, _TOO_LONG = 64 << 20, "longer than 64 MB"  # bytes of a line, or of a row
_AT_ONCE = 16  # rows of parquet
_YEARS = (1970, 9998)  # of dates


@dataclass(frozen=True)
class Row:
    """One row. `created_at` is ISO 8601 with zone, "" where the row has no date."""

    repo: str
    instance_id: str
    base_commit: str
    patch: str
    test_patch: str
    problem_statement: str
    hints_text: str
    created_at: str
    version: str
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    environment_setup_commit: str


@dataclass(frozen=True)
class BadRow:
    """What is no row, and why. `place`: the line, or the row's number, from 1."""

    place: int
    name: str
    detail: str


def read(path: Path) -> Iterator[Row | BadRow]:
    """Every row of a file: JSON lines, a JSON list, both also compressed, or parquet.

    Raises:
        InputMissingError: (exit 5) there is no such file.
        IntegrityError: (exit 12) it is none of these at all.
    """
    hint = "a file of rows: .jsonl, .json or .parquet"
    if not path.is_file():
        raise InputMissingError(f"{path} is not there", hint=hint)
    if why := unreadable(path):
        raise IntegrityError(f"{path}: {why}", hint=hint)
    return _rows(path)


def _rows(path: Path) -> Iterator[Row | BadRow]:
    with unpacked(path) as (file, damage):
        if damage:
            raise IntegrityError(f"{path}: {damage}")
        for place, found in _objects(path, file):
            yield _row(place, found)


def _objects(path: Path, file: Path) -> Iterator[tuple[int, Any]]:
    """Of `file`, which is what `path` holds."""
    if path.suffix == ".parquet":
        yield from enumerate(_parquet(path), 1)
        return
    with file.open("rb") as stream:
        listed = stream.read(64).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")
        stream.seek(0)
        if listed:
            try:
                yield from enumerate(json.load(stream), 1)
            except (ValueError, RecursionError) as error:
                raise IntegrityError(f"{path} is no JSON list: {error}") from error
            return
        for place, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                yield place, json.loads(line) if len(line) <= _MOST else _TOO_LONG
            except (ValueError, RecursionError) as error:
                yield place, f"no JSON: {error}"


def _parquet(path: Path) -> Iterator[Any]:
    """Each row's object, or why there is none. Few at a time: some kilobytes of a file may be gigabytes."""
    import pyarrow
    import pyarrow.parquet

    wanted = {*COLUMNS, *(column.lower() for column in COLUMNS)}
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            columns = [name for name in file.schema_arrow.names if name in wanted]
            for batch in file.iter_batches(batch_size=_AT_ONCE, columns=columns):
                for n in range(batch.num_rows):
                    yield _plain(batch.slice(n, 1))
    except (pyarrow.ArrowException, OSError) as error:
        raise IntegrityError(f"{path} is no parquet: {error}") from error


def _plain(row: pyarrow.RecordBatch) -> Any:
    if row.nbytes > _MOST:
        return _TOO_LONG
    try:
        return row.to_pylist()[0]
    except (ValueError, OverflowError, LookupError) as error:  # a date that none is, an unknown zone
        return f"a value that cannot be read: {error}"


def _row(place: int, found: Any) -> Row | BadRow:
    if not isinstance(found, dict):
        return BadRow(place, "", found if isinstance(found, str) else "no JSON object")
    name = str(found.get("instance_id") or "").encode("utf-8", "backslashreplace").decode()
    try:
        return parse(found)
    except ValueError as error:
        return BadRow(place, name, str(error))


def parse(found: Mapping[str, Any]) -> Row:
    """A row's object as a row.

    Raises:
        ValueError: a column is missing or is none; the message names it.
    """
    for column in _NEEDED:
        if not isinstance(found.get(column), str) or not found[column].strip():
            raise ValueError(f"{column} is missing or no text")
        _unicode(found[column], column)
    return Row(
        repo=found["repo"],
        instance_id=found["instance_id"],
        base_commit=found["base_commit"],
        patch=found["patch"],
        test_patch=found["test_patch"],
        problem_statement=found["problem_statement"],
        hints_text=_text(found, "hints_text"),
        created_at=_moment(found.get("created_at")),
        version=_text(found, "version"),
        fail_to_pass=_names(found, "FAIL_TO_PASS"),
        pass_to_pass=_names(found, "PASS_TO_PASS"),
        environment_setup_commit=_text(found, "environment_setup_commit"),
    )


def _unicode(text: str, column: str) -> str:
    """The text. Raises ValueError for half a surrogate pair, which JSON may hold and no file can."""
    try:
        text.encode("utf-8", "surrogateescape" if column in _PATCHES else "strict")
    except UnicodeEncodeError as error:
        raise ValueError(f"{column} holds half a surrogate pair: it is no text") from error
    return text


def _text(found: Mapping[str, Any], column: str) -> str:
    value = found.get(column)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{column} is no text")
    return _unicode(str(value), column)


def _names(found: Mapping[str, Any], column: str) -> tuple[str, ...]:
    value = found.get(column, found.get(column.lower(), []))
    if isinstance(value, str):
        value = _list(value.strip() or "[]", column)
    if value is None:
        value = []
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"{column} is no list of test names")
    return tuple(dict.fromkeys(_unicode(one, column) for one in value))


def _list(text: str, column: str) -> Any:
    """A list in a text: JSON, or as Python prints one (`['a', "b's"]`), which some data sets have."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"{column} holds no list") from error


def _moment(value: object) -> str:
    """A date as ISO 8601 with zone: texts (UTC where they name none), seconds or milliseconds, datetimes."""
    if value is None or value == "":
        return ""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            moment = datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
        elif isinstance(value, datetime):
            moment = value
        else:
            moment = datetime.fromisoformat(re.sub(r" UTC$", "Z", str(value).strip()))
        if not _YEARS[0] <= moment.year <= _YEARS[1]:  # the quarter after it has to be a date, too
            raise ValueError(moment.year)
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(f"created_at is no date: {str(value)[:40]!r}") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()


def dump(row: Row) -> dict[str, str]:
    """A row's object: texts only, the columns in the usual order, dates as `2022-03-03T15:14:54Z`."""
    return {
        "repo": row.repo,
        "instance_id": row.instance_id,
        "base_commit": row.base_commit,
        "patch": row.patch,
        "test_patch": row.test_patch,
        "problem_statement": row.problem_statement,
        "hints_text": row.hints_text,
        "created_at": _zulu(row.created_at),
        "version": row.version,
        "FAIL_TO_PASS": json.dumps(list(row.fail_to_pass)),
        "PASS_TO_PASS": json.dumps(list(row.pass_to_pass)),
        "environment_setup_commit": row.environment_setup_commit,
    }


def _zulu(moment: str) -> str:
    if not moment:
        return ""
    return datetime.fromisoformat(moment).astimezone(UTC).isoformat().replace("+00:00", "Z")
