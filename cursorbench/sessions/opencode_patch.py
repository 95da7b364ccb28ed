"""Files that changed while a step of OpenCode ran, by its snapshots of the work tree: which are the agent's.

A snapshot does not know who changed a file: beside what a command wrote it has what a person, or another
session, changed meanwhile, while a page was fetched or the model wrote. So files count that no tool told of,
and only of an answer with a call that may have written them without telling. For `opencode`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from cursorbench.sessions.calls import Change
from cursorbench.sessions.reading import list_of

_NAMES = """
    apply_patch codesearch edit glob grep invalid list lsp multiedit patch plan_enter plan_exit question read
    skill todoread todowrite webfetch websearch write
"""
_TELLING = frozenset(_NAMES.split())  # OpenCode's own tools that write no files, or tell of each


def spelt(path: str) -> str:
    """One spelling of a path: on Windows the tools have backslashes, the snapshots of git none."""
    return path.replace("\\", "/")


def written(part: dict[str, Any], parts: Iterable[dict[str, Any]], told: Sequence[str]) -> tuple[Change, ...]:
    """The changes that commands of an answer made, by a `patch` part of it.

    Args:
        parts: all of the answer.
        told: the files that its tools told of, spelt as here; a patch's are relative.
    """
    if all(one.get("tool") in _TELLING for one in parts if one.get("type") == "tool"):
        return ()
    files = [path for path in list_of(part.get("files")) if isinstance(path, str)]
    return tuple(Change(path) for path in files if not any(_is(spelt(path), one) for one in told))


def _is(path: str, told: str) -> bool:
    return path == told or path.endswith(f"/{told.removeprefix('./')}")
