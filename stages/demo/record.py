"""How far a demo got: `run/demo.json` in its workspace, so that the same command again goes on or says so."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cursorbench.files import write_whole
from stages.errors import IntegrityError, UsageError

SCHEMA = "rtrl-demo/1"
FILE = "demo.json"


@dataclass
class Record:
    """One demo.

    Attributes:
        seed: of the users and of training.
        first: digest of the checkpoint that was served first.
        rows: one per finished cycle, see `run.py`.
        final: the held-out replay of first and last, None before it was made.
        final_of: digest of the last checkpoint in `final`.
        report: digest of the published report.
    """

    seed: int
    first: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    final: dict[str, Any] | None = None
    final_of: str = ""
    report: str = ""

    def save(self, run_dir: Path) -> None:
        """Write it whole."""
        write_whole(run_dir / FILE, json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1).encode())


def read(run_dir: Path) -> Record | None:
    """The record of a workspace. Raises IntegrityError (exit 12) when it cannot be read."""
    path = run_dir / FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found.pop("schema") != SCHEMA:
            raise ValueError("another schema")
        return Record(**found)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise IntegrityError(f"{path} cannot be read: {error}", hint="take another --dir") from error


def check_same(record: Record, seed: int) -> None:
    """Raise UsageError (exit 2) when the demo there is of another seed."""
    if record.seed != seed:
        raise UsageError(
            f"the demo there has seed {record.seed}, not {seed}",
            hint=f"go on with --seed {record.seed}, or take another --dir",
        )
