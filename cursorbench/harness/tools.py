"""The harness's tools: read_file, edit_file, search, run, on real files under one folder.

What a model may do to a working folder, and what it is told about it. Every outcome is a result,
typed, never an exception: a wrong path is the model's mistake and it gets to read so. Not a sandbox:
`run` executes a fixed table of commands under resource limits (`commands.py`), nothing else of what
a model writes is ever executed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cursorbench.harness.commands import COMMANDS, run_command

ToolError = Literal[
    "",
    "unknown_tool",
    "arguments",  # not an object, or a field is missing or of the wrong type
    "outside",  # the path leaves the folder
    "no_file",  # no such file, or not readable text
    "not_found",  # the text to replace is not there
    "ambiguous",  # the text to replace is there more than once
    "no_change",
    "too_large",
    "failed",  # the command exited with another status than 0
    "timeout",
]

MAX_FILE_BYTES = 256 * 1024
MAX_RESULT_CHARS = 2000
MAX_MATCHES = 20


@dataclass(frozen=True)
class ToolResult:
    """What a call did. `text` is what the model reads; `edit` is set when a file changed."""

    text: str
    error: ToolError = ""
    edit: Edit | None = None

    @property
    def ok(self) -> bool:
        """Whether the tool did what was asked."""
        return not self.error


@dataclass(frozen=True)
class Edit:
    """One file changed: full texts before and after; `turn` is the model call that did it, from 0."""

    path: str
    before: str
    after: str
    turn: int = 0


def _tool(name: str, description: str, **fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": dict(fields),
                "required": list(fields),
                "additionalProperties": False,
            },
        },
    }


_TEXT = {"type": "string"}
DEFAULT_TOOLS: tuple[dict[str, Any], ...] = (
    _tool("read_file", "Read a file.", path=_TEXT),
    _tool(
        "edit_file", "Replace the one place where `old` stands by `new`.", path=_TEXT, old=_TEXT, new=_TEXT
    ),
    _tool("search", "List the lines that contain a text.", text=_TEXT),
    _tool("run", "Run one of the fixed commands.", command={"type": "string", "enum": list(COMMANDS)}),
)


class _RefusedError(Exception):
    def __init__(self, error: ToolError, text: str) -> None:
        super().__init__(text)
        self.error: ToolError = error
        self.text = text


class Toolbox:
    """The tools bound to a folder. Changes files under `workdir` and nothing else."""

    def __init__(self, workdir: Path) -> None:
        self._root = workdir.resolve()
        self._tools: dict[str, Callable[[Mapping[str, str]], ToolResult]] = {
            "read_file": self._read_file,
            "edit_file": self._edit_file,
            "search": self._search,
            "run": self._run,
        }

    def call(self, name: str, arguments: str, turn: int = 0) -> ToolResult:
        """Run one call; `arguments` is the JSON text the model wrote. Never raises for what a model wrote."""
        tool = self._tools.get(name)
        if tool is None:
            return ToolResult(f"error: no tool {name[:40]}", "unknown_tool")
        try:
            result = tool(_strings(arguments))
        except _RefusedError as refused:
            return ToolResult(f"error: {refused.text}", refused.error)
        if result.edit is None:
            return result
        edit = result.edit
        return ToolResult(result.text, "", Edit(edit.path, edit.before, edit.after, turn))

    def _path(self, arguments: Mapping[str, str]) -> Path:
        given = _field(arguments, "path")
        try:
            path = (self._root / given).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            raise _RefusedError("outside", "bad path") from error
        if not path.is_relative_to(self._root):
            raise _RefusedError("outside", "path is outside of the folder")
        return path

    def _text(self, path: Path) -> str:
        try:
            if path.stat().st_size > MAX_FILE_BYTES:
                raise _RefusedError("too_large", "file is too large")
            return path.read_text("utf-8")
        except (OSError, ValueError) as error:
            raise _RefusedError("no_file", "no such file") from error

    def _read_file(self, arguments: Mapping[str, str]) -> ToolResult:
        return ToolResult(_shorten(self._text(self._path(arguments))))

    def _edit_file(self, arguments: Mapping[str, str]) -> ToolResult:
        path = self._path(arguments)
        old, new = _field(arguments, "old"), _field(arguments, "new")
        before = self._text(path)
        places = before.count(old) if old else 0
        if places == 0:
            raise _RefusedError("not_found", "old text not found")
        if places > 1:
            raise _RefusedError("ambiguous", "old text is there more than once")
        after = before.replace(old, new)
        if after == before:
            raise _RefusedError("no_change", "old and new are the same")
        try:
            path.write_bytes(after.encode())
        except ValueError as error:  # lone surrogates are legal JSON and no UTF-8
            raise _RefusedError("arguments", "new text is not Unicode") from error
        return ToolResult("ok", "", Edit(str(path.relative_to(self._root)), before, after))

    def _search(self, arguments: Mapping[str, str]) -> ToolResult:
        wanted = _field(arguments, "text")
        if not wanted:
            raise _RefusedError("arguments", "text is empty")
        found: list[str] = []
        for path in sorted(self._root.rglob("*")):
            if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
                continue
            for number, line in enumerate(path.read_bytes().decode("utf-8", "replace").splitlines(), 1):
                if wanted in line:
                    found.append(f"{path.relative_to(self._root)}:{number}: {line.strip()}")
        if not found:
            return ToolResult("no match")
        more = [f"{len(found) - MAX_MATCHES} more"] if len(found) > MAX_MATCHES else []
        return ToolResult(_shorten("\n".join([*found[:MAX_MATCHES], *more])))

    def _run(self, arguments: Mapping[str, str]) -> ToolResult:
        command = _field(arguments, "command")
        if command not in COMMANDS:
            raise _RefusedError("arguments", "no such command")
        done = run_command(command, self._root)
        if done.timed_out:
            return ToolResult("error: time-out", "timeout")
        text = _shorten(f"exit {done.status}\n{done.output}".rstrip())
        return ToolResult(text, "" if done.status == 0 else "failed")


def _strings(arguments: str) -> Mapping[str, str]:
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise _RefusedError("arguments", "arguments are not JSON") from error
    if not isinstance(value, dict):
        raise _RefusedError("arguments", "arguments are not an object")
    return value


def _field(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str):
        raise _RefusedError("arguments", f"{name} is missing or not a text")
    return value


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_RESULT_CHARS else text[:MAX_RESULT_CHARS] + "\n[cut]"
