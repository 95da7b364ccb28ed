"""What requirement files and tox.ini ask for, read as text: rows as pip takes them, without options.

    .[test]      the project itself, with an extra: `-e .[test]`, `.[test]`
    ./core       what is in a folder of the tree: `-e ./core`

Not for: what projects declare of themselves (`declared.py`), what becomes of the rows (`lock.py`).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from cursorbench.builder.declared import of_tox
from cursorbench.history.repository import FILES, Repository

_USUAL = re.compile(
    r"(dev-?|test-?)?requirements([-_](dev|tests?|testing))?\.txt|requirements/(base|main|dev|tests?|testing)\.txt"
    r"|tests?/(test-?)?requirements\.txt"
)
_MOST = 50  # files that one includes
_CONTINUED = re.compile(r"\\\r?\n")
_OPTION = re.compile(r"\s--\w")  # of one requirement: --hash=...
_INCLUDES = re.compile(r"(?:-r|--requirement)(?:\s+|=|(?<=-r))(\S+)")
_EDITABLE = re.compile(r"(?:-e|--editable)(?:\s+|=|(?<=-e))(.+)")
_PATH = re.compile(r"(?P<path>\.[^\[;@]*|[\w-]+/[^\[;@:]*)(?P<extras>\[[^\]]*\])?\s*(;.*)?")


def requirement_files(repository: Repository, root: str) -> dict[str, tuple[str, ...]]:
    """The rows by path, of files with a usual name and of tox's usual environment, from a tree."""
    found = {}
    inner = {e.name: e.oid for e in repository.tree(root) if e.mode == "40000"}
    folders = {"": root} | {f"{name}/": inner.get(name, "") for name in ("requirements", "tests", "test")}
    for folder, tree in folders.items():
        for entry in repository.tree(tree):
            if entry.mode in FILES and _USUAL.fullmatch(folder + entry.name):
                text = repository.text(entry.oid)
                found[folder + entry.name] = tuple(_rows(repository, root, text, folder, set()))
    told = "\n".join(of_tox(repository.text(repository.find(root, "tox.ini"))))
    if rows := tuple(_rows(repository, root, told, "", set())):
        found["tox.ini"] = rows
    return found


def _rows(repository: Repository, root: str, text: str, folder: str, seen: set[str]) -> Iterator[str]:
    """Those of a file and of files that it includes, but for those of a usual name, which are read anyway."""
    for line in _lines(text):
        if told := _INCLUDES.fullmatch(line):
            path = posixpath.normpath(folder + told[1])
            if not _USUAL.fullmatch(path) and path not in seen and len(seen) < _MOST:
                seen.add(path)
                inner = posixpath.dirname(path)
                more = repository.text(repository.find(root, path))
                yield from _rows(repository, root, more, inner and f"{inner}/", seen)
        elif row := _requirement(line, folder):
            yield row


def _lines(text: str) -> list[str]:
    rows = (row.split(" #")[0].strip() for row in _CONTINUED.sub(" ", text).splitlines())
    return [row for row in rows if row and row[0] != "#"]


def _requirement(line: str, folder: str) -> str:
    """A row as a requirement, without options and hashes (the lock has its own); "" for an option by itself,
    and for a path or an address out of the tree."""
    editable = _EDITABLE.fullmatch(line)
    row = editable[1].strip() if editable else _OPTION.split(line)[0].strip()
    if found := _PATH.fullmatch(row):
        asked = found["path"].strip()
        # pip takes them from where it is called, which is the root but where that cannot be
        path = next((p for p in map(posixpath.normpath, (asked, folder + asked)) if p[:2] != ".."), "")
        return f"{'.' if path == '.' else f'./{path}'}{found['extras'] or ''}" if path else ""
    return "" if editable or row.startswith("-") else row
