"""What the tools of Claude Code did: changes of files, how a call ended, commits.

For `claude_code`. A change that is proposed has the texts of the tool call; when it was applied and the log
has the file as it was, `before` and `after` are the whole file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from cursorbench.sessions.items import Outcome
from cursorbench.sessions.reading import list_of, table_of, text_of

_EDITORS = frozenset({"Edit", "Write", "MultiEdit", "NotebookEdit"})
_ACP = "mcp__acp__"  # the same tools, offered by an editor over the Agent Client Protocol
_REFUSALS = (
    "The user doesn't want to proceed with this tool use.",
    "The user doesn't want to take this action right now.",
)
_REASONS = (
    "To tell you how to proceed, the user said:",
    "The user provided the following reason for the rejection:",
    "The user provided the following instructions instead:",
)
_BUTTONS = (  # under a question: what the client says in the user's name when one is pressed
    "The user wants to clarify these questions.",
    "The user has indicated they have provided enough answers for the plan interview.",
)
_REJECTED = "user-rejected"
_STOPPED = frozenset({"interrupted", "cancelled"})
_RUNNING = "this call was stopped while running, not refused before it ran"  # behind the words of a refusal
_DECIDED: dict[str, Outcome] = {"user_reject": "rejected", "user_abort": "interrupted"}
_NOTE = "\n\nNote: The user's next message may contain a correction or preference."
_COMMITTED = re.compile(r"^\[[^\]\n]* ([0-9a-f]{7,40})\] (.*)$", re.MULTILINE)


class Change(NamedTuple):
    """A change of a file; see `items.Edit`."""

    path: str
    before: str | None = None
    after: str | None = None
    diff: str | None = None


def json_text(value: object) -> tuple[str, str]:
    """The value as JSON text, and why it is no argument of a tool call, "" when it is one."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):  # a number of thousands of digits, thousands of brackets
        return "", "the arguments cannot be written as JSON"
    return text, "" if isinstance(value, dict) else "the arguments are not a JSON object"


def proposed(tool: str, arguments: object) -> Change | None:
    """The change of a file that a tool call asks for; None when it is not one."""
    tool, given = tool.removeprefix(_ACP), table_of(arguments)
    path = text_of(given.get("file_path")) or text_of(given.get("notebook_path"))
    if tool not in _EDITORS or not path:
        return None
    if tool == "Write":
        return Change(path, after=_text(given.get("content")))
    if tool == "NotebookEdit":
        return Change(path, after=_text(given.get("new_source")))
    return Change(path, *_fragments(_steps(given)))


def applied(change: Change | None, result: object) -> Change | None:
    """The change as the tool's result tells it, else as it was proposed; None when there was none."""
    told = table_of(result)
    path = text_of(told.get("filePath")) or text_of(told.get("notebook_path"))
    if change is None:
        if not path or not {"structuredPatch", "updated_file"} & set(told):
            return None
        change = Change(path)
    if isinstance(updated := told.get("updated_file"), str):  # NotebookEdit
        return Change(path or change.path, _text(told.get("original_file")), updated)
    original = _text(told.get("originalFile", told.get("originalFileContents")))
    if isinstance(content := told.get("content"), str):  # Write
        before = "" if original is None and told.get("type") == "create" else original
        return Change(path or change.path, before, content)
    steps = _steps(told)
    if original is None and [one[0] for one in steps] == [""]:  # Edit makes a file, too
        original = ""
    if steps and original is not None and (after := _replaced(original, steps)) is not None:
        return Change(path or change.path, original, after)
    fragments = _fragments(steps) if steps else (change.before, change.after)
    diff = None if any(text is not None for text in fragments) else unified(told.get("structuredPatch"))
    return Change(path or change.path, *fragments, diff)


def unified(patch: object) -> str | None:
    """The hunks of a `structuredPatch` as the text of a unified diff, without the names of the files."""
    lines: list[str] = []
    for hunk in map(table_of, list_of(patch)):
        numbers = [hunk.get(name) for name in ("oldStart", "oldLines", "newStart", "newLines")]
        if not all(isinstance(number, int) and abs(number) < 1 << 62 for number in numbers):
            continue
        lines.append("@@ -{},{} +{},{} @@".format(*numbers))
        lines += [line for line in list_of(hunk.get("lines")) if isinstance(line, str)]
    return "\n".join(lines) + "\n" if lines else None


def outcome(
    block: dict[str, Any],
    result: object,
    text: str,
    *,
    shutdown: bool = False,
    denial: str = "",
    feedback: str = "",
    by: str = "",
    words: bool = False,
) -> tuple[Outcome, str]:
    """How a call ended, and what the user said when rejecting it.

    At a `shutdown` the client ends the calls that run in the words of a rejection; nobody rejected them.
    `denial` and `feedback` are a line's `toolDenialKind` and `userFeedback`, "" before 2.1.205: who did it.
    "user-rejected" alone says little: the client says it of calls that nobody was there to allow, too.
    `by` is whose no it was, by a line's `permissionDecision`, "" before 2.1.332 and for no such decision;
    with `words` (`holdsPersonsWords`) the text is what the person said.
    """
    wrong = block.get("is_error") is True or text_of(result).startswith("Error: ")
    told = text.lstrip()
    if wrong and by and not shutdown:
        ended = _DECIDED.get(by, "error")
        said = _reason(told) or feedback or (told.rstrip() if words else "")
        return ended, said if ended == "rejected" else ""
    if text_of(result).startswith("User rejected") or (wrong and told.startswith(_REFUSALS)):
        if shutdown or denial in _STOPPED or _RUNNING in told:
            return "interrupted", ""
        return ("rejected", _reason(told) or feedback) if denial in ("", _REJECTED) else ("error", "")
    if wrong and denial == _REJECTED and feedback:
        return "rejected", feedback
    marked = wrong and told.startswith("[Request interrupted by user")
    if marked or table_of(result).get("interrupted") is True:
        return "interrupted", ""
    return ("error" if wrong else "ok"), ""


def commits(arguments: object, output: str) -> Iterator[tuple[str, str]]:
    """(abbreviated SHA, subject) of the commits that a shell command made, as git prints them."""
    command = text_of(table_of(arguments).get("command"))
    if "git" in command and "commit" in command:
        for found in _COMMITTED.finditer(output):
            yield found[1], found[2].rstrip("\r")


def _reason(text: str) -> str:
    for mark in _REASONS:
        _, found, reason = text.partition(mark)
        if found:
            words = reason.partition(_NOTE)[0].strip()
            return "" if words.startswith(_BUTTONS) else words
    return ""


def _steps(table: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """(old text, new text, everywhere) of the replacements that a call or a result names."""
    found = []
    for one in [table, *map(table_of, list_of(table.get("edits")))]:
        old = one.get("old_string", one.get("oldString"))
        new = one.get("new_string", one.get("newString"))
        if isinstance(old, str) and isinstance(new, str):
            found.append((old, new, True in (one.get("replace_all"), one.get("replaceAll"))))
    return found


def _fragments(steps: list[tuple[str, str, bool]]) -> tuple[str | None, str | None]:
    if not steps:
        return None, None
    return "\n".join(old for old, _, _ in steps), "\n".join(new for _, new, _ in steps)


def _replaced(text: str, steps: list[tuple[str, str, bool]]) -> str | None:
    """The file after the replacements as the tool makes them; None when one does not fit the file."""
    for old, new, everywhere in steps:
        if old == "":
            if text:
                return None
            text = new
            continue
        if old not in text:
            return None
        if new == "" and not old.endswith("\n") and old + "\n" in text:
            old += "\n"  # noqa: PLW2901  the tool removes the line, not only its text
        text = text.replace(old, new) if everywhere else text.replace(old, new, 1)
    return text


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
