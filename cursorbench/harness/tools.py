"""The small set of tools: read_file, edit_file, search, run, each with one plain way to use it.

The seed model was trained on these very definitions and results: a word changed here is another
language to it (a test holds their digest). Real tasks have the set of `task_tools.py`. `run` knows a
fixed table of commands (`commands.py`); nothing of what a model writes is executed.
"""

from __future__ import annotations

from typing import Any

from cursorbench.harness.commands import COMMANDS
from cursorbench.harness.editing import Replacement, encode, replace
from cursorbench.harness.results import Edit, RefusedError, ToolResult, shorten
from cursorbench.harness.toolbox import Arguments, Tool, define, text
from cursorbench.harness.workplace import Workplace

MAX_FILE_BYTES = 256 * 1024
MAX_RESULT_CHARS = 2000
MAX_MATCHES = 20

_TEXT = {"type": "string"}


def read_text(place: Workplace, path: str) -> str:
    """A file's text. Raises RefusedError (outside, too_large, no_file: also for what is not UTF-8)."""
    try:
        return place.read(path, MAX_FILE_BYTES).decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise RefusedError("no_file", "no such file") from error


def _read_file(place: Workplace, arguments: Arguments, left_s: float) -> ToolResult:
    return ToolResult(shorten(read_text(place, text(arguments, "path")), MAX_RESULT_CHARS))


def _edit_file(place: Workplace, arguments: Arguments, left_s: float) -> ToolResult:
    path = place.name(text(arguments, "path"))
    one = Replacement(text(arguments, "old"), text(arguments, "new"))
    before = read_text(place, path)
    after = replace(before, one)
    place.write(path, encode(after))
    return ToolResult("ok", "", Edit(path, before, after))


def _search(place: Workplace, arguments: Arguments, left_s: float) -> ToolResult:
    wanted = text(arguments, "text")
    if not wanted:
        raise RefusedError("arguments", "text is empty")
    found: list[str] = []
    for path in place.files():
        try:
            content = place.read(path, MAX_FILE_BYTES)
        except RefusedError:
            continue  # too large, or gone meanwhile
        for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
            if wanted in line:
                found.append(f"{path}:{number}: {line.strip()}")
    if not found:
        return ToolResult("no match")
    more = [f"{len(found) - MAX_MATCHES} more"] if len(found) > MAX_MATCHES else []
    return ToolResult(shorten("\n".join([*found[:MAX_MATCHES], *more]), MAX_RESULT_CHARS))


def _run(place: Workplace, arguments: Arguments, left_s: float) -> ToolResult:
    ran = place.fixed(text(arguments, "command"))
    if ran.ended == "timeout":
        return ToolResult("error: time-out", "timeout")
    said = shorten(f"exit {ran.status}\n{ran.output}".rstrip(), MAX_RESULT_CHARS)
    return ToolResult(said, "" if ran.status == 0 else "failed")


SMALL_TOOLS: tuple[Tool, ...] = (
    Tool(define("read_file", "Read a file.", {"path": _TEXT}), _read_file),
    Tool(
        define(
            "edit_file",
            "Replace the one place where `old` stands by `new`.",
            {"path": _TEXT, "old": _TEXT, "new": _TEXT},
        ),
        _edit_file,
        edits=True,
    ),
    Tool(define("search", "List the lines that contain a text.", {"text": _TEXT}), _search),
    Tool(
        define(
            "run", "Run one of the fixed commands.", {"command": {"type": "string", "enum": list(COMMANDS)}}
        ),
        _run,
    ),
)
DEFAULT_TOOLS: tuple[dict[str, Any], ...] = tuple(tool.definition for tool in SMALL_TOOLS)
