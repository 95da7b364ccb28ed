"""Which lines of a rollout another thread wrote: a fork's or a sub-agent's file begins with its ancestor's.

Paginated threads (0.148 and later) tell where their own lines begin. A legacy fork's file is its own
`session_meta`, its ancestor's, and then all of the ancestor's lines, which Codex writes at once, with the
time of the fork. Its own lines begin with the first turn whose id (a UUID 7 since February 2026) is not
older than the thread, or behind a pause: `record_initial_history` and `spawn_forked_thread` in openai/codex.
Not for: forks that only name their ancestor's file (`history_base`).
"""

from __future__ import annotations

import re
from typing import Any

from cursorbench.sessions.codex_versions import ordinal
from cursorbench.sessions.reading import milliseconds, text_of

_UUID7 = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_PAUSE_MS = 1000  # between two lines of a copy there are some 50 ms at most
_TURNS = {"task_started", "turn_started"}


class Inherited:
    """What is known up to a line of whose lines these are."""

    def __init__(self) -> None:
        self._mine, self._begun = "", 0  # the thread, and when it was made
        self._first = 0  # lines below this ordinal are its parent's
        self._copies = self._said = False  # in the ancestor's lines; behind the file's first lines
        self._last: int | None = None  # the time of the copy's last line

    def begins(self, meta: dict[str, Any], at: int | None) -> None:
        """The file's first `session_meta`."""
        self._mine = text_of(meta.get("id"))
        self._begun = _minted(self._mine) or milliseconds(meta.get("timestamp")) or at or 0
        self._first = ordinal(meta.get("subagent_history_start_ordinal"), 0)

    def line(self, value: dict[str, Any], kind: str, payload: dict[str, Any], at: int | None) -> bool:
        """Whether this line is a copy of an ancestor's. Lines are asked about in their order."""
        if ordinal(value.get("ordinal")) < self._first:
            return True
        if kind == "session_meta":
            other = bool(self._mine) and text_of(payload.get("id")) not in ("", self._mine)
            self._copies = other and (self._copies or not self._said)
        elif self._copies:
            self._copies = not (self._is_turn(kind, payload) or self._paused(at))
        self._said = self._said or kind == "response_item"
        self._last = at if self._copies and at is not None and at >= self._begun else self._last
        return self._copies

    def _is_turn(self, kind: str, payload: dict[str, Any]) -> bool:
        """Whether a turn of the thread's own begins."""
        begins = kind == "turn_context" or (kind == "event_msg" and text_of(payload.get("type")) in _TURNS)
        return begins and _minted(text_of(payload.get("turn_id"))) >= self._begun > 0

    def _paused(self, at: int | None) -> bool:
        """Whether this was written later than the copy; lines with their old times are of it, too."""
        if at is None or at < self._begun:
            return False
        return self._last is None or at - self._last >= _PAUSE_MS


def _minted(one: str) -> int:
    """When a UUID 7 was made, in milliseconds; 0 of any other id."""
    found = _UUID7.fullmatch(one)
    return int(found[1] + found[2], 16) if found else 0
