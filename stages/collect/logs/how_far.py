"""Reading session logs, and telling whoever waits how far it is: files of all, and records."""

from __future__ import annotations

from collections.abc import Iterator

from cursorbench.sessions.items import Read
from stages.collect.logs.source import Source
from stages.inbox.reader import Left
from stages.inbox.records import Sender
from stages.stage import Progress
from stages.vault import Vault
from stages.wording import count

_EVERY = 1024  # records of one file


def read(
    source: Source, vault: Vault, left: Left, what: str, progress: Progress
) -> Iterator[tuple[str, Read, Sender]]:
    """`source.read`, as a step called `what`."""
    files = source.listed or 0
    progress.start(what, files or None)
    begun, last = 0, ""
    for n, one in enumerate(source.read(vault, left), 1):
        yield one
        file = one[1].place.file
        if file != last and begun < files:  # what lies in branches, or was received, is none of them
            begun, last = begun + 1, file
            progress.advance(min(1, begun - 1), count(n, "record"))
        elif n % _EVERY == 0:
            progress.advance(0, count(n, "record"))
