"""The workspace and line that the command works on, for the hints of a command that is no stage's run.

Not for: which line that is (`options.settings`), how hints name it (`stages/line_in_hints.py`).
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stages.workspace import Workspace

_WORKED_ON: ContextVar[Workspace | None] = ContextVar("worked_on", default=None)


def work_on(workspace: Workspace | None) -> None:
    """From now on the command works on this one."""
    _WORKED_ON.set(workspace)


def named(text: str) -> str:
    """The text, its commands with the line where they need it."""
    if (workspace := _WORKED_ON.get()) is None:
        return text
    from stages.line_in_hints import on_line

    return on_line(text, workspace)
