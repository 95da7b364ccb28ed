"""The kinds of session logs that can be read, which kind a file is, and reading one or a folder of them.

An adapter is a module of this folder with

    KIND: str                                              its name on the command line
    recognises(path: Path, head: bytes) -> bool            from the name and the first lines
    read(path: Path, seen: Seen) -> Iterator[Read]         the file's items, in its order

and is listed in `ADAPTERS`; more specific formats come first. Those of text are known by how a file begins,
those of JSON lines by a line of its beginning, which a text may quote: texts come before them, and what else
has few such lines, a program's tests or a document, is no log.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from msgspec import structs

from cursorbench.errors import InputMissingError, UsageError
from cursorbench.sessions import indented
from cursorbench.sessions.compressed import unpacked
from cursorbench.sessions.entire_beside import in_order
from cursorbench.sessions.items import Place, Quarantined, Read
from cursorbench.sessions.listed import first_of_list, lined
from cursorbench.sessions.reading import BYTE_ORDER_MARK, MAX_LINE, unreadable
from cursorbench.sessions.records import first_objects, json_text
from cursorbench.sessions.seen import Seen
from cursorbench.sessions.tellers import is_unique

ADAPTERS = (
    "entire",
    "specstory",
    "cursor_export",
    "aider",
    "qwen_code",
    "pi",
    "claude_code",
    "codex",
    "copilot_cli",
    "opencode",
    "gemini_cli",
    "cline",
    "vscode_chat",
    "goose",
    "openhands",
    "continue_session",
    "git_ai",
    "agent_trace",
    "continue_dev",
    "otel",
    "tensorzero",
    "openai_log",
    "swe_agent",
    "cursor",
)
HEAD_BYTES = 64 << 10
_MEMBERS = 8  # of a list, that are looked at
# not of JSON, or not always
_TEXTS = frozenset({"entire", "specstory", "cursor-export", "aider", "opencode", "git-ai"})
_SKIPPED = frozenset({".git", "node_modules", ".venv", "__pycache__"})
_FIRST = "chatSessions"  # VS Code's: beside Copilot's transcripts of the same chats, which tell no reactions
_OUTPUTS = frozenset({"tool-results", "tool-outputs"})  # of tools, which may have been given any log
_STATE = "workspace.yaml"  # of Copilot CLI's folder of a session, in which but the events no file is a log
_ABOUT = ".meta.json"  # what Claude Code notes of a sub-agent, beside its log


class Adapter(Protocol):
    """See the module."""

    KIND: str

    def recognises(self, path: Path, head: bytes) -> bool:
        """Whether the file is of this kind, from its name and its beginning (`kind_of`)."""

    def read(self, path: Path, seen: Seen) -> Iterator[Read]:
        """Its items, in its order. Raises OSError when it cannot be read at all."""


def adapters() -> dict[str, Adapter]:
    """All adapters by kind."""
    found: dict[str, Adapter] = {}
    for name in ADAPTERS:
        module = importlib.import_module(f"cursorbench.sessions.{name}")
        found[module.KIND] = module
    return found


def kind_of(path: Path) -> str | None:
    """The kind of a file, None when no adapter knows it."""
    with unpacked(path) as (file, _):
        head = _head(file)
        try:
            return _kind(file, head) or (_kind(file, made) if (made := _as_lines(head)) else None)
        finally:
            first_objects.cache_clear()  # nothing of a long line is kept


def _kind(path: Path, head: bytes) -> str | None:
    plain = not _is_json(head)
    known = ((kind, one) for kind, one in adapters().items() if kind in _TEXTS or not plain)
    return next((kind for kind, one in known if one.recognises(path, head)), None)


def _is_json(head: bytes) -> bool:
    """Whether a file, or at least half of its first lines, begin with JSON: one may be torn, or noise."""
    if head.lstrip()[:1] in (b"{", b"["):
        return True
    begun = [line for one in head.split(b"\n")[:-1] if (line := one.strip(b"\r\x00\t "))][: _MEMBERS * 2]
    return 2 * sum(line.startswith(b"{") for line in begun) >= len(begun)


def _as_lines(head: bytes) -> bytes:
    """The beginning of a list, or of indented objects, as that of the log of lines that it was made of."""
    members = [json_text(one).encode() for one in first_of_list(head, _MEMBERS)]
    return b"\n".join(members or indented.first_lines(head, _MEMBERS))


def _head(path: Path) -> bytes:
    """The beginning of a file; of JSON all of the first line, and whole lines behind it.

    What tells a format may stand at the end of a line, behind a prompt of any length.
    """
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES).removeprefix(BYTE_ORDER_MARK)
        if head.lstrip()[:1] not in (b"{", b"["):
            return head
        if b"\n" not in head:
            head += file.readline(MAX_LINE) + file.read(HEAD_BYTES)
        return head + file.readline(MAX_LINE)


def files(root: Path) -> Iterator[Path]:
    """The file itself, or all files of a folder in a fixed order. Links out of it are not followed.

    A client's notes beside a log are left out, and outputs of tools and copies of files that it keeps there.
    A folder that cannot be listed comes as itself: `read` says why.

    Raises:
        InputMissingError: (exit 5) there is nothing at `root`.
    """
    if root.is_file():
        yield root
        return
    if not root.is_dir():
        raise InputMissingError(
            f"there is no file or folder {root}", hint="name a session log, or a folder of them"
        )
    inside, unlisted = root.resolve(), list[Path]()
    for folder, folders, names in os.walk(root, onerror=lambda error: unlisted.append(Path(error.filename))):
        skipped = _SKIPPED | (_OUTPUTS if _keeps_outputs(folder, folders) else frozenset())
        folders[:] = sorted(set(folders) - skipped, key=lambda name: (name != _FIRST, name))
        if _STATE in names and is_unique(Path(folder).name):  # beside it are copies of what was worked on
            folders.clear()
            names[:] = [name for name in names if ".jsonl" in name]
        logs = {name.removesuffix(".jsonl") for name in names if name.endswith(".jsonl")}
        for name in sorted(names):
            if name.endswith(_ABOUT) and name.removesuffix(_ABOUT) in logs:
                continue
            if _counts(path := Path(folder, name), inside):
                yield path
    yield from unlisted


def _keeps_outputs(folder: str, folders: list[str]) -> bool:
    """Whether it is the folder that Claude Code has for a session, or Gemini CLI for its chats."""
    return "chats" in folders or is_unique(Path(folder).name)


def _counts(path: Path, inside: Path) -> bool:
    """Whether it is a file, and no link that leads elsewhere; also when only opening it will tell."""
    try:
        return path.is_file() and (not path.is_symlink() or path.resolve().is_relative_to(inside))
    except OSError:
        return True


def read(root: Path, kind: str | None = None, seen: Seen | None = None) -> Iterator[tuple[str, Read]]:
    """(kind, item) of every item of a file or folder.

    With `kind` every file is read as one of that kind; without it files are recognised, and those of no known
    kind are quarantined, as are folders that cannot be listed. Lines that `seen` has are not told again.

    Raises:
        UsageError: (exit 2) there is no such kind.
        InputMissingError: (exit 5) there is nothing at `root`.
    """
    known, seen = adapters(), seen or Seen()
    if kind is not None and kind not in known:
        raise UsageError(f"there is no kind of log {kind!r}", hint=f"one of {', '.join(known)}")
    for path in in_order(list(files(root))):
        try:
            if path.is_dir():
                os.scandir(path).close()
            if why := unreadable(path):
                yield kind or "", Quarantined(Place(str(path)), why)
                continue
            with unpacked(path) as (whole, damage), lined(whole) as (file, cut):
                found = kind or kind_of(file)
                for item in known[found].read(file, seen) if found else ():
                    yield found or "", item if file is path else _moved(item, path)
            if damage or cut or found is None:
                yield found or "", Quarantined(Place(str(path)), damage or cut or "unknown_kind")
        except OSError as error:
            why = error.strerror or type(error).__name__
            yield kind or "", Quarantined(Place(str(path)), f"cannot be read: {why}")


def _moved(item: Read, path: Path) -> Read:
    """An item of an unpacked file, with the place that people know."""
    return structs.replace(item, place=Place(str(path), item.place.line))
