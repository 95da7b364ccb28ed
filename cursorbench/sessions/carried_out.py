"""The changes of files that a call made, by what the tool gave: for logs of requests, the gateway and
telemetry, which hold the words of any client's tools and no field that says how a call ended.

A tool that changed a file says so or nothing; one that did not says why. Only the beginning counts. Sources:
published sessions of Claude Code, Codex, OpenCode, Cline and its kin, Copilot, Gemini CLI; the tools of
OpenHands and SWE-agent. Not for: calls that a person refused (`refusals.py`), other tools' results.
"""

from __future__ import annotations

import re

from cursorbench.sessions import codex_told
from cursorbench.sessions.calls import Change, arguments_of, changes_of, edits_files

_PATCH = "*** Begin Patch"
_LOOKED_AT = 100_000  # characters of a result
_DONE = re.compile(
    r"[^\n]{0,300}\b(?:successfully|success|(?<!not )applied"
    r"|has been (?:updated|edited|created|modified|written)(?! since))\b"
    r"|(?:file )?(?:created|updated|wrote|written|edited|modified|saved|overwrote)\b",
    re.IGNORECASE,
)
_NOT_DONE = re.compile(
    r"(?:\{\s*\"(?:error|message)\"|<\w*error\w*>)"
    r"|\W{0,4}(?:error|failed|failure|invalid|unable|cannot|can't|could not|couldn't|unknown|traceback)\b"
    r"|[^\n]{0,300}\b(?:no (?:such|match|matches|replacement|replacements|change|changes)|not found"
    r"|does not exist|doesn't exist|not (?:be )?(?:applied|unique|exist|been read|written|modified)"
    r"|did not (?:appear|match)|multiple (?:matches|occurrences)|already exists|denied|modified since"
    r"|is required|must (?:be|match|have|use|read)|but expected|timed out"
    r"|(?:tool|edit|patch|diff|write|execution|operation)\b[^\n]{0,60}\bfailed)\b"
    r"|[^\n]{0,80}error:",
    re.IGNORECASE,
)


def changes_made(name: str, arguments: str, result: str) -> tuple[Change, ...]:
    """The changes of a call with these arguments, JSON; none where it changes no files, or did not.

    Args:
        result: what the tool gave, as the model was told.
    """
    return () if not_written(result) else changes_asked(name, arguments)


def changes_asked(name: str, arguments: str) -> tuple[Change, ...]:
    """The same of a call that need not have been carried out."""
    if not may_change(name, arguments):
        return ()
    table = arguments_of(arguments).table
    return changes_of(name, table) or codex_told.asked(name, table)


def may_change(name: str, arguments: str) -> bool:
    """Whether a look at a call says that it may change files: an editing tool's, or one with a patch."""
    return edits_files(name) or _PATCH in arguments


def not_written(result: str) -> bool:
    """Whether an editing tool says that it changed nothing."""
    text = result[:_LOOKED_AT].lstrip()
    if codex_told.ending(text)[1] != "ok":
        return True
    return not _DONE.match(text) and _NOT_DONE.match(text) is not None
