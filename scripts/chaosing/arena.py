"""One run: the load, the faults in turn, and what is seen of each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from killsweeps.kills import say
from killsweeps.processes import Ended

from chaosing.records import Asked, Book
from chaosing.settled import served, unsettled
from chaosing.world import NothingToMeasureError, World
from stages.errors import RtrlError
from stages.target.endpoint import Endpoint

POLL_S = 0.1
REST_S = 2.5  # between faults: what one has begun is over before the next one
CALM_S = 0.6  # of load, all of it answered, is calm


@dataclass(frozen=True)
class Fault:
    """One kind of fault.

    Attributes:
        done, holds: what is done, and what must hold, in words.
        within_s: to converge, from when the cause is gone (a kill: from the kill).
        by: what that needs: "itself", "supervisor" (that restarts `rtrl serve`), "next command".
        inject: does it, by the methods of the arena.
    """

    name: str
    done: str
    holds: str
    within_s: float
    inject: Callable[[Arena], None]
    by: str = "itself"


@dataclass
class Seen:
    """One injection."""

    name: str
    begin: float
    gone: float = 0.0  # when the cause was
    calm: float | None = None  # when everything was well again; None: it was not, in time
    end: float = 0.0
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float | None:
        """To converge."""
        return None if self.calm is None else max(0.0, self.calm - self.gone)


@dataclass(frozen=True)
class Open:
    """A stretch in which nothing was wrong and a canary was open: its users get it, and nobody else."""

    deployment: str
    begin: float
    end: float


class Arena:
    """The world under load.

    Attributes:
        seen: one entry for each injection so far.
        open: the stretches in which arms can be checked user by user.
        deadline: on the monotonic clock; no fault begins after it.
    """

    def __init__(self, world: World, *, rate: float, seed: int, deadline: float) -> None:
        self.world, self.rate, self.seed, self.deadline = world, rate, seed, deadline
        self.seen: list[Seen] = []
        self.open: list[Open] = []
        self._opened: tuple[str, float] | None = None
        self._load: subprocess.Popen[bytes] | None = None
        self.book = Book(world.folder / "records.jsonl")

    @contextmanager
    def load(self) -> Iterator[None]:
        """Users at work for the length of the block; what is in flight at its end comes to its end."""
        records = self.world.folder / "records.jsonl"
        records.touch()
        program = [sys.executable, "-m", "chaosing.load", self.world.url, self.world.key, str(self.rate)]
        scripts = str(Path(__file__).resolve().parents[1])
        path = os.pathsep.join((scripts, str(Path(scripts).parent), os.environ.get("PYTHONPATH", "")))
        more = [] if self.world.engine == "stub" else ["real"]
        command = [*program, str(records), str(self.seed), *more]
        self._load = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path})
        try:
            yield
        finally:
            self._load.send_signal(signal.SIGTERM)
            try:
                self._load.wait(60)
            except subprocess.TimeoutExpired:
                self._load.kill()
                self._load.wait()
            self.book.read()

    def calm(self, limit_s: float) -> float | None:
        """Wait until the state is right and everybody is answered; since when. None after `limit_s`."""
        began = time.monotonic()
        since: float | None = None
        enough = max(4, int(self.rate * CALM_S))
        while True:
            reasons = unsettled(self.world)
            now = time.monotonic()
            if reasons:
                since = None
            else:
                since = since or now
                asked = self.book.since(since)
                bad = [record for record in asked if record.outcome != "complete" and record.code != "left"]
                if bad:
                    since, reasons = None, [_told(bad[-1])]
                elif len(asked) >= enough:
                    return since
                else:
                    reasons = [f"{len(asked)} answers in {now - since:.1f} s"]
            if now - began > limit_s:
                self.problem(f"not well after {limit_s:g} s: {'; '.join(reasons)}")
                return None
            if self._load is not None and self._load.poll() is not None:
                raise NothingToMeasureError("the load generator has ended")
            time.sleep(POLL_S)

    def strike(self, fault: Fault) -> Seen:
        """Inject one fault and wait until all is well again."""
        time.sleep(REST_S)
        seen = Seen(fault.name, time.monotonic())
        self.seen.append(seen)
        ended = len(self.world.keeper.ended)
        try:
            fault.inject(self)
        except RtrlError as error:
            self.problem(f"the fault could not go on: {error.message}")
        seen.gone = seen.gone or seen.begin
        left = fault.within_s + self.world.slower_s - (time.monotonic() - seen.gone)
        seen.calm = self.calm(max(left, 1.0))
        if seen.calm is None and (later := self.calm(60.0)) is not None:
            seen.notes.append(f"well after {later - seen.gone:.1f} s")
            seen.problems.pop()
        if fault.by != "supervisor":
            for one in self.world.keeper.ended[ended:]:
                self.problem(f"the gateway did not live through it: {one}")
        seen.end = time.monotonic()
        took = "not well" if seen.seconds is None else f"well after {seen.seconds:.1f} s"
        trouble = "; ".join(seen.problems)
        say(f"{fault.name}: {took}; {'; '.join(seen.notes)}{' FAILED: ' + trouble if trouble else ''}")
        return seen

    # what faults use

    def problem(self, text: str) -> None:
        """Something that must not be."""
        self.seen[-1].problems.append(text)

    def note(self, text: str) -> None:
        """Something for the table."""
        self.seen[-1].notes.append(text)

    def gone(self) -> None:
        """The cause is gone: from now on it is the system's turn."""
        self.seen[-1].gone = time.monotonic()

    def expect(self, ended: Ended, codes: Sequence[int], what: str = "") -> Ended:
        """A command's exit code is one of these."""
        words = what or ended.arguments[0]
        self.note(f"{words}: exit {ended.code}")
        if ended.code not in codes:
            self.problem(f"{words} ended with {ended.code}, not {' or '.join(map(str, codes))}: {ended}")
        for orphan in ended.orphans:
            self.problem(f"{words} left {orphan} running")
        return ended

    def serving(self) -> Endpoint:
        """Where it listens. Raises NothingToMeasureError when it does not."""
        endpoint = self.world.endpoint
        if endpoint is None:
            raise NothingToMeasureError("nothing is served before the fault")
        return endpoint

    def wait(self, condition: Callable[[], bool], seconds: float, what: str) -> bool:
        """Until it holds; a problem when it does not in time."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                self.problem(f"{what}: not within {seconds:g} s")
                return False
            time.sleep(0.02)
        return True

    def changing(self) -> bool:
        """Whether weights are being changed at this moment."""
        found = served(self.world)
        engines = found.get("engines", [found]) if found else []
        return any(engine["engine"] == "unknown" for engine in engines)

    def sticky_from(self, deployment: str) -> None:
        """A canary is open, and all is well: each user has an arm from now on."""
        self._opened = (deployment, time.monotonic())

    def sticky_until(self) -> None:
        """No longer certain."""
        if self._opened is not None:
            self.open.append(Open(*self._opened, time.monotonic()))
            self._opened = None


def in_background(act: Callable[[], object]) -> threading.Thread:
    """Started; join it."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


def _told(record: Asked) -> str:
    return f"a request got {record.outcome} {record.status or ''} {record.code}".strip()
