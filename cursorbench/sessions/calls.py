"""Tool calls of coding agents: their arguments as JSON text, and the changes of files they ask for.

Agents differ in tool names and spell the same few arguments differently; here those spellings meet.
Not for: whether a call succeeded or was allowed, which every format tells in its own way.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import msgspec

from cursorbench.sessions.items import Edit, Place, Status
from cursorbench.sessions.reading import list_of, parsed, table_of

REDACTED = "redacted-by-litellm"  # what LiteLLM writes for texts and arguments that it was told to leave out
_CUT = re.compile(r"\(litellm_truncated (?:skipped )?[0-9]+ chars")  # in texts that LiteLLM's spend logs cut
_PATHS = (
    "path",
    "file_path",
    "filePath",
    "filepath",
    "filename",
    "fileName",
    "target_file",
    "absolute_path",
    "absolutePath",
)
_BEFORE = ("old_str", "oldString", "old_string", "oldText", "old_text", "before")
_AFTER = ("new_str", "newString", "new_string", "newText", "new_text", "insert_text", "newCode", "after")
_WHOLE = ("file_text", "content", "contents", "code", "fileText")
_PARTS = ("edits", "replacements")
_PATCH = ("input", "patch", "patchText", "patch_text")
_CREATES = {"create", "createfile", "createnewfile"}
_BLOCKS = {"replaceinfile", "applydiff", "searchandreplace"}  # of Cline and its kin
_WRITES = _CREATES | {
    "edit", "editexistingfile", "editfile", "editfilev2", "editor", "fileeditor", "insert",
    "inserteditintofile", "multiedit", "multireplacestringinfile", "replace", "replacestringinfile",
    "searchreplace", "singlefindandreplace", "strreplace", "strreplacebasededittool", "strreplaceeditor",
    "texteditor", "write", "writefile", "writetofile",
}  # fmt: skip
_PATCHES = {"applypatch", "patch"}
_BUILT_IN = ("developer__", "builtin_")  # before the names of goose's and Continue's own tools
_MOST_CALLS = 4096
_SEARCH = re.compile(r"(?:-{5,9}|<{5,9}) SEARCH>?[ \t]*")
_DIVIDER = re.compile(r"={5,9}[ \t]*")
_REPLACE = re.compile(r"(?:\+{5,9}|>{5,9}) REPLACE")
_HINT = re.compile(r"(?>(?::(?:start|end)_line:.*\n)+)-{5,9}[ \t]*\n")
_HEADER = re.compile(r"\*\*\* (Add File|Update File|Delete File|Move to): (.+?)\s*$")


class Arguments(msgspec.Struct, frozen=True):
    """A call's arguments: JSON text as the log has it, its table when it is one, else why not.

    `untold`: the log left them out, so that nothing is known of them.
    """

    text: str = ""
    table: dict[str, Any] = {}
    invalid: str = ""
    untold: bool = False

    def written(self) -> str:
        """The same for a table and for a text of it, whatever blanks that has."""
        return json_text(self.table) if self.table else self.text


class Call(msgspec.Struct, frozen=True):
    """The agent asks for a tool."""

    id: str
    name: str
    arguments: Arguments


class Result(msgspec.Struct, frozen=True):
    """What a tool gave, or that a person refused the call: `reason` is what they said then."""

    id: str
    text: str
    wrong: bool = False
    refused: bool = False
    reason: str = ""


class Change(msgspec.Struct, frozen=True):
    """One file a call changes; see `items.Edit`."""

    path: str
    before: str | None = None
    after: str | None = None
    diff: str | None = None


def asked_for(name: str, arguments: Arguments) -> tuple[Change, ...]:
    """What a call is to change; the files alone where the log has its texts cut."""
    changes = changes_of(name, arguments.table)
    return paths_of(changes) if _CUT.search(arguments.text) else changes


def paths_of(changes: tuple[Change, ...]) -> tuple[Change, ...]:
    """The files alone: for what may be undone much later, texts are not kept."""
    return tuple(Change(one.path) for one in changes)


class Open:
    """Changes that calls asked for and nobody answered yet, by call id; the oldest are given up."""

    def __init__(self) -> None:
        self._changes: OrderedDict[str, tuple[Change, ...]] = OrderedDict()

    def add(self, call: str, changes: tuple[Change, ...]) -> None:
        """A call asks for these."""
        if changes:
            remember(self._changes, call, changes)

    def take(self, call: str) -> tuple[Change, ...]:
        """What the call asked for, once."""
        return self._changes.pop(call, ())


def remember(known: OrderedDict[str, Any], call: str, value: object) -> None:
    """Keep what is known of a call that has an id; the oldest of too many are forgotten."""
    if call:
        known[call] = value
        if len(known) > _MOST_CALLS:
            known.popitem(last=False)


def json_text(value: object) -> str:
    """The value as JSON text, "" where it is nested too deep to be written."""
    try:
        return msgspec.json.encode(value).decode()
    except (OverflowError, RecursionError, TypeError, ValueError, msgspec.MsgspecError):
        return ""


def arguments_of(value: object) -> Arguments:
    """Arguments given as a table or, as the OpenAI API does, as text that should be JSON."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return Arguments()
    if isinstance(value, dict):
        return Arguments(text=json_text(value), table=value)
    if not isinstance(value, str):
        return Arguments(text=json_text(value), invalid="not a JSON object")
    found = parsed(value.encode(errors="replace"))
    if isinstance(found, dict):
        return Arguments(text=value, table=found)
    if value == REDACTED or _CUT.search(value):
        return Arguments(untold=True)
    return Arguments(text=value, invalid=found if isinstance(found, str) else "not a JSON object")


def edits_files(name: str) -> bool:
    """Whether a tool of this name is one whose calls may change files."""
    return _kind(name) in _PATCHES | _BLOCKS | _WRITES


def changes_of(name: str, table: dict[str, Any]) -> tuple[Change, ...]:
    """The changes a call of this tool asks for; none for tools that change no files."""
    kind = _kind(name)
    if kind in _PATCHES:
        return changes_of_patch(_text(table, _PATCH) or "")
    if kind in _BLOCKS and (blocks := _text(table, ("diff",))):
        return tuple(changes_of_blocks(_text(table, _PATHS) or "", blocks))
    if kind not in _WRITES or (command := table.get("command")) in ("view", "undo_edit"):
        return ()
    path = _text(table, _PATHS) or ""
    creates = kind in _CREATES or command == "create"
    parts = [table_of(part) for key in _PARTS for part in list_of(table.get(key))]
    found = [_change(part, path, creates) for part in parts or [table]]
    return tuple(change for change in found if change.path)


def _kind(name: str) -> str:
    own = next((name.removeprefix(one) for one in _BUILT_IN if name.startswith(one)), name)
    return re.sub(r"[^a-z0-9]", "", own.lower())


def _change(table: dict[str, Any], path: str, creates: bool) -> Change:
    path = _text(table, _PATHS) or path
    before, after = _text(table, _BEFORE), _text(table, _AFTER)
    if before is None and after is None:
        whole = _text(table, _WHOLE)
        return Change(path, before="" if creates and whole is not None else None, after=whole)
    return Change(path, before=before or "", after=after or "")


def _text(table: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((found for key in keys if isinstance(found := table.get(key), str)), None)


def changes_of_blocks(path: str, blocks: str) -> Iterator[Change]:
    """The changes of a file in SEARCH/REPLACE blocks as Cline, Roo and Kilo have them; none without a path.

    Roo puts the line that a block begins with above the text that is searched for.
    """
    before: list[str] | None = None
    after: list[str] | None = None
    for line in blocks.replace("\r\n", "\n").split("\n") if path else ():
        if before is None:
            before = [] if _SEARCH.fullmatch(line) else None
        elif after is None:
            if _DIVIDER.fullmatch(line):
                after = []
            else:
                before.append(f"{line}\n")
        elif _REPLACE.match(line):
            text = "".join(before)
            hint = _HINT.match(text)
            yield Change(path, before=text[hint.end() if hint else 0 :], after="".join(after))
            before = after = None
        else:
            after.append(f"{line}\n")


def changes_of_patch(patch: str) -> tuple[Change, ...]:
    """The files of a `*** Begin Patch` envelope; text around it is left out. Only a newline ends a line."""
    found: list[tuple[str, str, list[str]]] = []
    started = False
    for line in (each.removesuffix("\r") for each in patch.split("\n")):
        if line.startswith("*** Begin Patch"):
            started = True
        elif not started:
            continue
        elif line.startswith("*** End Patch"):
            break
        elif not (header := _HEADER.match(line)):
            if found and not line.startswith("*** End of File"):
                found[-1][2].append(line)
        elif header[1] != "Move to":
            found.append((header[1], header[2], []))
        elif found:
            found.insert(-1, ("Move", found[-1][1], []))
            found[-1] = (found[-1][0], header[2], found[-1][2])
    return tuple(_patched(*one) for one in found)


def _patched(kind: str, path: str, body: list[str]) -> Change:
    if kind == "Add File":
        added = "".join(f"{line[1:]}\n" for line in body if line.startswith("+"))
        return Change(path, before="", after=added)
    if kind == "Delete File":
        return Change(path, after="")
    return Change(path, diff="".join(f"{line}\n" for line in body) or None)


def edits(
    changes: tuple[Change, ...], status: Status, *, session: str, call: str, at: int | None, place: Place
) -> Iterator[Edit]:
    """The changes as items of one status."""
    for one in changes:
        yield Edit(
            session=session, id=call, at=at, place=place, path=one.path, status=status,
            before=one.before, after=one.after, diff=one.diff,
        )  # fmt: skip


def plain(name: object) -> str:
    """A name of the log fit for a text of ours: 40 plain characters at most."""
    return re.sub(r"[^A-Za-z0-9_.:/-]", "?", name)[:40] if isinstance(name, str) else "none"
