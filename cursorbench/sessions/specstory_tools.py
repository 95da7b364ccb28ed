"""The tool blocks of SpecStory transcripts: what was called, what it changed, how it ended.

The writers show a call's input and result as Markdown, a little differently per agent; see docs/sources.md.
Not for: finding the blocks in a transcript (`specstory`).
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from cursorbench.sessions import specstory_cursor as cursor
from cursorbench.sessions import specstory_gemini as gemini
from cursorbench.sessions import specstory_shell as shell
from cursorbench.sessions import specstory_vscode as vscode
from cursorbench.sessions.calls import changes_of_patch, edits
from cursorbench.sessions.codex_told import ending
from cursorbench.sessions.items import Commit, Edit, Outcome, Place, Read, Status, ToolEnd, ToolUse
from cursorbench.sessions.specstory_gemini import Block
from cursorbench.sessions.transcript import Fence

_PHRASE = re.compile(
    r"^(?:Tool use:|Edit(?:ed)? file|Created? file|Deleted? file|Listed|Grep|Search|Read"
    r"|Ran |Run |Fetch|Web|Called)"
)
_NAMED = re.compile(r"^Tool use: \*\*(.+?)\*\*")
_SUMMARY_PATH = re.compile(
    r"(?:Edit file|Apply patch for|Create file|Delete file): ?(.+)$|Apply patch for (.+)$"
)
_SUMMARY_TICKS = re.compile(r"\*\* (?:• )?`([^`]+)`$")
_BODY_PATH = re.compile(r"^(?:(?:Path|File|Edit file): `?|- filePath: `)([^`]+)`?$")
_PATHS = re.compile(r"\bfilePath:(\S+)")  # of several replacements, which stand in one block
_SECTION = re.compile(r"^\*\*(?:Add|Update|Delete|Move|Modify|Create|Rename)[a-z ]*: `([^`]+)`\*\*$")
_RESULT_PATH = re.compile(
    r"^(?:The file (.+?) has been (?:updated|created)|File created successfully at: (.+?)(?: \(|$))"
)
_REJECTED = re.compile(  # at the very beginning, as files that a tool read may quote these words
    r"\s*(?:<tool_use_error>|Error: )?(?:The user doesn't want to (?:proceed with this tool|take this action)"
    r"|[\w ]{0,60}\b(?:rejected|denied) by (?:the )?user|User rejected)"
)
_REASON = re.compile(r"the user said:\s*\n(.*)", re.DOTALL)
_FAILED = re.compile(
    r"\A\s*(?:<tool_use_error>|Error: |InputValidationError"
    r"|Encountered error in step execution: |The command failed with exit code: [1-9])"  # Antigravity's
    r"|^(?:(?:Error: )?Exit code:? [1-9]|Process exited with code [1-9])",
    re.MULTILINE,
)
_OUTPUT = re.compile(r"^Output(?: \(error\))?: +(\S.*)", re.MULTILINE | re.DOTALL)  # of one line
_WRONG = re.compile(r"^Output \(error\):", re.MULTILINE)
_PATCH = "*** Begin Patch"
_CODEX = "Codex CLI"  # whose results stand as in its own logs
_CANCELLED = re.compile(r"^aborted by user|^\[Request interrupted by user", re.MULTILINE)
_COMMITTED = re.compile(r"^\[[^\]\n]* ([0-9a-f]{7,40})\] (.*)$", re.MULTILINE)
_WRITERS = re.compile(r"edit|write|replace|patch|create_?file|delete_?file|insert", re.IGNORECASE)
_NO_FILE = re.compile(r"todo|checklist|stdin|bash|shell|terminal", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|#39|#x27|#96);")
_BARE = re.compile(r"[<>]|&(?!(?:lt|gt|amp|quot|#39|#x27|#96);)")
_BESIDE = (
    "Output:",
    "Output (error):",
    "Result:",
    "**Result",
    "Parameters:",
    "Additional data:",
)  # blocks that are none of a file
_PARAMETER = re.compile(r'^  "(?:file_path|filePath)": ("(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])+")', re.MULTILINE)
_HUNK = re.compile(r"^@@ -(\d+),\w+ \+(\d+),\w+ @@")


class Call(msgspec.Struct):
    """A tool block as it stands in the transcript. `finished`: its end was found."""

    session: str
    id: str
    at: int | None
    place: Place
    name: str
    type: str
    summary: str
    body: Sequence[str] = ()
    finished: bool = True
    model: str = ""
    agent: str = ""


def old_tool(summary: str) -> tuple[str, str] | None:
    """Name (of a phrase the first two words) and type of a tool of an old generation; None: it is no tool."""
    if not _PHRASE.match(summary):
        return None
    found = _NAMED.match(summary)
    name = found[1] if found else "_".join(re.findall(r"[A-Za-z]+", summary)[:2]).lower()
    return name, "write" if re.search(r"[Ee]dit|[Cc]reate|[Dd]elete", name) else ""


def writes(call: Call) -> bool:
    """Whether the tool changes files: by its type, or its name where the type says nothing of that."""
    if call.type not in ("", "unknown", "generic"):
        return call.type == "write"
    return bool(_WRITERS.search(call.name)) and not _NO_FILE.search(call.name)


def unescaped(text: str) -> str:
    """The text before a writer escaped it for HTML. One with a bare `<`, `>` or `&` was not escaped."""
    return html.unescape(text) if _ENTITY.search(text) and not _BARE.search(text) else text


def diff_of(text: str, *, bare: bool = False) -> str:
    """A unified diff: Cursor writes two characters before each line, and counts that may be wrong.

    Its diffs are `bare` or have hunks with numbers; in others that is code which is indented.
    """
    lines = unescaped(text).split("\n")
    if not bare and not any(map(_HUNK.match, lines)):
        return "\n".join(lines)
    body = [line for line in lines if not line.startswith(("@@", "--- ", "+++ ", "\\"))]
    if all(line[:2] in ("", "+", "-", " ", "+ ", "- ", "  ") for line in body) and any(
        line[1:2] == " " for line in body
    ):
        lines = [line if line.startswith("@@") else line[:1] + line[2:] for line in lines]
    return "\n".join(_recounted(lines))


def _recounted(lines: list[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        if not (found := _HUNK.match(line)):
            yield line
            continue
        old = new = 0
        for other in lines[number + 1 :]:
            if other.startswith("@@"):
                break
            old += not other.startswith(("+", "\\"))
            new += not other.startswith(("-", "\\"))
        yield f"@@ -{found[1]},{old} +{found[2]},{new} @@"


def blocks_of(body: Sequence[str]) -> tuple[list[Block], str]:
    """The code blocks, and the text around them."""
    blocks: list[Block] = []
    text: list[str] = []
    fence: Fence | None = None
    inside: list[str] = []
    for line in body:
        if fence is None:
            fence, inside = Fence.opened_by(line), []
            if fence is None:
                text.append(line)
        elif fence.closed_by(line):
            blocks.append(_block(fence, inside, text))
            fence = None
        else:
            inside.append(line)
    if fence is not None:
        blocks.append(_block(fence, inside, text))
    return blocks, "\n".join(text).strip()


def _block(fence: Fence, inside: list[str], text: list[str]) -> Block:
    before = next((line for line in reversed(text) if line.strip()), "")
    return Block(fence.info, "\n".join(inside), before.strip())


def items_of(call: Call) -> Iterator[Read]:
    """The call, what it changes, and its end."""
    blocks, text = blocks_of(call.body)
    own: dict[str, Any] = {"session": call.session, "at": call.at, "place": call.place}
    shown = vscode.told(blocks)
    asked = shell.asked(call.name, call.summary, blocks, text) if call.type == "shell" else ""
    command = unescaped(asked or shown.command)
    arguments = msgspec.json.encode({"command": command}).decode() if command else ""
    yield ToolUse(id=call.id, name=call.name, model=call.model, arguments=arguments, **own)
    last = shell.without_command(blocks) if call.type == "shell" else blocks
    result = last[-1].text if last else text
    if told := _OUTPUT.search(text):
        result = told[1]
    result = result if shown.output is None else unescaped(shown.output)
    outcome, reason = (shown.outcome, "") if shown.outcome else _outcome(result, text)
    if call.agent == _CODEX:
        outcome, reason = ending(result)[1], ""
    if call.agent == gemini.AGENT:
        given, blocks = gemini.result_of(blocks, text), [gemini.asked(block) for block in blocks]
        call.finished = call.finished and not gemini.is_open(call.name, given)
        result = result if given is None else given
        if ended := gemini.outcome(call.name, result):
            outcome, reason = ended, ""
    call.finished = call.finished and not cursor.is_open(call.agent, text)
    if not blocks and call.agent != gemini.AGENT:
        outcome = cursor.outcome(call.agent, call.name, call.summary, text) or outcome
    if writes(call):
        yield from _edits(call, blocks, text, outcome)
    if not call.finished:
        return
    yield ToolEnd(id=call.id, outcome=outcome, text=result, reason=reason, **own)
    if "git commit" in command and outcome == "ok":
        for sha, message in _COMMITTED.findall(result):
            yield Commit(id=call.id, sha=sha, message=message, **own)


def _outcome(result: str, text: str) -> tuple[Outcome, str]:
    if _REJECTED.match(result):
        reason = _REASON.search(result)
        return "rejected", reason[1].strip() if reason else ""
    if re.search(r"^User decision: \*\*rejected\*\*", text, re.MULTILINE):
        return "rejected", ""
    if status := re.search(r"^Status: \*\*(\w+)\*\*", text, re.MULTILINE):
        word = status[1].lower()
        if word in ("cancelled", "canceled", "rejected", "error", "failed"):
            return ("rejected" if word == "rejected" else "interrupted" if word[0] == "c" else "error"), ""
    if _CANCELLED.search(result[:200]):
        return "interrupted", ""
    wrong = "**Apply failed**" in text or "**Error:**" in text or _WRONG.search(text)
    if wrong or _FAILED.search(result[:200]):
        return "error", ""
    return "ok", ""


def _edits(call: Call, blocks: list[Block], text: str, outcome: Outcome) -> Iterator[Edit]:
    status: Status = {"ok": "applied", "rejected": "rejected"}.get(outcome, "proposed")  # type: ignore[assignment]
    if not call.finished:
        status = "proposed"
    own: dict[str, Any] = {
        "session": call.session,
        "id": call.id,
        "at": call.at,
        "place": call.place,
        "status": status,
    }
    sections = [found[1] for line in text.split("\n") if (found := _SECTION.match(line.strip()))]
    for path in sections:
        diffs = [b.text for b in blocks if b.info == "diff" and b.before.endswith(f": `{path}`**")]
        yield Edit(path=path, diff="\n".join(map(diff_of, diffs)) if diffs else None, **own)
    if sections:
        return
    path, told = _path(call, blocks, text), {block.before: block for block in blocks}
    inputs = [b for b in blocks if not (b.before.startswith(_BESIDE) or _RESULT_PATH.match(b.text))]
    if patch := next((b.text for b in inputs if b.text.startswith(_PATCH)), ""):
        changes = changes_of_patch(unescaped(patch))
        yield from edits(changes, status, session=call.session, call=call.id, at=call.at, place=call.place)
        return
    bare = not call.summary  # a block alone, in the oldest transcripts
    diffs = _asked([diff_of(block.text, bare=bare) for block in inputs if block.info == "diff"])
    if diffs and any(re.match(r"[-+@]", line) for line in "\n".join(diffs).split("\n")):
        yield Edit(path=path, diff="\n".join(diffs), **own)
    elif "- oldString:" in told and "- newString:" in told:
        yield Edit(path=path, before=told["- oldString:"].text, after=told["- newString:"].text, **own)
    elif "- replacements:" in told:
        for each in dict.fromkeys(_PATHS.findall(told["- replacements:"].text)):
            yield Edit(path=each, **own)
    elif shown := [b for b in inputs if b.info != "text" and not b.text.startswith("<tool_use_error>")]:
        yield Edit(path=path, after=unescaped(shown[0].text), **own)
    elif path or "Additional data:" in told:
        yield Edit(path=path, **own)


def _asked(diffs: list[str]) -> list[str]:
    """The changes asked for, without the last one where that is what a tool gave back of them: Droid's.

    Its call has lines added and removed, its result all lines of the file, without a head.
    """
    own, last = diffs[:-1], "".join(diffs[-1:])
    bare = all(line[:1] in "+-" for text in own for line in text.split("\n"))
    given = last in own or any(line.startswith(" ") for line in last.split("\n"))
    return own if own and bare and given else diffs


def _path(call: Call, blocks: list[Block], text: str) -> str:
    summary = call.summary.strip()
    if found := _SUMMARY_PATH.search(summary) or _SUMMARY_TICKS.search(summary):
        return unescaped(next(group for group in found.groups() if group)).strip().strip("`")
    for line in text.split("\n"):
        if found := _BODY_PATH.match(line.strip()):
            return found[1]
    if shown := _shown_path(blocks):
        return shown
    if found := re.match(r"^`([^`]+)`", text.strip()):
        return found[1]
    return ""


def _shown_path(blocks: list[Block]) -> str:
    """The file that a code block names: a call's parameters, a diff's head, what the tool says."""
    for block in reversed(blocks):
        if block.before == "Parameters:" and (found := _PARAMETER.search(block.text)):
            return str(msgspec.json.decode(found[1]))
        if found := re.search(r"^\+\+\+ (\S.*)$", block.text, re.MULTILINE) if block.info == "diff" else None:
            return found[1]
        if found := _RESULT_PATH.match(block.text):
            return found[1] or found[2]
    return ""
