"""What the load generator writes down, one JSON line each, and nobody else may change.

`at`, `sent` and `ended` are seconds of the machine's monotonic clock, which all processes share and no
fault moves.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Literal

import msgspec

# complete     200, and the last byte was read (of the body; `[DONE]`): accepted, has to be in the spool
# told         a stream that ended with an error event: what was sampled has to be in the spool, but for
#              `capture_unavailable`, which says that it is not
# refused      an error answer
# cut          the connection broke, or the client's patience ended, after the request was sent: no promise
# unreachable  nobody listened
Outcome = Literal["complete", "told", "refused", "cut", "unreachable"]


class Asked(msgspec.Struct, frozen=True, kw_only=True, tag="asked"):
    """One request and what came of it."""

    user: str
    stream: bool
    request: str  # the user's words
    due: float
    sent: float
    ended: float
    outcome: Outcome
    status: int = 0
    code: str = ""  # of the error; of one that broke, what the client saw
    id: str = ""
    fingerprint: str = ""  # `system_fingerprint`
    answer: str = ""
    ids: list[int] = []
    logprobs: list[float] = []
    prompt: list[int] = []
    retry_after: bool = False


class Told(msgspec.Struct, frozen=True, kw_only=True, tag="told"):
    """An event that the gateway acknowledged."""

    id: str
    generation_id: str
    at: float
    data: dict[str, Any]


class Rejected(msgspec.Struct, frozen=True, kw_only=True, tag="rejected"):
    """An event that should have been taken and was not."""

    id: str
    generation_id: str
    at: float
    reason: str


Record = Asked | Told | Rejected
DECODER: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Asked | Told | Rejected)


class Book:
    """The records so far, read from the generator's file as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place, self._rest = 0, b""
        self._lock = threading.Lock()
        self.asked: list[Asked] = []
        self.told: dict[str, Told] = {}
        self.rejected: list[Rejected] = []

    def read(self) -> None:
        """Take in what is new."""
        with self._lock, self._path.open("rb") as file:
            file.seek(self._place)
            data = file.read()
            self._place += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._take(DECODER.decode(line))

    def _take(self, record: Record) -> None:
        if isinstance(record, Asked):
            self.asked.append(record)
        elif isinstance(record, Told):
            self.told[record.id] = record
        else:
            self.rejected.append(record)

    def since(self, moment: float) -> list[Asked]:
        """Requests that ended and were sent after `moment`."""
        self.read()
        found = []
        for record in reversed(self.asked):
            if record.ended < moment:
                break
            if record.sent >= moment:
                found.append(record)
        return found[::-1]

    def between(self, begin: float, end: float) -> list[Asked]:
        """Requests that were due in a stretch of time."""
        self.read()
        return [record for record in self.asked if begin <= record.due < end]
