"""What could not be read in the spool, as data and as an error."""

from __future__ import annotations

from dataclasses import dataclass

from stages.errors import IntegrityError


@dataclass(frozen=True)
class Damage:
    """A stretch of a segment that cannot be read.

    Attributes:
        segment: number of the segment file.
        offset: first unreadable byte.
        length: unreadable bytes; for a truncated segment the bytes that are gone.
        reason: "crc", "truncated", "missing", "header", "unreadable" (whole, and nothing this program
            knows) or "torn_tail" (a write cut short by a crash, never answered for unless the power failed).
        generations: ids of the generations known to have been there.
        events: number of events known to have been there.
    """

    segment: int
    offset: int
    length: int
    reason: str
    generations: tuple[str, ...] = ()
    events: int = 0

    def __str__(self) -> str:
        lost = f"{len(self.generations)} generations and {self.events} events"
        return f"segment {self.segment:08d}, {self.length} bytes at {self.offset} ({self.reason}): {lost}"


class SpoolDamagedError(IntegrityError):
    """Captured records cannot be read. `damages` says which; known once it was told (`Spool.tell`)."""

    kind = "spool_damaged"

    def __init__(self, damages: list[Damage]) -> None:
        self.damages = damages
        lost = sum(len(damage.generations) for damage in damages)
        events = sum(damage.events for damage in damages)
        super().__init__(
            f"the spool is damaged: {lost} generations and {events} events cannot be read; {damages[0]}",
            hint="put the segment file back if you have a copy; otherwise run the command again: "
            "it goes on without them and counts them",
        )
