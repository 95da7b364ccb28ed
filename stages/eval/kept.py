"""Attempts while they are being made: one line of JSON per batch, on disk before the next batch begins.

A kill, a deadline or a power cut costs the batch that was going on. Not the report's files, which are
written when all attempts are there (`attempts.py`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cursorbench.files import sync
from evals.cases import Attempt
from stages import faults
from stages.eval.attempts import safe_name


def kept_name(suite: str, what: str) -> str:
    """`SUITE.WHAT.jsonl`, with nothing in it that a file system minds."""
    return f"{safe_name(suite)}.{what}.jsonl"


@dataclass(frozen=True)
class Kept:
    """The file of one arm's batches.

    Attributes:
        warn: told of a file that cannot be used.
    """

    path: Path
    warn: Callable[[str], None]

    def read(self) -> list[Attempt]:
        """The attempts of all batches that were kept. A line cut short does not count.

        A file that cannot be read is none: it only saves time. It is removed, so that what is kept
        from now on can be read.
        """
        if not self.path.exists():
            return []
        try:
            lines = self.path.read_bytes().split(b"\n")[:-1]  # what stands after the last line end is torn
            return [_attempt(row) for line in lines for row in json.loads(line)]
        except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
            self.warn(f"{self.path} cannot be read ({error}): its attempts are made again")
            self.path.unlink()
            return []

    def append(self, attempts: Sequence[Attempt]) -> None:
        """Keep one batch: it is on the disk when this returns. A torn line that a kill left is cut off."""
        new = not self.path.exists()
        line = json.dumps([vars(one) for one in attempts], default=dict, sort_keys=True).encode() + b"\n"
        with self.path.open("ab") as file:
            file.truncate(_whole(self.path))
            faults.point("eval.attempts.append.before")
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        if new:
            sync(self.path.parent)
        faults.point("eval.attempts.append.after")


def _whole(path: Path) -> int:
    """Bytes up to the end of the last whole line."""
    return path.read_bytes().rfind(b"\n") + 1


def _attempt(row: dict[str, Any]) -> Attempt:
    values = {name: (float(pair[0]), float(pair[1])) for name, pair in row.pop("values").items()}
    return Attempt(values=values, **row)
