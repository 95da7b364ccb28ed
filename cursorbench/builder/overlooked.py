"""Tests that are not called like tests: by what is in a file, and by what pytest's settings name.

    holds(text)                whether a Python file has tests in it, whatever it is called
    told(repository, commit)   a line for people on tests that are taken for source, "" where there are none

Not for: what a file is by its path (`paths.py`), which the grader goes by as well.
"""

from __future__ import annotations

import ast
import configparser
import contextlib
from fnmatch import fnmatchcase

from cursorbench.builder import form
from cursorbench.builder.declared import texts_of, toml
from cursorbench.builder.paths import kind_of
from cursorbench.history.repository import Repository
from cursorbench.sessions.reading import table_of

_BEFORE = (("pytest.ini", "pytest"), (".pytest.ini", "pytest"))  # pyproject.toml, as pytest reads them
_BEHIND = (("tox.ini", "pytest"), ("setup.cfg", "tool:pytest"))
_MOST = 2_000  # files that are read


def holds(text: str) -> bool:
    """Whether a module or a class of it has a function `test...`: named to pytest, it may be run."""
    tree = form.parsed(text)
    inner = [node for node in (tree.body if tree else ()) if isinstance(node, ast.ClassDef)]
    every = [*(tree.body if tree else ()), *(node for one in inner for node in one.body)]
    functions = (node for node in every if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return any(one.name.startswith("test") for one in functions)


def told(repository: Repository, commit: str) -> str:
    """What is to be said of files that `python_files` names and that count as source here."""
    patterns = _patterns(repository, commit)
    listed = repository.git("ls-tree", "-r", "--name-only", "-z", commit).split("\0") if patterns else []
    named = [
        path
        for path in listed
        if path.endswith(".py")
        and kind_of(path) == "source"
        and any(fnmatchcase(path.rpartition("/")[2], one) or fnmatchcase(path, one) for one in patterns)
    ]
    root = repository.root(commit)
    found = [path for path in named[:_MOST] if holds(repository.text(repository.find(root, path)))]
    if not found:
        return ""
    return (
        f"pytest's python_files ({' '.join(patterns)[:80]}) names {len(found)} files, such as {found[0]}, "
        "that count as source here: their names and folders are not those of tests"
    )


def _patterns(repository: Repository, commit: str) -> tuple[str, ...]:
    """`python_files` of pytest's settings; of several files the first that has it."""
    root = repository.root(commit)
    for name, section in _BEFORE:
        if found := _of_ini(repository.text(repository.find(root, name)), section):
            return found
    tool = table_of(toml(repository.text(repository.find(root, "pyproject.toml"))).get("tool"))
    pytest = table_of(tool.get("pytest"))
    for table in (table_of(pytest.get("ini_options")), pytest):
        value = table.get("python_files")
        if found := tuple(value.split()) if isinstance(value, str) else texts_of(value):
            return found
    for name, section in _BEHIND:
        if found := _of_ini(repository.text(repository.find(root, name)), section):
            return found
    return ()


def _of_ini(text: str, section: str) -> tuple[str, ...]:
    parser = configparser.RawConfigParser(strict=False)
    with contextlib.suppress(configparser.Error):
        parser.read_string(text)
    return tuple(parser.get(section, "python_files", fallback="").split())
