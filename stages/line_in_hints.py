"""Commands in what a user is told to do next, on the line that was worked on: ` --line NAME`.

A hint's `rtrl rollback`, typed as it stands, would take back what the workspace's own line serves. The line
is put in where a run, a cycle or a command ends, and nowhere that a hint or a warning is written: none is
forgotten, also deep below, where nobody knows of settings. A command is one in backquotes (`COMMANDS`); one
that names a line already keeps it. Not for: which lines there are (`populations.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stages.errors import RtrlError

if TYPE_CHECKING:
    from stages.workspace import Workspace

COMMANDS = (  # those that take a line
    "collect", "distill", "train", "eval", "deploy", "rollback", "cycle", "monitor", "ab", "anchor", "export",
    "report", "show", "lineage",
)  # fmt: skip
_NAMED = re.compile(rf"`rtrl (?:{'|'.join(COMMANDS)})\b(?: ack\b)?(?![^`]*--line)(?=[^`]*`)")
_GIVEN = "workspace.line="


def on_line(text: str, workspace: Workspace) -> str:
    """The text, its commands with the line worked on where they name none; unchanged where that is the line
    that a command without `--line` works on."""
    if "`rtrl " not in text:
        return text
    try:
        settings = workspace.settings
    except RtrlError:  # it is what the text is about
        return text
    line = settings.workspace.line
    if line not in settings.populations and not names_line(workspace):
        return text
    return _NAMED.sub(lambda found: f"{found[0]} --line {line}", text)


def names_line(workspace: Workspace) -> bool:
    """Whether somebody gave a line with the command (`--line`, `--set`)."""
    return any(each.startswith(_GIVEN) for each in workspace.overrides)


@contextmanager
def hints_on_line(workspace: Workspace) -> Iterator[None]:
    """Hints of errors raised within are `on_line`."""
    try:
        yield
    except RtrlError as error:
        error.hint = on_line(error.hint, workspace)
        raise
