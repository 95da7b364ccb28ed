"""The sentences in which Aider tells what happened, over its versions. For `aider`."""

from __future__ import annotations

import re

from cursorbench.sessions.aider_edits import REPLACE, SEARCH
from cursorbench.sessions.reading import milliseconds

__all__ = ["REPLACE", "SEARCH"]

# Aider's own command line, from its first name: from each of many it would take hours
CALLED = re.compile(r"^(?>[^\n]*?\baider\b)[^\n]* (?:--message|--msg|-m)(?=[ =\n]|$)")
VERSION = re.compile(r"^Aider v(\S+)")
# a mark of prompt caching stood behind it once; a command that was run may tell of models too
MODEL = re.compile(r"^(?:Main model|Models?): ([^\s⚡]+)(?=.* edit format|$)")
EDITOR = re.compile(r"^Editor model: ([^\s⚡]+)")  # answers what the architect hands on
FOLDER = re.compile(r"^Git working dir: (.+)$")
APPLIED = re.compile(r"^Applied edit to (.+)$")
DRY = re.compile(r"^Did not apply edit to (.+?) \(--dry-run\)$")
SKIPPED = re.compile(r"^Skipping edits? to (.+?)(?: that matches gitignore spec\.)?$")  # `edit`: of 2023
COMMIT = re.compile(r"^Commit ([0-9a-f]{7,40}) (.*)$", re.DOTALL)
UNDONE = re.compile(r"^(?:Removed: ([0-9a-f]{7,40})\b|Commit `?([0-9a-f]{7,40})`? was reset and removed)")
TOKENS = re.compile(r"^Tokens: ")
MALFORMED = re.compile(r"^(?:The LLM did not conform to the edit format|Malformed (?:response|ORIGINAL))")
UNMATCHED = re.compile(r"^# \d+ SEARCH/REPLACE blocks? failed to match|UnifiedDiffNoMatch|failed to apply")
OTHERS = re.compile(r"The other \d+ SEARCH/REPLACE blocks? (?:were|was) applied successfully")
STOPPED = re.compile(r"\^C (?:again to exit|KeyboardInterrupt)$")
ASKED = re.compile(
    r"^(?P<question>[^\n]*?\?)"
    r"(?>(?:\s*(?:[(\[][Yy][^\n]*?instructions[)\]]?:?|\((?:Y|y)[^)\n]*\)?[^\n]*?\[\w+\]:?|\[[Yy]/[Nn]\]))?)"
    r"\s+(?P<answer>\S[^\n]*)$"
)
_OUTPUT = re.compile(r"^Add (?:the|[\d.]+k tokens of command) output to the chat\?")
_SHELL = re.compile(r"^Run (?:the )?shell commands?\?")
_GOES_ON = re.compile(r"^(?:Attempt to fix|Fix lint errors|Add .* to the chat\?|Try to proceed)")
_HANDS_ON = re.compile(r"^Edit the files\?")
_KNOWN = re.compile(
    r"^(?:Tokens: |Unexpected error: |Commit [0-9a-f]{7,40} "
    r"|Applied edit to |Removed: |Add .* output to the chat\?)"
)
_BREAKS = re.compile(r"^> (?:Tokens: [\d.,]+k? sent|(?:\^C|Unexpected error|You can use /undo).*  $)")


def time_of(text: str) -> int | None:
    """When a session started. Aider tells no zone; the time counts as UTC."""
    return milliseconds(text)


def known(text: str) -> bool:
    """Whether a message begins so, that it is one of Aider's wherever it stands."""
    return bool(_KNOWN.match(text))


def breaks(line: str) -> bool:
    """Whether a line ends an edit block that was never closed: the answer stopped there."""
    return line == ">  " or bool(_BREAKS.match(line))


def instructions(question: str, answer: str) -> bool:
    """Whether the answer to "Add the output to the chat?" is a message of its own."""
    return bool(_OUTPUT.match(question)) and answer.lower() not in ("y", "n", "yes", "no")


def refused(question: str, answer: str) -> str:
    """The tool that the user did not allow, "" for none. Of a file that they did not, `SKIPPED` tells."""
    if not answer.lower().startswith(("n", "s", "d")):
        return ""
    if _SHELL.match(question):
        return "shell"
    return "edit" if _HANDS_ON.match(question) else ""


def goes_on(question: str, answer: str) -> bool:
    """Whether the model is called again after the answer."""
    return bool(_GOES_ON.match(question)) and answer.lower().startswith(("y", "a"))


def hands_on(question: str, answer: str) -> bool:
    """Whether the architect's answer goes to the editor."""
    return bool(_HANDS_ON.match(question)) and answer.lower().startswith(("y", "a"))
