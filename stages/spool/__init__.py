"""The gateway's append-only store of generations and events.

    spool/spool.db                 index (SQLite): positions, ids, counts; derived from the segments
    spool/segments/00000001.seg    records, framed with length and CRC; sealed when full or old
    spool/quarantine/              bytes that could not be read, kept
    spool/writer.lock              held by the one writer

`SpoolWriter` is the gateway's side, `Spool` everybody else's; both may be open at once.
A record is answered for (its client gets the last byte) after it was handed to the operating
system, so it survives SIGKILL; it survives a power cut once the group fsync has run
(`gateway.fsync_ms`). Readers see records only after that fsync.
"""

from stages.spool.chains import ChainReader, Tokens
from stages.spool.damage import Damage, SpoolDamagedError
from stages.spool.journal import SpoolFullError
from stages.spool.reader import Spool, SpoolRange, open_event
from stages.spool.told import EventResult
from stages.spool.writer import SpoolWriter

__all__ = [
    "ChainReader",
    "Damage",
    "EventResult",
    "Spool",
    "SpoolDamagedError",
    "SpoolFullError",
    "SpoolRange",
    "SpoolWriter",
    "Tokens",
    "open_event",
]
