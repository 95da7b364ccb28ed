"""What an import or an export came to: tasks made, and all that was refused with its reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Refused:
    """A row or a task that was not taken: one word, and what it was in this case."""

    name: str
    reason: str
    detail: str = ""


@dataclass(frozen=True)
class Exchanged:
    """What was done.

    Attributes:
        out: the suite's folder, or the file that was written.
        made: names of the tasks or rows written; `again`: of those, there already.
        refused: everything else.
        notes: by name, what was taken with a difference.
    """

    out: Path
    made: tuple[str, ...]
    refused: tuple[Refused, ...] = ()
    again: int = 0
    notes: dict[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "out": str(self.out),
            "made": len(self.made),
            "again": self.again,
            "refused": dict(Counter(one.reason for one in self.refused).most_common()),
            "tasks": list(self.made),
            "rejects": [vars(one) for one in self.refused],
            "notes": self.notes,
        }
