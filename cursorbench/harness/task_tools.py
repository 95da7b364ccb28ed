"""The full set of tools, for real repositories: read_file, edit_file, search, semantic_search, lint, run.

One place decides what is offered: what the workplace cannot do, or the settings do not name, is not in
the set. Results are bounded; what was left out is said, with how much. The small set is in `tools.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cursorbench.harness import linting, searching
from cursorbench.harness.editing import Replacement, encode, replace_all
from cursorbench.harness.results import Edit, RefusedError, ToolResult, cut_middle
from cursorbench.harness.toolbox import Arguments, Tool, define, flag, number, text
from cursorbench.harness.workplace import Workplace

MAX_FILE_BYTES = 4 << 20
MAX_EDITS = 100  # replacements of one call
MAX_LINE_CHARS = 2000  # shown of one line

_PATH = {"type": "string", "description": "Path of a file, relative to the repository."}


class Semantic(Protocol):
    """Search by meaning (`semantic.py`)."""

    @property
    def name(self) -> str:
        """What decides its answers, besides the files."""

    def search(self, place: Workplace, query: str, left_s: float) -> str:
        """Places that fit the query, as the model reads them. Raises RefusedError (provider, ...)."""


@dataclass(frozen=True)
class ToolSettings:
    """What the tools of a task may do.

    Attributes:
        lint: commands of linters and type checkers; `{path}` in them is what to look at.
        command_s: seconds of one `run`, where the model names none.
        longest_s: seconds that it may name.
        result_chars: characters of one result.
    """

    lint: tuple[tuple[str, ...], ...] = ()
    command_s: float = 120.0
    longest_s: float = 600.0
    result_chars: int = 16_000


def task_tools(
    settings: ToolSettings, *, commands: bool = True, semantic: Semantic | None = None
) -> tuple[Tool, ...]:
    """The tools as settings and workplace allow.

    Args:
        commands: whether the workplace runs commands (`Workplace.runs_commands`).
        semantic: an index for search by meaning.
    """
    made = [_read_tool(settings), _edit_tool(), _search_tool(settings)]
    if semantic is not None:
        made.append(_semantic_tool(semantic, settings))
    if commands and settings.lint:
        made.append(_lint_tool(settings))
    if commands:
        made.append(_run_tool(settings))
    return tuple(made)


def _read_tool(settings: ToolSettings) -> Tool:
    def run(place: Workplace, arguments: Arguments, left_s: float) -> ToolResult:
        content, _ = _text_of(place, text(arguments, "path"))
        lines = content.split("\n")
        if lines[-1] == "":
            lines.pop()
        first = number(arguments, "start_line", 1, 1, 1 << 31)
        last = number(arguments, "end_line", len(lines), 0, 1 << 31)
        return ToolResult(_numbered(lines, first, min(last, len(lines)), settings.result_chars))

    line = {"type": "integer", "minimum": 1}
    return Tool(
        define(
            "read_file",
            "Read a file, or some of its lines. Lines are shown with their numbers.",
            {"path": _PATH, "start_line": line, "end_line": line},
            ["path"],
        ),
        run,
    )


def _numbered(lines: Sequence[str], first: int, last: int, limit: int) -> str:
    """Lines `first` to `last` with their numbers, as many as there is room for."""
    if not lines:
        return "(the file is empty)"
    if first > len(lines):
        raise RefusedError("arguments", f"the file has {len(lines)} lines")
    shown: list[str] = []
    room = limit
    for place in range(first, last + 1):
        line = lines[place - 1]
        if len(line) > MAX_LINE_CHARS:
            line = f"{line[:MAX_LINE_CHARS]} [{len(line) - MAX_LINE_CHARS} more characters]"
        room -= len(line) + 8
        if shown and room < 0:
            break
        shown.append(f"{place:6}\t{line}")
    end = first + len(shown) - 1
    if first == 1 and end == len(lines):
        return "\n".join(shown)
    more = f"; go on with start_line {end + 1}" if end < last else ""
    return "\n".join([*shown, f"[lines {first} to {end} of {len(lines)}{more}]"])


def _edit_tool() -> Tool:
    def run(place: Workplace, arguments: Arguments, left_s: float) -> ToolResult:
        path = place.name(text(arguments, "path"))
        if "content" in arguments:
            if "edits" in arguments:
                raise RefusedError("arguments", "give edits, or the content of a new file, not both")
            return _create(place, path, text(arguments, "content"))
        edits = _replacements(arguments.get("edits"))
        before, windows = _text_of(place, path)
        after = replace_all(before, edits)
        if windows:
            before, after = before.replace("\n", "\r\n"), after.replace("\n", "\r\n")
        place.write(path, encode(after))
        return ToolResult(f"ok: {path} changed", "", Edit(path, before, after))

    replacement = {
        "type": "object",
        "properties": {
            "old": {"type": "string", "description": "Text that is there, exactly, and only once."},
            "new": {"type": "string"},
            "everywhere": {"type": "boolean", "description": "Replace it at all its places."},
        },
        "required": ["old", "new"],
        "additionalProperties": False,
    }
    return Tool(
        define(
            "edit_file",
            "Change a file by exact replacements, all of them or none; or make a new file.",
            {
                "path": _PATH,
                "edits": {"type": "array", "items": replacement, "minItems": 1, "maxItems": MAX_EDITS},
                "content": {"type": "string", "description": "The whole text of a new file."},
            },
            ["path"],
        ),
        run,
        edits=True,
    )


def _create(place: Workplace, path: str, content: str) -> ToolResult:
    try:
        place.read(path, 0)
    except RefusedError as refused:
        if refused.error == "no_file":
            place.write(path, encode(content))
            return ToolResult(f"ok: {path} made", "", Edit(path, "", content))
        if refused.error != "too_large":
            raise
    raise RefusedError("exists", "the file is there already: change it by edits")


def _replacements(given: Any) -> list[Replacement]:
    if not isinstance(given, list) or not 0 < len(given) <= MAX_EDITS:
        raise RefusedError("arguments", f"edits must be a list of 1 to {MAX_EDITS}")
    found = []
    for one in given:
        if not isinstance(one, dict):
            raise RefusedError("arguments", "an edit must be an object")
        found.append(Replacement(text(one, "old"), text(one, "new"), flag(one, "everywhere")))
    return found


def _text_of(place: Workplace, path: str) -> tuple[str, bool]:
    """A file's text with plain line ends, and whether all of its line ends are those of Windows."""
    try:
        content = place.read(path, MAX_FILE_BYTES).decode()
    except UnicodeDecodeError as error:
        raise RefusedError("no_file", "the file is not text") from error
    windows = "\r\n" in content and content.count("\r\n") == content.count("\n") == content.count("\r")
    return (content.replace("\r\n", "\n") if windows else content), windows


def _search_tool(settings: ToolSettings) -> Tool:
    def run(place: Workplace, arguments: Arguments, left_s: float) -> ToolResult:
        query = searching.Query(
            text(arguments, "pattern"),
            place.name(text(arguments, "path", ".")),
            text(arguments, "glob", ""),
            flag(arguments, "fixed"),
            flag(arguments, "ignore_case"),
        )
        if not query.pattern:
            raise RefusedError("arguments", "pattern is empty")
        found = searching.search(place, query, left_s)
        if not found.total:
            return ToolResult("no match")
        more = [f"[{found.total - len(found.lines)} more]"] if found.total > len(found.lines) else []
        return ToolResult(cut_middle("\n".join([*found.lines, *more]), settings.result_chars))

    return Tool(
        define(
            "search",
            "Find the lines that match a regular expression.",
            {
                "pattern": {"type": "string"},
                "path": {"type": "string", "description": "File or folder to look in; default all."},
                "glob": {"type": "string", "description": "Names of files to look in, as *.py."},
                "fixed": {"type": "boolean", "description": "The pattern is a text, no expression."},
                "ignore_case": {"type": "boolean"},
            },
            ["pattern"],
        ),
        run,
    )


def _semantic_tool(semantic: Semantic, settings: ToolSettings) -> Tool:
    def run(place: Workplace, arguments: Arguments, left_s: float) -> ToolResult:
        query = text(arguments, "query")
        if not query.strip():
            raise RefusedError("arguments", "query is empty")
        return ToolResult(cut_middle(semantic.search(place, query, left_s), settings.result_chars))

    return Tool(
        define(
            "semantic_search",
            "Find code by what it is about, in words.",
            {"query": {"type": "string"}},
        ),
        run,
    )


def _lint_tool(settings: ToolSettings) -> Tool:
    def run(place: Workplace, arguments: Arguments, left_s: float) -> ToolResult:
        path = text(arguments, "path", ".")
        report = linting.run(place, settings.lint, path, max(0.1, min(linting.LINT_S, left_s)))
        found = [str(one) for one in report.findings]
        head = f"{len(found)} findings" if found or not report.failures else "no findings, but it failed"
        said = cut_middle("\n".join([head, *found, *report.failures]), settings.result_chars)
        return ToolResult(said, "failed" if report.failures else "")

    return Tool(
        define(
            "lint",
            "List what linters and type checkers find.",
            {"path": {"type": "string", "description": "File or folder to look at; default all."}},
            [],
        ),
        run,
    )


def _run_tool(settings: ToolSettings) -> Tool:
    def run(place: Workplace, arguments: Arguments, left_s: float) -> ToolResult:
        command = text(arguments, "command")
        if not command.strip():
            raise RefusedError("arguments", "command is empty")
        asked = number(arguments, "timeout_s", int(settings.command_s), 1, int(settings.longest_s))
        limit = max(0.1, min(asked, left_s))
        ran = place.command(command, limit)
        output = cut_middle(ran.output.rstrip(), settings.result_chars)
        if ran.ended == "timeout":
            return ToolResult(f"error: time-out after {limit:.0f} s\n{output}".rstrip(), "timeout")
        said = f"exit {ran.status}\n{output}".rstrip()
        if ran.ended == "killed":
            return ToolResult(said, "killed")
        return ToolResult(said, "" if ran.status == 0 else "failed")

    return Tool(
        define(
            "run",
            "Run a shell command in the repository.",
            {
                "command": {"type": "string"},
                "timeout_s": {"type": "integer", "minimum": 1, "description": "Seconds it may take."},
            },
            ["command"],
        ),
        run,
    )
