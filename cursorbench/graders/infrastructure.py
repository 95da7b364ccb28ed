"""Which files decide how tests run and what is reported, by their names; a model has no business there.

Besides the tests themselves: pytest's configuration and conftests, what Python runs or loads before any
test (sitecustomize, .pth, entry points of an egg-info), compiled files that need no source, modules that
stand in front of the library's or the test runner's, and other runners' configuration. Not here: putting
them back (`restoring.py`), what a diff's text looks like (`flags.py`).
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Callable, Collection, Sequence
from io import StringIO
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

from iniconfig import IniConfig, ParseError

NAMES = frozenset(
    """conftest.py pytest.ini .pytest.ini pytest.toml .pytest.toml .coveragerc sitecustomize.py
    usercustomize.py noxfile.py Makefile GNUmakefile makefile justfile .taprc .nycrc .npmrc node.config.json
    bunfig.toml phpunit.xml .rspec""".split()  # noqa: SIM905  a list of words
)
PREFIXES = (  # vitest takes its settings from vite's, too
    "jest.config.",
    "vitest.config.",
    "vitest.workspace.",
    "vite.config.",
    ".mocharc.",
    "ava.config.",
    "karma.conf.",
    "cypress.config.",
    "playwright.config.",
)
SUFFIXES = (".pth", ".pyc", ".pyo")
FOLDER_SUFFIXES = (".egg-info", ".dist-info")
# the last two: what is installed beside the sources, the test runner among it
_FOLDERS = frozenset({"__pycache__", "sitecustomize", "usercustomize", "node_modules", "site-packages"})
_TEST_FOLDER = re.compile(
    r"tests?|tests?[_-].*|test(utils?|helpers?|support)|__tests__|specs?|testdata|testing_?data|.*_tests?",
    re.IGNORECASE,
)
TEST_FILE = re.compile(
    r"(test_.*|.*_test|tests?|conftest)\.pyi?|.*_test\.(go|rs|c|cc|cpp|exs)|tests?\.rs|(.*[._])?(test|spec)\.[cm]?[jt]sx?|.*(Test|Tests|IT)\.(java|kt|cs|scala)|.*_(spec|test)\.rb|.*\.bats|(test_.*|.*_test)\.(ba)?sh"
)
RUNNERS = frozenset(  # the last two: what a .pth of setuptools and virtualenv imports when Python starts
    """pytest _pytest pluggy iniconfig packaging py exceptiongroup tomli xdist execnet coverage anyio
    hypothesis _hypothesis_pytestplugin nose nose2 xmlrunner testtools subunit
    _distutils_hack _virtualenv""".split()  # noqa: SIM905
)
_PREFIXED = ("pytest_", "__editable__")
_MOST, _DOTS = 1 << 18, 200  # bytes of settings that are looked into, dots in a line of them
ROOTS = ("", "src", "lib")  # folders that are usually on the path of imports


def decides(path: str) -> bool:
    """Whether the file's name alone says that it decides how tests run."""
    parts = PurePosixPath(path).parts
    name = parts[-1] if parts else ""
    return (
        name in NAMES
        or name.startswith(PREFIXES)
        or name.endswith(SUFFIXES)
        # importlib.metadata reads a folder's suffix in any case
        or any(part.lower().endswith(FOLDER_SUFFIXES) or part in _FOLDERS for part in parts)
    )


def tests_folder(path: str) -> str:
    """The outermost folder called like one of tests that a path lies below; "" when there is none.

    The builder goes by it too: what it took for a test is no solution's, so it is the base's again here.
    `testing` is one in the root only: within a package it is what the package gives others to test with.
    """
    parts = PurePosixPath(path).parts[:-1]
    for depth, part in enumerate(parts, 1):
        if _TEST_FOLDER.fullmatch(part) or (depth == 1 and part.lower() == "testing"):
            return "/".join(parts[:depth])
    return ""


def of_tests(path: str, folders: Collection[str]) -> bool:
    """Whether a path is, or lies below, one of the folders of tests (`test_folders`)."""
    pure = PurePosixPath(path)
    return path in folders or any(str(parent) in folders for parent in pure.parents)


def holds_tests(path: str) -> bool:
    """Whether a Python file is one of tests by its name or a folder's, as runners find them."""
    place = PurePosixPath(path)
    by_name = place.name.startswith("test") or place.stem.endswith(("_test", "_tests"))
    return by_name or bool(tests_folder(path))


def test_folders(files: Collection[str]) -> set[str]:
    """The folders that hold nothing but tests, from the paths of test files.

    A folder beside sources (`pkg/test_a.py`, or the root) is none: only its test files are the tests'.
    """
    return {tests_folder(file) for file in files} - {""}


def started(command: Sequence[str]) -> frozenset[str]:
    """The modules that a command starts by `-m`, by the first part of their names."""
    after = (word for option, word in pairwise(command) if option == "-m")
    return frozenset(word.partition(".")[0] for word in after)


def shadows(path: str, folders: Collection[str], runners: Collection[str] = ()) -> str:
    """What of a path would be imported in place of a module of the library or of the test runner; or "".

    `random.py` for `random.py`, `src/pytest` for `src/pytest/__init__.py`. `runners`: modules beside RUNNERS.
    """
    pure = PurePosixPath(path)
    for root in (*ROOTS, *folders):
        if root and not pure.is_relative_to(root):
            continue
        rest = pure.relative_to(root).parts if root else pure.parts
        if not rest:
            continue
        top = rest[0].partition(".")[0]
        importable = len(rest) > 1 or rest[0].endswith((".py", ".so", ".pyd"))
        known = top in sys.stdlib_module_names or top in RUNNERS or top in runners
        if importable and (known or top.startswith(_PREFIXED)):
            return str(PurePosixPath(root) / rest[0])
    return ""


def _toml(text: str) -> Any:
    return tomllib.loads(text).get("tool", {}).get("pytest")


def _ini(*sections: str) -> Callable[[str], Any]:
    """Sections by pytest's own reader: to another, a key in capitals or in [DEFAULT] is the same setting."""

    def read(text: str) -> Any:
        if text.splitlines() != [line.rstrip("\n") for line in StringIO(text, newline=None)]:
            raise ValueError("lines end at a form feed, or the like, to some versions of the reader only")
        found = IniConfig("", text).sections
        return {name: dict(found[name]) for name in sections if name in found}

    return read


def _package(text: str) -> Any:
    read = json.loads(text)
    return {name: read.get(name) for name in ("scripts", "jest", "mocha", "ava", "vitest")}


SHARED: dict[str, Callable[[str], Any]] = {
    "pyproject.toml": _toml,
    "setup.cfg": _ini("tool:pytest", "aliases"),
    "tox.ini": _ini("pytest", "testenv"),
    "package.json": _package,
}


def same_settings(name: str, base: bytes | None, now: bytes | None) -> bool:
    """Whether a file that only partly is about tests says the same of them. What cannot be read does not.

    It is a model's file that is read here, outside of any sandbox: nothing in it may raise, or take long.
    """
    read = SHARED[name]
    if any(_is_bomb(content or b"") for content in (base, now)):
        return False
    try:
        return bool(_read(read, base) == _read(read, now))
    except (ValueError, ParseError, AttributeError, RecursionError):
        return False


def _is_bomb(content: bytes) -> bool:
    """Whether reading it may take what no settings need: a key `a.a.a...` costs the square of its length."""
    return len(content) > _MOST or any(line.count(b".") > _DOTS for line in content.split(b"\n"))


def _read(read: Callable[[str], Any], content: bytes | None) -> Any:
    return None if content is None else read(content.decode("utf-8")) or None
