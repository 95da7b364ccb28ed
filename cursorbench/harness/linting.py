"""Findings of linters and type checkers, with their places: for the `lint` tool and for graders.

Commands come from the settings of a task, never from a model. Most tools can write `path:line:column:
text` (ruff `--output-format=concise`, mypy, flake8, eslint's unix format, gcc); that form is read, and
what is not in it is kept as it came.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cursorbench.harness.results import RefusedError, cut_middle
from cursorbench.harness.workplace import Workplace

LINT_S = 120.0
PATH = "{path}"  # in a command: what is to be looked at
_FINDING = re.compile(
    r"(?P<path>[^:\s][^:\n]{0,500}):(?P<line>\d{1,7}):(?:(?P<column>\d{1,7}):)? ?(?P<text>\S.*)"
)


@dataclass(frozen=True, order=True)
class Finding:
    """One place a tool complains about; `column` is 0 where it names none."""

    path: str
    line: int
    column: int
    text: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}:{self.column}" if self.column else f"{self.path}:{self.line}"
        return f"{place}: {self.text}"


@dataclass(frozen=True)
class Report:
    """What all commands found.

    Attributes:
        failures: commands that ended without findings and yet not well, with what they said.
    """

    findings: tuple[Finding, ...]
    failures: tuple[str, ...] = ()


def findings(output: str) -> list[Finding]:
    """The findings in a tool's output, in its order; each once."""
    found: dict[Finding, None] = {}
    for line in output.splitlines():
        if one := _FINDING.fullmatch(line.rstrip()):
            path = posixpath.normpath(one["path"])
            found[Finding(path, int(one["line"]), int(one["column"] or 0), one["text"])] = None
    return list(found)


def run(
    place: Workplace, commands: Sequence[Sequence[str]], path: str = ".", limit_s: float = LINT_S
) -> Report:
    """Run the commands one after the other. Raises RefusedError (outside, timeout, not_available)."""
    name = place.name(path)
    target = f"./{name}" if name.startswith("-") else name  # a file's name is no option
    found: list[Finding] = []
    failures: list[str] = []
    for command in commands:
        ran = place.program([part.replace(PATH, target) for part in command], limit_s)
        if ran.ended == "timeout":
            raise RefusedError("timeout", f"{command[0]} takes too long")
        here = [_named(place, one) for one in findings(ran.output)]
        found += here
        if not here and (ran.ended != "exited" or ran.status != 0):
            failures.append(f"{command[0]} ended with {ran.status}\n{cut_middle(ran.output, 2000)}".strip())
    return Report(tuple(found), tuple(failures))


def _named(place: Workplace, one: Finding) -> Finding:
    """The finding with the one name its file has here: some tools write absolute paths."""
    try:
        return replace(one, path=place.name(one.path))
    except RefusedError:
        return one  # in a file from elsewhere
