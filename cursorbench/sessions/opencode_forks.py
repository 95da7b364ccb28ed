"""What OpenCode writes again: messages that it copied into a fork, and calls of an earlier export.

A fork's are told once, by whichever session is read first.

`Session.fork` (packages/opencode/src/session) writes a session's messages again under new ids, with their own
times: they are older than the session they stand in. Calls keep their ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any

from cursorbench.sessions.items import Read, ToolEnd
from cursorbench.sessions.reading import table_of, text_of
from cursorbench.sessions.seen import Seen


class Copies:
    """The messages of one session that another one may tell, too."""

    def __init__(self, seen: Seen, session: str, created: int | None) -> None:
        self._seen, self._session, self._created = seen, session, created

    def told(self, info: dict[str, Any], parts: list[Any], at: int | None) -> bool:
        """Whether another session has told this message; two that no fork copied are never the same."""
        if at is None or not (mark := next(_marks(parts), "")):
            return False
        digest = blake2b(mark.encode(errors="replace"), digest_size=16).hexdigest()
        message = f"opencode {text_of(info.get('role'))} {at} {digest}"
        if self._created is None or at >= self._created:
            self._seen.first("", message)
            return self._seen.knows("", f"{message} of a fork")
        mine = f"{message} of {self._session}"
        if self._seen.knows("", mine):
            return False
        if not self._seen.first("", message):
            return True
        self._seen.first("", f"{message} of a fork")
        self._seen.first("", mine)
        return False


def _marks(parts: list[Any]) -> Iterator[str]:
    """What a copy has of the message's parts as they were: ids of calls, beginnings, texts."""
    for part in map(table_of, parts):
        kind, begun = text_of(part.get("type")), table_of(part.get("time")).get("start")
        if kind == "tool" and text_of(part.get("callID")):
            yield f"{kind} {part['callID']}"
        elif kind in ("text", "reasoning") and isinstance(begun, int):
            yield f"{kind} {begun}"
        elif kind in ("text", "subtask") and (
            text := text_of(part.get("text")) or text_of(part.get("prompt"))
        ):
            yield f"{kind} {text}"


def keyed(items: Iterable[Read], state: dict[str, Any]) -> Iterator[tuple[str, Read]]:
    """A call's items, each with what it is known by in a later export: that it was asked for is told once.

    A call that is still being written has no arguments yet.
    """
    status, ended = text_of(state.get("status")), False
    written = status not in ("pending", "streaming")
    for place, item in enumerate(items):
        ended = ended or isinstance(item, ToolEnd)
        yield f"{place} {'' if written and not ended else status}", item
