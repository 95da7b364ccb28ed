"""The state of a build, in the suite's folder `.build/`: a verdict per candidate, each a file.

A verdict is written whole or not at all, so a build that was killed goes on where it was. One counts only
for the settings it was made under. Not for: the tasks themselves, which are in `tasks/`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Literal

import msgspec

from cursorbench.errors import RtrlError
from cursorbench.files import write_whole

Outcome = Literal["kept", "rejected", "unfinished"]
BUSY = 1.5  # processes that want to run, per core: above it tests that measure time fail by chance
TRIES = 100  # 20 ms apart: between the fork and the exec of a command; a machine that stands still tries none
TIMED = frozenset(  # chance may look like the date: five runs are few
    {
        "unstable",
        "date_dependent",
        "fails_with_solution",
        "no_test_passes",
        "solution_not_graded",
        "run_timeout",
    }
)


class BusyError(RtrlError):
    """Another process builds this suite."""

    code = 11
    kind = "locked"


class Verdict(msgspec.Struct, frozen=True):
    """What became of a candidate.

    Attributes:
        key: digest of the settings and of the program's rules it was made under.
        outcome: `unfinished` is infrastructure: the next build tries again.
        reason, detail: why it was not kept; of a kept one "".
        task: the task's name; "" when there is none.
        facts: what provenance.json says of a kept one.
        load: of the machine per core when it was made; a rejection for what time can do to tests (`TIMED`)
            that was made on a busy one is looked at again when it is quiet, or half as busy as it was.
    """

    key: str
    commit: str
    subject: str
    outcome: Outcome
    reason: str = ""
    detail: str = ""
    task: str = ""
    seconds: float = 0.0
    facts: Mapping[str, Any] = {}
    load: float = 0.0

    @property
    def in_doubt(self) -> bool:
        """Whether a quieter machine might say otherwise."""
        return self.outcome == "rejected" and self.reason in TIMED and self.load > BUSY


class State:
    """The folder `.build` of a suite."""

    def __init__(self, suite: Path) -> None:
        self.folder = suite / ".build"
        self.verdicts = self.folder / "verdicts"
        self.drafts = self.folder / "drafts"
        self.locks = self.folder / "locks"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else builds this suite meanwhile; what a dead build left half is removed.

        Raises:
            BusyError: (exit 11) somebody does.
        """
        self.verdicts.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a") as stream:
            _lock(stream, f"another process builds {self.folder.parent}")
            shutil.rmtree(self.drafts, ignore_errors=True)
            self.drafts.mkdir(exist_ok=True)  # a git of the killed build may still write there
            for half in self.verdicts.glob("*.tmp"):
                half.unlink()
            yield

    def verdict(self, commit: str, key: str) -> Verdict | None:
        """The verdict of a commit under these settings; None when there is none that counts."""
        found = self._read(self._place(commit))
        if found is None:
            return None
        again = found.in_doubt and load() <= max(BUSY, found.load / 2)
        if found.key != key or found.outcome == "unfinished" or again:
            return None
        return found

    def task_of(self, commit: str) -> str:
        """The task that was last made of a commit, under whatever settings; "" when none was."""
        found = self._read(self._place(commit))
        return found.task if found else ""

    def kept(self) -> Iterator[Verdict]:
        """The verdicts of commits that made tasks, under whatever settings, by commit."""
        for path in sorted(self.verdicts.glob("*.json")):
            found = self._read(path)
            if found and found.outcome == "kept":
                yield found

    def put(self, verdict: Verdict) -> None:
        """Write a verdict."""
        write_json(self._place(verdict.commit), msgspec.to_builtins(verdict))

    def forget(self, commit: str) -> None:
        """Remove the verdict of a commit."""
        self._place(commit).unlink(missing_ok=True)

    def _place(self, commit: str) -> Path:
        return self.verdicts / f"{commit}.json"

    def _read(self, path: Path) -> Verdict | None:
        try:
            return msgspec.json.decode(path.read_bytes(), type=Verdict)
        except (OSError, ValueError):
            return None


def _lock(stream: IO[str], taken: str) -> None:
    """Take the lock. What a killed build was just starting has it too, until its exec: that is waited for."""
    for _ in range(TRIES):
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        else:
            return
    raise BusyError(taken, hint="wait for it, or choose another --out")


def load() -> float:
    """Processes that want to run, per core, over the last minute."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)


def write_json(path: Path, value: object) -> None:
    """Write JSON, whole or not at all. What is no UTF-8 of a name, as git has them, becomes `?`."""
    text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    write_whole(path, text.encode(errors="replace"), durable=False)
