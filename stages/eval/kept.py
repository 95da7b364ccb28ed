"""Attempts while they are being made: one line of JSON per batch, on disk before the next batch begins.

A kill, a deadline or a power cut costs the batch that was going on. Not the report's files, which are
written when all attempts are there (`attempts.py`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evals.cases import Attempt
from stages import faults
from stages.errors import IntegrityError
from stages.eval.attempts import safe_name
from stages.registry.objects import fsync_folder


def kept_name(suite: str, what: str) -> str:
    """`SUITE.WHAT.jsonl`, with nothing in it that a file system minds."""
    return f"{safe_name(suite)}.{what}.jsonl"


def read(path: Path) -> list[Attempt]:
    """The attempts of all batches that were kept; none without a file. A line cut short does not count.

    Raises:
        IntegrityError: (exit 12) a whole line cannot be read.
    """
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]  # what stands after the last line end is torn
    try:
        return [_attempt(row) for line in lines for row in json.loads(line)]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise IntegrityError(f"{path} cannot be read: {error}", hint="remove it: eval begins anew") from error


def append(path: Path, attempts: Sequence[Attempt]) -> None:
    """Keep one batch: it is on the disk when this returns. A torn line that a kill left is cut off."""
    new = not path.exists()
    line = json.dumps([vars(one) for one in attempts], default=dict, sort_keys=True).encode() + b"\n"
    with path.open("ab") as file:
        file.truncate(_whole(path))
        faults.point("eval.attempts.append.before")
        file.write(line)
        file.flush()
        os.fsync(file.fileno())
    if new:
        fsync_folder(path.parent)
    faults.point("eval.attempts.append.after")


def _whole(path: Path) -> int:
    """Bytes up to the end of the last whole line."""
    return path.read_bytes().rfind(b"\n") + 1


def _attempt(row: dict[str, Any]) -> Attempt:
    values = {name: (float(pair[0]), float(pair[1])) for name, pair in row.pop("values").items()}
    return Attempt(values=values, **row)
