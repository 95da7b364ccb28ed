"""The record of one trial, and the folder they are kept in: one file a trial, whole or not there at all.

    OUT/trials/ab/abcd….json         the record, under the digest of everything that decides the trial
    OUT/trajectories/ab/abcd….json   what happened in it (ATIF)

A run that was killed goes on with the files that are there; two runs into one folder do not disturb each
other: of a trial that both make the first to be there counts for both. Not here: what is tried (`run.py`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from cursorbench.files import sync, write_whole
from cursorbench.graders.efficiency import Usage
from evals.trials import causes

SCHEMA = "rtrl-trial/1"
MAX_DIFF = 1 << 20  # characters kept of a diff


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One trial.

    Attributes:
        key: digest of conditions, task and attempt; the file's name.
        cause: of `causes.TABLE`; `detail` is a line for people.
        tries: how often it was begun.
        passed: None for infrastructure.
        stop: the harness's reason to stop, or the outside agent's exit.
        correctness, quality, rubric: the graders' records as plain data; empty where there is none.
        ambiguous: the task's: to ask was right, and its tests say nothing of a model.
        did, right: what the agent did, and whether that was right (`graders/interaction.py`).
        cost: by the price table of the run that made it; None without a price. Figures take the run's own.
        generations: ids by which the gateway knows its model calls.
        seconds: of the whole trial; `at`: epoch seconds of its end.
    """

    schema: str = SCHEMA
    key: str
    task: str
    cluster: str
    attempt: int
    cause: str
    detail: str = ""
    tries: int = 1
    passed: bool | None = None
    stop: str = ""
    ambiguous: bool = False
    did: str = ""
    right: bool | None = None
    usage: Usage = Usage()
    cost: float | None = None
    correctness: dict[str, Any] = {}
    quality: dict[str, Any] = {}
    rubric: dict[str, Any] = {}
    generations: tuple[str, ...] = ()
    diff: str = ""
    diff_cut: bool = False
    seconds: float = 0.0
    at: float = 0.0

    @property
    def infrastructure(self) -> bool:
        """Whether it says nothing about the model."""
        return causes.infrastructure(self.cause)


def key(conditions: str, task: str, attempt: int) -> str:
    """The name of a trial: sha256 over the digests of conditions and task, and the attempt's number."""
    asked = json.dumps({"conditions": conditions, "task": task, "attempt": attempt}, sort_keys=True)
    return hashlib.sha256(asked.encode()).hexdigest()


class Folder:
    """Records of trials below one folder. A file that cannot be read is moved aside and said."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged: list[str] = []

    def place(self, kind: str, name: str) -> Path:
        """Where a file of `kind` (trials, trajectories, again) with a digest's name is."""
        return self.path / kind / name[:2] / f"{name}.json"

    def read(self, name: str, kind: str = "trials") -> Record | None:
        """A record; None when there is none that can be used."""
        path = self.place(kind, name)
        try:
            found = msgspec.json.decode(path.read_bytes(), type=Record)
        except FileNotFoundError:
            return None
        except (ValueError, OSError) as error:
            self._aside(path, str(error))
            return None
        if found.schema != SCHEMA or found.key != name or found.cause not in causes.TABLE:
            self._aside(path, "it is another trial's, or of another version")
            return None
        return found

    def write(self, record: Record, kind: str = "trials") -> None:
        """Keep a record: on the disk when this returns."""
        put(self.place(kind, record.key), msgspec.json.encode(record))

    def names(self, kind: str = "trials") -> Iterator[str]:
        """The names of all records, in no order."""
        for path in (self.path / kind).glob("??/*.json"):
            yield path.stem

    def _aside(self, path: Path, why: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # another run into this folder has seen it too
            path.replace(path.with_suffix(".damaged"))
        self.damaged.append(f"{path.name}: {why}")


def put(path: Path, content: bytes) -> None:
    """Write a file whole: it is there after a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)
    sync(path.parent)
