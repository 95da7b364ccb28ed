"""The zone of times that a log tells without one: Aider's and OpenHands', of their user's wall clock.

Named by the user (`--timezone`), else told by the repository: a commit has its author's offset, so the
commits that the log itself names say where it was written; where none is found, those of the weeks around,
if they agree. Else UTC. Not for: times that have a zone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from cursorbench.history.repository import Repository, milliseconds
from cursorbench.sessions.items import Item
from stages.errors import UsageError

ZONELESS = frozenset({"aider", "openhands"})  # kinds of logs whose times are a wall clock's
_AROUND = 14 * 86_400_000  # ms within which commits tell a zone together
_AGREE = 0.9
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
AnItem = TypeVar("AnItem", bound=Item)
OF_LOG, OF_OTHERS, NONE = "commits that the log names", "commits of the weeks around", "nothing: UTC"


class Clock:
    """Turns wall clock times into times.

    Args:
        zone: of all of them; None where the repository tells.
        named: wall clock time and offset (ms) of each commit that the log names.
        others: time and offset (ms) of every commit of the repository.

    Attributes:
        used: times by what told their zone.
    """

    def __init__(
        self,
        zone: ZoneInfo | None = None,
        named: Iterable[tuple[int, int]] = (),
        others: Iterable[tuple[int, int]] = (),
    ) -> None:
        self._zone = zone
        self._named, self._others = sorted(named), sorted(others)
        self.used: Counter[str] = Counter()

    def item(self, kind: str, item: AnItem) -> AnItem:
        """The item with its true time."""
        if kind not in ZONELESS or item.at is None:
            return item
        return msgspec.structs.replace(item, at=self.utc(item.at))

    def utc(self, wall: int) -> int:
        """Time (ms) of a wall clock time that was read as if it were UTC."""
        if self._zone is not None:
            naive = (_EPOCH + timedelta(milliseconds=wall)).replace(tzinfo=None)
            self.used[f"--timezone {self._zone.key}"] += 1
            return int(naive.replace(tzinfo=self._zone).timestamp() * 1000)
        offset, told = self._offset(wall)
        self.used[f"{_shown(offset)} by {told}" if told != NONE else NONE] += 1
        return wall - offset

    def _offset(self, wall: int) -> tuple[int, str]:
        if self._named:
            at = bisect_left(self._named, (wall, 0))
            near = self._named[max(0, at - 1) : at + 1]
            return min(near, key=lambda one: abs(one[0] - wall))[1], OF_LOG
        first = bisect_left(self._others, (wall - _AROUND, 0))
        last = bisect_right(self._others, (wall + _AROUND, 0))
        offsets = Counter(offset for _, offset in self._others[first:last])
        if offsets:
            offset, n = offsets.most_common(1)[0]
            if n >= _AGREE * offsets.total():
                return offset, OF_OTHERS
        return 0, NONE


def zone_of(name: str) -> ZoneInfo:
    """A zone by its name, "Europe/Berlin". Raises UsageError (2)."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(
            f"there is no time zone {name!r}", hint="a name as Europe/Berlin or America/New_York, or UTC"
        ) from error


def clock_of(repository: Repository, head: str, told: Sequence[tuple[int, str]]) -> Clock:
    """What the history that ends with `head` tells of the zone.

    Args:
        told: wall clock time (ms) of a session, and a commit that it names (the beginning of its SHA).
    """
    offsets: dict[str, int] = {}
    others = []
    for entry in repository.tokens("log", "-z", "--format=%H %at %ad", "--date=format:%z", head):
        oid, seconds, zone = entry.strip("\n").split(" ")
        if (at := milliseconds(seconds)) is not None:  # of a commit without a time nothing is told
            offsets[oid] = _milliseconds(zone)
            others.append((at + offsets[oid], offsets[oid]))
    known = sorted(offsets)
    named = []
    for wall, name in told:
        at = bisect_left(known, name)
        found = [oid for oid in known[at : at + 2] if name and oid.startswith(name)]
        if len(found) == 1:
            named.append((wall, offsets[found[0]]))
    return Clock(None, named, others)


def _milliseconds(zone: str) -> int:
    """+0130 as ms; 0 for what is none."""
    if len(zone) != 5 or not zone[1:].isdecimal():
        return 0
    minutes = 60 * int(zone[1:3]) + int(zone[3:])
    return (-1 if zone[0] == "-" else 1) * 60_000 * minutes


def _shown(offset: int) -> str:
    hours, minutes = divmod(abs(offset) // 60_000, 60)
    return f"{'-' if offset < 0 else '+'}{hours:02d}:{minutes:02d}"
