"""What the cycle that is going on, or was interrupted, has done so far: `run/cycle-LINE.json`.

Written after every stage. It only says which artifacts the rest of the cycle goes on with; each
stage's fingerprint still decides whether it has to run.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cursorbench.files import write_whole
from stages import faults
from stages.cycle_config import STAGES

if TYPE_CHECKING:
    from stages.registry.store import Store

SCHEMA = "rtrl-cycle/1"


@dataclass
class Record:
    """One cycle.

    Attributes:
        live: digest of what was live when it began.
        done: output digests by stage and output name.
        status: "running", or how it ended.
    """

    id: str
    line: str
    live: str
    started_at: str
    status: str = "running"
    done: dict[str, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def begin(cls, line: str, live: str) -> Record:
        """A new cycle."""
        now = datetime.now(UTC)
        name = f"cycle-{now:%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:4]}"
        return cls(name, line, live, now.isoformat(timespec="seconds"))

    def save(self, folder: Path) -> None:
        """Write it whole: a kill leaves the old record or the new one."""
        folder.mkdir(parents=True, exist_ok=True)
        path = _path(folder, self.line)
        content = json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1).encode()
        write_whole(path, content, renaming=faults.around("cycle.record"))

    def next_stage(self) -> str | None:
        """The first stage that is not done."""
        return next((name for name in STAGES if name not in self.done), None)


def read(folder: Path, line: str) -> Record | None:
    """The newest cycle's record; None when there is none that can be read."""
    try:
        found: dict[str, Any] = json.loads(_path(folder, line).read_text(encoding="utf-8"))
        if found.pop("schema") != SCHEMA:
            return None
        return _whole(Record(**found))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def interrupted(folder: Path, line: str, store: Store) -> Record | None:
    """A cycle that can go on: still running by its record, with a stage to do, what it made is there, and
    live has not moved on: its candidate is live where its deploy was cut short, else by another hand."""
    record = read(folder, line)
    if record is None or record.status != "running" or (stage := record.next_stage()) is None:
        return None
    made = [digest for outputs in record.done.values() for digest in outputs.values()]
    live = store.alias(line, "live")
    candidate = record.done["train"].get("checkpoint") if stage == "deploy" else None
    if live is None or live.digest not in (record.live, candidate):
        return None
    return record if all(store.is_committed(digest) for digest in made) else None


def _whole(record: Record) -> Record:
    """The record, or ValueError: something else than stages, and digests by name, stands in it."""
    made = [digest for outputs in record.done.values() for digest in outputs.values()]
    if not all(isinstance(text, str) for text in (record.id, record.live, *made)):
        raise ValueError("a name or a digest is no text")
    return record


def _path(folder: Path, line: str) -> Path:
    return folder / f"cycle-{line}.json"
