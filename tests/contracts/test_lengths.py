"""A function fits a screen, a room is read at one sitting: counted, with named exceptions."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("rtrl_cli", "stages", "evals", "cursorbench", "scripts")
LINES = 50  # of a function, its signature and docstring included
ROOM = 300  # of a module
LONGER: dict[str, str] = {}  # "folder/module.py:function": why it is no better in pieces


def _modules() -> list[Path]:
    return [path for source in SOURCES for path in sorted((ROOT / source).rglob("*.py"))]


def _long(text: str) -> dict[str, int]:
    """Functions of a module that are longer than LINES."""
    functions = (
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    lengths = [(node.name, (node.end_lineno or 0) - node.lineno + 1) for node in functions]
    return {name: lines for name, lines in lengths if lines > LINES}


def test_functions_fit_a_screen() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{name}": lines
        for path in _modules()
        for name, lines in _long(path.read_text(encoding="utf-8")).items()
    }
    assert set(found) == set(LONGER), f"in pieces with names, or with a reason in LONGER: {found}"


def test_rooms_are_small() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in _modules()}
    assert [str(path.relative_to(ROOT)) for path, lines in lengths.items() if lines >= ROOM] == []


def test_the_count_is_of_whole_functions() -> None:
    body = ["        pass"] * (LINES - 1)
    text = "\n".join(["class A:", "    async def fits():", *body, "    def longer():", *body, "        pass"])
    assert _long(text) == {"longer": LINES + 1}
