"""docs/harness.md is true: its tables are the code's, its imports exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import get_args

from cursorbench.harness.budget import INFRASTRUCTURE, Budget, StopReason
from cursorbench.harness.results import ToolError, error_class
from cursorbench.harness.task_tools import ToolSettings, task_tools

DOC = (Path(__file__).parents[2] / "docs" / "harness.md").read_text("utf-8")


def rows(title: str) -> list[list[str]]:
    """The cells of the first table under a heading, without its head."""
    section = DOC.split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_tools() -> None:
    class Index:
        name = "x"

        def search(self, place: object, query: str, left_s: float) -> str:
            return ""

    made = task_tools(ToolSettings(lint=(("x",),)), semantic=Index())
    declared = {tool.name: list(tool.definition["function"]["parameters"]["properties"]) for tool in made}
    assert {row[0]: re.findall(r"\w+", row[1]) for row in rows("Tools")} == declared


def test_the_errors() -> None:
    told = {row[0]: row[1] for row in rows("Errors")}
    assert told == {error: str(error_class(error) or "") for error in get_args(ToolError) if error}


def test_the_ends() -> None:
    told = {row[0]: "infrastructure" in row[1] for row in rows("Budgets and ends")}
    assert told == {str(reason): reason in INFRASTRUCTURE for reason in StopReason}
    assert f"`Budget({', '.join(vars(Budget()))})`" in DOC


def test_what_is_imported_is_there() -> None:
    found = re.findall(r"from (cursorbench\S+) import (.+)", DOC)
    assert found
    for module, names in found:
        for name in names.split(", "):
            part = importlib.import_module(module)
            assert hasattr(part, name) or importlib.import_module(f"{module}.{name}")
