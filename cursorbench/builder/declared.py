"""What pyproject.toml, setup.cfg, setup.py and tox.ini declare, read as text.

Nothing of the repository is run: what only running tells, a setup.py that computes for one, is not known.
Not for: where the code is and which version it has (`project.py`).
"""

from __future__ import annotations

import ast
import configparser
import contextlib
import re
import tomllib
from collections.abc import Mapping
from typing import Any

_TEXTS = ("name", "version")  # of the keywords of `setup`


def normal(name: str) -> str:
    """A distribution's name as all spellings of it are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def toml(text: str) -> dict[str, Any]:
    """A TOML document; empty when it is none."""
    with contextlib.suppress(ValueError, RecursionError):  # a number may be too long to read
        return tomllib.loads(text)
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
    """The literal keywords of a call of `setup`, names of literals in the module followed."""
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
                if keyword.arg in wanted:
                    value = _literal(keyword.value, names)
                    if keyword.arg == "entry_points" and isinstance(value, str):
                        value = of_setup_cfg(f"[options.entry_points]\n{value}").get("scripts")
                    told[wanted[keyword.arg]] = value if keyword.arg in _TEXTS else _lists(value)
    return {key: value for key, value in told.items() if value}


def _lists(value: object) -> object:
    """What setuptools makes of a text where a list is meant, or a table of lists: its lines."""
    if isinstance(value, dict):
        return {name: _lists(inner) for name, inner in value.items() if isinstance(name, str)}
    return rows_of(value) if isinstance(value, str) else value


def of_tox(text: str) -> tuple[str, ...]:
    """What tox installs into its usual environment; no options, no other files."""
    parser = configparser.RawConfigParser(strict=False)
    with contextlib.suppress(configparser.Error):
        parser.read_string(text)
    rows = rows_of(parser.get("testenv", "deps", fallback=""))
    plain = (row.split(" #")[0].strip() for row in rows)
    return tuple(row for row in plain if row[0] not in "-.{:" and not re.match(r"[\w{},.!-]+\s*:(?!//)", row))


def _literal(node: ast.AST, names: Mapping[str, ast.AST]) -> Any:
    if isinstance(node, ast.Name) and node.id in names:
        node = names[node.id]
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


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


def table_of(value: object) -> dict[str, Any]:
    """A table; empty when it is none."""
    return value if isinstance(value, dict) else {}
