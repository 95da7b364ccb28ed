"""The deadline of a cycle: until when each stage may run, and what a late one does.

A stage may run until what is left of the deadline is the share of those after it; time that earlier
stages did not use is its own. Then:

    stage     late at (of 5 h)   what happens
    collect   0:30               stops; the spool is untouched
    distill   1:00               stops; the interactions stay
    train     3:30               stops; its last micro-checkpoint stays
    eval      4:45               stops; the attempts made so far stay
    deploy    5:00               is not begun; once begun it is not interrupted

A cycle that stopped late exits 4. The next one goes on at that stage, with a new deadline.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from stages import interrupts
from stages.cycle_config import STAGES
from stages.errors import LateError

UNINTERRUPTED = ("deploy",)
LATE = {
    "collect": "stops; the spool is untouched",
    "distill": "stops; the interactions stay",
    "train": "stops; its last micro-checkpoint stays",
    "eval": "stops; the attempts made so far stay",
    "deploy": "is not begun; once begun it is not interrupted",
}


@dataclass(frozen=True)
class Deadline:
    """When each stage has to be done, in seconds from the start of the cycle.

    Attributes:
        total_s: the whole deadline.
        shares: of each stage; they add up to 1.
    """

    total_s: float
    shares: Mapping[str, float]
    started: float = field(default_factory=time.monotonic)

    def until(self, stage: str) -> float:
        """Seconds from the start at which `stage` is late."""
        upto = STAGES[: STAGES.index(stage) + 1]
        return self.total_s * sum(self.shares[name] for name in upto)

    def left(self, stage: str) -> float:
        """Seconds from now until `stage` is late; none or fewer when it is."""
        return self.started + self.until(stage) - time.monotonic()

    def table(self) -> list[dict[str, float | str]]:
        """Each stage's share, when it is late, and what it does then."""
        return [
            {
                "stage": name,
                "share": self.shares[name],
                "late_at_s": round(self.until(name), 3),
                "late": LATE[name],
            }
            for name in STAGES
        ]

    @contextmanager
    def limit(self, stage: str) -> Iterator[None]:
        """Run a block that may not last longer than the stage's time.

        Raises:
            LateError: (exit 4) the time was over before the block began, or ran out within it. Within
                it only in the main thread; elsewhere, and for deploy, a block that began may end. The
                block ends so whatever a library or a team's own function makes of the error.
        """
        left = self.left(stage)
        if left <= 0:
            raise self._late(stage, "was not begun")
        if stage in UNINTERRUPTED or threading.current_thread() is not threading.main_thread():
            yield
            return
        with interrupts.alarm(left, lambda: self._late(stage, "was stopped")):
            yield

    def _late(self, stage: str, what: str) -> LateError:
        return LateError(
            f"{stage} {what}: {self.until(stage):.0f} s of the deadline of {self.total_s:.0f} s are over",
            hint="the next `rtrl cycle` goes on here; or give more time with --deadline",
        )
