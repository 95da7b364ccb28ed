"""Commands in what a user is told to do next, on the line that the user works on: ` --line NAME` as given.

A hint's `rtrl rollback`, typed as it stands, would take back what the workspace's own line serves. Not for:
which line is worked on (`options.settings`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

COMMANDS = (
    "collect", "distill", "train", "eval", "deploy", "rollback", "cycle", "monitor", "ab", "anchor", "export",
    "report", "show", "lineage",
)  # fmt: skip
_NAMED = re.compile(rf"`rtrl (?:{'|'.join(COMMANDS)})\b(?: ack\b)?(?![^`]*--line)(?=[^`]*`)")


def given(arguments: Sequence[str]) -> str:
    """The value of `--line` on a command line; "" without one."""
    for place, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name == "--line":
            return value if equals else next(iter(arguments[place + 1 :]), "")
    return ""


def named(text: str, line: str) -> str:
    """The text, its commands with the line where they name none."""
    return _NAMED.sub(lambda found: f"{found[0]} --line {line}", text) if line else text
