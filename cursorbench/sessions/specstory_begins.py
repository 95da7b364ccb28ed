"""Which lines of an agent's text begin a tool's block, or a thought, in a SpecStory transcript.

For `specstory`. Tools have tags since October 2025. In that autumn the extension wrote a line with the
tool's name and behind it, up to the next `---`, what was asked and given, in a block of its own or not.
Before that: a block alone, a bare diff, a line that names the file read.
"""

from __future__ import annotations

import re

from cursorbench.sessions.specstory_head import NAMED, Known
from cursorbench.sessions.transcript import Fence

HEADS = ("_**", "_\\*")  # how the headers of turns begin
_TOOL = re.compile(r'^<tool-use data-tool-type="([^"]*)" data-tool-name="([^"]*)"[^>]*>')
_SHELL = re.compile(r"terminal|shell|command", re.IGNORECASE)
_READ = re.compile(r"^Read file: \S.*$")


def is_tag(line: str) -> bool:
    """Whether the line is a tool's opening tag."""
    return _TOOL.match(line) is not None


def mode_of(line: str, number: int, known: Known, before: str, *, after_diff: bool) -> str:
    """What the line begins: "tool", "think", "details", "diff", "named", "read"; "" for nothing.

    Args:
        number: of the line, in its file.
        before: the last line that was not blank.
        after_diff: whether that line ended a bare diff.
    """
    if is_tag(line):
        return "tool"
    if line.startswith("<think>") and known.closings.of_tag("</think>", number - 1):
        return "think"
    if line.startswith("<details>") and known.closings.of_tag("</details>", number):
        return "" if number in known.endless else "details"
    first = before == "---" or before.startswith(HEADS)  # of a turn, or of a part of one
    if known.tagged or not (first or after_diff):
        return ""
    if line == "```diff" and known.closings.of_fence(Fence("`", 3), number):
        return "diff"
    return "named" if NAMED.match(line) else "read" if _READ.match(line) else ""


def tool_of(mode: str, line: str) -> tuple[str, str]:
    """Name and type of the tool whose block the line begins, as far as the line tells."""
    if found := _TOOL.match(line):
        return found[2], found[1]
    if found := NAMED.match(line):
        return found[1], "shell" if _SHELL.search(found[1]) else ""
    return {"diff": ("edit", "write"), "read": ("read_file", "read")}.get(mode, ("", ""))
