"""What an episode's code looks like: lines, comments and functions of the edits the user's code received.

For the monitors, and for a team's rewards of style (`stages/distill/habits.py`). By the text of the lines
alone, in the comment marks of the file's language, so that a million episodes take seconds: a mark inside of
a string is taken for a comment where it begins a line. Not for: whether the code is right.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from cursorbench.sessions.lines import written as lines_of
from stages.distill.signals.edits import Change, Edits

_HASH = "py pyi rb sh bash zsh yml yaml toml r pl ex exs jl mk tf nix cmake"
_DASHES = "sql lua hs elm ada"
_MARKUP = "html xml vue svg md rst txt adoc"
_FAMILIES = {
    **dict.fromkeys(_HASH.split(), "#"),
    **dict.fromkeys(_DASHES.split(), "--"),
    **dict.fromkeys(_MARKUP.split(), ""),
}
_MARKS = {
    "#": re.compile(r"^\s*(?:#(?!!)|[rRuU]?(?:\"\"\"|''')).*|\s#\s.*$"),
    "--": re.compile(r"^\s*--.*|\s--\s.*$"),
    "//": re.compile(r"^\s*(?://|/\*|\*(?!\w)).*|\s//\s.*$|/\*(?:(?!/\*).)*?\*/"),
}
_OPENS = {  # a comment of several lines, where a line begins: what opens it
    "#": re.compile(r"[rRuU]?(\"\"\"|''')"),
    "--": re.compile(r"(--\[\[)"),
    "//": re.compile(r"(/\*)"),
}
_CLOSES = {"#": "", "--": "]]", "//": "*/"}  # what closes it; "": what opened it
_FUNCTION = re.compile(
    r"^\s*(?:(?:export|default|pub(?:\([^)]*\))?|public|private|protected|internal|static|final|override|async|"
    r"abstract|inline|suspend|virtual|unsafe|extern)\s+)*"
    r"(?:(?:def|function\*?|func|fn|fun|sub)\b\s*\*?[\w.$(<]"
    r"|(?:const|let|var)\s+\w+\s*=\s*(?:async\s*)?(?:function\b|\([^)]*\)\s*=>|\w+\s*=>)"
    r"|(?:[\w<>\[\],.&*:]+\s+)+[\w:~]+\s*\([^;]*\)\s*(?:const\s*)?\{\s*$)"
)
_HEAD = 500  # characters of a line that are looked at for a function: the pattern costs the square of them
_NO_FUNCTION = re.compile(r"^\s*(?:if|for|while|switch|catch|else|return|do|try|with|elif)\b")


@dataclass(frozen=True)
class Written:
    """Sums over an episode's edits. `chars` and `comment_chars` are of added lines, blanks apart."""

    lines_added: int = 0
    lines_deleted: int = 0
    chars: int = 0
    comment_chars: int = 0
    functions: int = 0
    function_lines: int = 0

    def __add__(self, other: Written) -> Written:
        return Written(
            self.lines_added + other.lines_added,
            self.lines_deleted + other.lines_deleted,
            self.chars + other.chars,
            self.comment_chars + other.comment_chars,
            self.functions + other.functions,
            self.function_lines + other.function_lines,
        )


def written(edits: Edits) -> Written:
    """All that the episode's edits wrote; undone edits too, as the policy wrote them."""
    return total([change for of in edits.changes.values() for change in of])


def total(changes: Sequence[Change]) -> Written:
    """The same of these changes."""
    if len(changes) == 1:
        return _of(changes[0])
    return sum((_of(change) for change in changes), Written())


def _of(change: Change) -> Written:
    added, deleted = lines_of(change.before, change.after)
    family = _FAMILIES.get(change.path.rpartition(".")[2].lower(), "//")
    functions, inside = functions_in(added)
    return Written(
        lines_added=len(added),
        lines_deleted=len(deleted),
        chars=sum(_size(line) for line in added) if family else 0,
        comment_chars=comment_chars(added, family) if family else 0,
        functions=functions,
        function_lines=inside,
    )


def comment_chars(lines: Sequence[str], family: str) -> int:
    """Characters of comments and docstrings, blanks apart. `family` is the language's mark: # -- or //."""
    mark, opens, closes, found, end = _MARKS[family], _OPENS[family], _CLOSES[family], 0, ""
    # one that is not closed among these lines goes on in lines that were there
    last = max((n for n, line in enumerate(lines) if closes in line), default=-1)
    for n, line in enumerate(lines):
        if end:
            found += _size(line)
            end = "" if end in line else end
            continue
        found += sum(_size(match) for match in mark.findall(line))
        if opened := opens.match(begins := line.lstrip()):
            close = closes or opened[1]
            end = "" if close in begins[opened.end() :] or n >= last else close
    return found


def functions_in(lines: Sequence[str]) -> tuple[int, int]:
    """How many functions begin in these lines, and how many lines they have: with what is indented below."""
    count = inside = 0
    open_at: list[int] = []
    for line in lines:
        indent = len(line) - len(line.lstrip())
        while open_at and indent <= open_at[-1]:
            open_at.pop()
        if len(line) - indent <= _HEAD and _FUNCTION.match(line.strip()) and not _NO_FUNCTION.match(line):
            open_at.append(indent)
            count += 1
        inside += bool(open_at)
    return count, inside


_TERMINAL = re.compile(
    r"(?i)(?:^|[^a-z])(?:bash|shell|sh|zsh|terminal|commands?|cmd|exec|execute|powershell)(?:$|[^a-z])"
)


def terminal_only(calls: Sequence[Mapping[str, str]]) -> bool:
    """Whether there were tool calls and every one was to a terminal, by the tools' names."""
    return bool(calls) and all(_is_terminal(call["name"]) for call in calls)


@lru_cache(maxsize=4096)
def _is_terminal(name: str) -> bool:
    """By a word of the name: runCommand, run_command and RunCommand alike."""
    return _TERMINAL.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)) is not None


def _size(text: str) -> int:
    return len(text) - text.count(" ") - text.count("\t")
