"""The state of a chat that VS Code keeps as a log of changes: `chatSessions/ID.jsonl`.

A line is the whole state (`kind` 0), a value that is set (1), members behind the `i`-th of a list, or at its
end (2), or one that is taken out (3); `k` is the way to it. Source: microsoft/vscode, `objectMutationLog.ts`.
Not for: what the state means (`vscode_chat.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cursorbench.sessions.glued import json_lines
from cursorbench.sessions.items import Quarantined
from cursorbench.sessions.reading import list_of, table_of

_NO_FIT = "a change of what is not there"


def is_change(value: object) -> bool:
    """Whether a line is one of such a log."""
    line = table_of(value)
    kind = line.get("kind")
    return kind in (0, 1, 2, 3) and not isinstance(kind, bool) and ("k" in line or "v" in line)


def state_of(path: Path) -> Iterator[Quarantined | dict[str, Any]]:
    """What cannot be read, and last of all the state, where there is one."""
    state: dict[str, Any] = {}
    for found in json_lines(path, is_change):
        if isinstance(found, Quarantined):
            yield found
            continue
        place, line = found
        if line.get("kind") == 0:
            state = table_of(line.get("v"))
        elif not is_change(line) or not _changed(state, line):
            yield Quarantined(place, _NO_FIT)
    yield state


def _changed(state: dict[str, Any], line: dict[str, Any]) -> bool:
    """Makes one change; False where the way to it leads nowhere."""
    *way, last = list_of(line.get("k")) or [None]
    inside: Any = state
    for step in way:
        inside = _member(inside, step)
    if line["kind"] == 2:
        return _pushed(_member(inside, last), line)
    if isinstance(inside, dict) and isinstance(last, str):
        if line["kind"] == 3:
            inside.pop(last, None)
        else:
            inside[last] = line.get("v")
        return True
    if isinstance(inside, list) and _is_place(last) and last <= len(inside):
        inside[last : last + 1] = [line.get("v")]
        return True
    return False


def _pushed(into: Any, line: dict[str, Any]) -> bool:
    at = line.get("i")
    if not isinstance(into, list) or not (at is None or (_is_place(at) and at <= len(into))):
        return False
    into[len(into) if at is None else at :] = list_of(line.get("v"))
    return True


def _member(inside: Any, step: object) -> Any:
    if isinstance(inside, dict) and isinstance(step, str):
        return inside.get(step)
    if isinstance(inside, list) and isinstance(step, int) and _is_place(step) and step < len(inside):
        return inside[step]
    return None


def _is_place(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
