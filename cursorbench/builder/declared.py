"""What pyproject.toml, setup.cfg, setup.py and tox.ini declare, read as text.

Nothing of the repository is run: what only running tells, a setup.py that computes for one, is not known.
Not for: where the code is and which version it has (`project.py`).
"""

from __future__ import annotations

import ast
import configparser
import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from cursorbench import toml_texts
from cursorbench.sessions.reading import table_of
from cursorbench.tasks.venv import normal

_NODES = 20_000  # of an expression, names followed
_TOX_FOLDER = re.compile(r"\{(toxinidir|tox_root)\}")
_TOX_FACTOR = re.compile(r"[\w{},.!-]+\s*:(?!//)")  # `py27: mock`
_TEXTS = ("name", "version")  # of the keywords of `setup`


def toml(text: str) -> dict[str, Any]:
    """A TOML document; empty when it is none."""
    with contextlib.suppress(ValueError, RecursionError):  # a number may be too long to read
        return toml_texts.loads(text)
    return {}


def of_pyproject(document: Mapping[str, Any]) -> dict[str, Any]:
    """`name`, `version`, `dependencies`, `extras`, `scripts`; those that `[project]` has."""
    project = table_of(document.get("project"))
    scripts = {
        "console_scripts": table_of(project.get("scripts")),
        "gui_scripts": table_of(project.get("gui-scripts")),
        **table_of(project.get("entry-points")),
    }
    told = {
        "name": project.get("name"),
        "version": project.get("version"),
        "dependencies": project.get("dependencies"),
        "extras": project.get("optional-dependencies"),
        "scripts": {
            group: [f"{name} = {target}" for name, target in table_of(entries).items()]
            for group, entries in scripts.items()
            if entries
        },
    }
    return {key: value for key, value in told.items() if value}


def of_setup_cfg(text: str) -> dict[str, Any]:
    """The same of setup.cfg."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    with contextlib.suppress(configparser.Error):
        parser.read_string(text)
    told: dict[str, Any] = {
        "name": parser.get("metadata", "name", fallback=""),
        "version": parser.get("metadata", "version", fallback=""),
        "dependencies": rows_of(parser.get("options", "install_requires", fallback="")),
    }
    if told["version"].startswith(("attr:", "file:")):
        told["version"] = ""
    for key, section in (("extras", "options.extras_require"), ("scripts", "options.entry_points")):
        if parser.has_section(section):
            told[key] = {name: rows_of(value) for name, value in parser.items(section)}
    return {key: value for key, value in told.items() if value}


def of_setup_py(text: str) -> dict[str, Any]:
    """The keywords of a call of `setup` that can be told without running it (`_Literals`)."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    names = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    wanted = {"name": "name", "version": "version", "install_requires": "dependencies",
              "extras_require": "extras", "entry_points": "scripts"}  # fmt: skip
    told: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "setup":
            for keyword in node.keywords:
                if keyword.arg is None or keyword.arg in wanted:
                    with contextlib.suppress(RecursionError):
                        given = _Literals(names).keywords([keyword])
                        told |= {
                            wanted[key]: _keyword(key, value) for key, value in given.items() if key in wanted
                        }
    return {key: value for key, value in told.items() if value}


def _keyword(name: str, value: object) -> object:
    if name == "entry_points" and isinstance(value, str):
        value = of_setup_cfg(f"[options.entry_points]\n{value}").get("scripts")
    return value if name in _TEXTS else _lists(value)


def _lists(value: object) -> object:
    """What setuptools makes of a text where a list is meant, or a table of lists: its lines."""
    if isinstance(value, dict):
        return {name: _lists(inner) for name, inner in value.items() if isinstance(name, str)}
    return rows_of(value) if isinstance(value, str) else value


def of_tox(text: str) -> tuple[str, ...]:
    """What tox installs into its usual environment, as rows of a requirement file; `extras` as `.[EXTRA]`."""
    parser = configparser.RawConfigParser(strict=False)
    with contextlib.suppress(configparser.Error):
        parser.read_string(text)
    rows = [_TOX_FOLDER.sub(".", row) for row in rows_of(parser.get("testenv", "deps", fallback=""))]
    plain = (row.split(" #")[0].strip() for row in rows)
    needed = [row for row in plain if row[0] not in "{:" and not _TOX_FACTOR.match(row)]
    extras = parser.get("testenv", "extras", fallback="").replace(",", " ").split()
    return (*needed, *([f".[{','.join(extras)}]"] if extras else []))


class _Literals:
    """What expressions come to: literals, names of such in the module, lists and tables of these, and sums.

    What only running tells is None, and left out of a list or table.
    """

    def __init__(self, names: Mapping[str, ast.AST]) -> None:
        self._names = names
        self._left = _NODES
        self._followed: set[str] = set()

    def of(self, node: ast.AST) -> Any:
        self._left -= 1
        if self._left < 0:
            return None
        match node:
            case ast.Name():
                found = self._named(node.id)
            case ast.List() | ast.Tuple() | ast.Set():
                found = self._list(node.elts)
            case ast.Dict():
                found = self._table(node)
            case ast.Call(func=ast.Name(id="dict"), args=[]):
                found = self.keywords(node.keywords)
            case ast.BinOp(op=ast.Add()):
                found = self._sum(node)
            case ast.Constant():
                found = node.value
            case _:
                found = None
        return found

    def keywords(self, given: Sequence[ast.keyword]) -> dict[str, Any]:
        """The arguments of a call that are known, also those of a table (`**PARAMS`)."""
        found: dict[str, Any] = {}
        for keyword in given:
            value = self.of(keyword.value)
            if keyword.arg is None:
                found.update(value if isinstance(value, dict) else {})
            elif value is not None:
                found[keyword.arg] = value
        return found

    def _named(self, name: str) -> Any:
        if name in self._followed or name not in self._names:
            return None
        self._followed.add(name)
        try:
            return self.of(self._names[name])
        finally:
            self._followed.remove(name)

    def _sum(self, node: ast.BinOp) -> Any:
        """Of two texts or two lists; the one list, where the other's value is not known."""
        ends = [one for one in (self.of(node.left), self.of(node.right)) if one is not None]
        same = len(ends) == 2 and type(ends[0]) is type(ends[1]) and isinstance(ends[0], str | list)
        return ends[0] + ends[1] if same else next((one for one in ends if isinstance(one, list)), None)

    def _list(self, nodes: Sequence[ast.AST]) -> list[Any]:
        found: list[Any] = []
        for node in nodes:
            value = self.of(node.value if isinstance(node, ast.Starred) else node)
            if isinstance(node, ast.Starred):
                found += value if isinstance(value, list) else []
            elif value is not None:
                found.append(value)
        return found

    def _table(self, node: ast.Dict) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            name, told = None if key is None else self.of(key), self.of(value)
            if key is None and isinstance(told, dict):
                found.update(told)
            elif isinstance(name, str) and told is not None:
                found[name] = told
        return found


def groups_of(table: object) -> dict[str, tuple[str, ...]]:
    """Dependency groups (PEP 735), groups that include others written out."""
    raw = {normal(name): value for name, value in table_of(table).items() if isinstance(value, list)}

    def written(name: str, above: frozenset[str]) -> list[str]:
        found: list[str] = []
        for one in raw.get(name, ()) if name not in above else ():
            if isinstance(one, str):
                found.append(one)
            elif isinstance(one, dict) and isinstance(one.get("include-group"), str):
                found += written(normal(one["include-group"]), above | {name})
        return found

    return {name: tuple(written(name, frozenset())) for name in raw}


def rows_of(text: str) -> list[str]:
    """The lines that say something."""
    return [row.strip() for row in text.splitlines() if row.strip() and not row.strip().startswith("#")]


def texts_of(value: object) -> tuple[str, ...]:
    """The texts of a list; none when it is no list."""
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list | tuple) else ()
