"""What a kill is, what came of it, and the file that remembers both, so that a sweep can go on later."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Kill:
    """One SIGKILL that really hit, and what was wrong afterwards (nothing, if all is well).

    Attributes:
        kind: "aimed" or "random".
        name: for aimed `SCENARIO/POINT:N`, for random `STAGE#INDEX`.
        stage: the command that was killed.
        moment: seconds after its start.
        repeat: arguments of killsweep.py that do it again.
    """

    kind: str
    name: str
    stage: str
    moment: float
    repeat: str
    problems: tuple[str, ...] = ()


@dataclass
class Book:
    """All kills so far. Safe to use from several threads."""

    path: Path
    kills: list[Kill] = field(default_factory=list)
    missed: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        if self.path.exists():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                fields = json.loads(line)
                self.kills.append(Kill(**{**fields, "problems": tuple(fields["problems"])}))

    def add(self, kill: Kill) -> None:
        """Remember a kill and say so."""
        with self._lock:
            self.kills.append(kill)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(kill)) + "\n")
        verdict = "ok" if not kill.problems else "FAILED: " + "; ".join(kill.problems)
        say(f"{len(self.kills):4} {kill.kind} {kill.name} after {kill.moment:.2f} s: {verdict}")

    def miss(self, name: str) -> None:
        """The command ended before the kill: it counts for nothing."""
        with self._lock:
            self.missed += 1
        say(f"     {name} ended before the kill")

    def has(self, name: str) -> bool:
        """Whether this kill was made already."""
        return any(kill.name == name for kill in self.kills)

    def of(self, kind: str) -> list[Kill]:
        """The aimed or the random ones."""
        return [kill for kill in self.kills if kill.kind == kind]

    @property
    def failures(self) -> list[Kill]:
        return [kill for kill in self.kills if kill.problems]

    def mix(self) -> dict[str, dict[str, int]]:
        """Kills by kind and stage."""
        return {
            kind: dict(sorted(Counter(k.stage for k in self.of(kind)).items()))
            for kind in ("aimed", "random")
        }


def say(text: str) -> None:
    """One line of progress."""
    print(text, file=sys.stderr, flush=True)


def unique(problems: Iterable[str]) -> tuple[str, ...]:
    """Each problem once, the first few of them."""
    return tuple(dict.fromkeys(problems))[:8]
