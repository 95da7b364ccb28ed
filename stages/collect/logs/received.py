"""What the received records of a sender tell, also where an adapter fails on one of them.

Such a record was told to its sender and kept (`stages/gateway/received.py`): it is in quarantine until a
later version can read it, and all others are read. Not for: logs on a disk, where a failure ends the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice

from cursorbench.sessions import kinds
from cursorbench.sessions.items import Place, Quarantined, Read
from cursorbench.sessions.memory import MemoryLog
from cursorbench.sessions.seen import Seen


def items(kind: str, log: MemoryLog) -> Iterator[Read]:
    """The items of a log of this kind, in its order; then the records on which its adapter fails."""
    told = 0
    try:
        for item in _read(kind, log):
            yield item
            told += 1
    except Exception:
        bad = dict(_failing(kind, log))
        if not bad:
            raise
        good = MemoryLog.of(str(log), lambda: (b"" if n in bad else line for n, line in _lines(log)))
        yield from islice(_read(kind, good), told, None)
        yield from bad.values()


def _read(kind: str, log: MemoryLog) -> Iterator[Read]:
    return kinds.adapters()[kind].read(log, Seen())


def _lines(log: MemoryLog) -> Iterator[tuple[int, bytes]]:
    return ((n, line.removesuffix(b"\n")) for n, line in enumerate(log.open(), 1))


def _failing(kind: str, log: MemoryLog) -> Iterator[tuple[int, Quarantined]]:
    """The lines on which the adapter fails when each is read alone, as the gateway did."""
    for n, line in _lines(log):
        alone = MemoryLog.of(str(log), partial(list[bytes], [line]))
        try:
            for _ in _read(kind, alone):
                pass
        except Exception as error:  # noqa: BLE001  # whatever it is, it says nothing of the other records
            yield n, Quarantined(Place(str(log), n), f"cannot be read: {type(error).__name__}")
