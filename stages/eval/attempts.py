"""Attempts on disk: one Parquet file per suite and arm, every case with what came of it.

    case, cluster, attempt, failure, detail (JSON), and per metric `m` and `m.weight`

Written to be read again: by the next eval as its baseline's attempts, and by people.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from evals.cases import Attempt, SuiteSpec
from stages.errors import IntegrityError, UsageError

_LONGEST = 160  # bytes of a suite's name in a file's, of which file systems take 255
FIXED = ("case", "cluster", "attempt", "failure", "detail")


def file_name(suite: str, role: str) -> str:
    """`SUITE.ROLE.parquet`, with nothing in it that a file system minds."""
    return f"{safe_name(suite)}.{role}.parquet"


def safe_name(suite: str) -> str:
    """A suite's name as part of a file's; no two suites have the same, and no name is too long for one."""
    plain = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in suite)
    short = plain.encode()[:_LONGEST].decode(errors="ignore")
    if short == suite:
        return suite
    digest = hashlib.sha256(suite.encode(errors="surrogatepass")).hexdigest()
    return f"{short}-{digest[:16]}"


def require_names(spec: SuiteSpec) -> None:
    """Raise UsageError (exit 2) where a metric of a task of one's own is called like another column."""
    taken = set(FIXED)
    for metric in spec.metrics:
        if taken & (own := {metric.name, f"{metric.name}.weight"}):
            raise UsageError(
                f"{spec.name}: no metric can be called {metric.name!r}: a report's files have a column of "
                "that name already",
                hint="another name for it in the task",
            )
        taken |= own


def write(path: Path, spec: SuiteSpec, attempts: Sequence[Attempt]) -> None:
    """Write attempts; a file that exists is replaced whole."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, list[object]] = {
        "case": [one.case for one in attempts],
        "cluster": [one.cluster for one in attempts],
        "attempt": [one.attempt for one in attempts],
        "failure": [one.failure for one in attempts],
        "detail": [json.dumps(dict(one.detail), sort_keys=True) for one in attempts],
    }
    for metric in spec.metrics:
        pairs = [one.values.get(metric.name, (None, None)) for one in attempts]
        columns[metric.name] = [pair[0] for pair in pairs]
        columns[f"{metric.name}.weight"] = [pair[1] for pair in pairs]
    types = {name: pa.int32() if name == "attempt" else pa.string() for name in FIXED}
    table = pa.table(
        {name: pa.array(values, types.get(name, pa.float64())) for name, values in columns.items()}
    )
    partial = path.with_name(f".{path.name}.new")
    pq.write_table(table, partial, compression="zstd", write_page_checksum=True)
    partial.rename(path)


def read(path: Path, spec: SuiteSpec) -> list[Attempt]:
    """The attempts of a file.

    Raises:
        IntegrityError: (exit 12) the file is damaged or lacks a column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(path, page_checksum_verification=True).to_pylist()
        return [_attempt(row, spec) for row in rows]
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise IntegrityError(f"{path.name} cannot be read: {error}", hint="rtrl verify --full") from error


def _attempt(row: dict[str, object], spec: SuiteSpec) -> Attempt:
    values = {}
    if not row["failure"]:
        for metric in spec.metrics:
            values[metric.name] = (float(row[metric.name]), float(row[f"{metric.name}.weight"]))  # type: ignore[arg-type]
    return Attempt(
        case=str(row["case"]),
        cluster=str(row["cluster"]),
        attempt=int(row["attempt"]),  # type: ignore[call-overload]
        values=values,
        failure=str(row["failure"]),
        detail=json.loads(str(row["detail"])),
    )
