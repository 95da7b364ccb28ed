"""All that a pyproject.toml declares: the tables of the standards, and those of Poetry, PDM, uv and Hatch.

Of a key that both have `[project]` decides; groups of one name go together. Poetry's constraints become those
of PEP 440 (`^1.2` is `>=1.2,<2`). Not for: files of these tools' own, such as hatch.toml.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cursorbench.builder.declared import groups_of, of_pyproject, texts_of
from cursorbench.sessions.reading import table_of
from cursorbench.tasks.venv import normal

Groups = dict[str, tuple[str, ...]]
_CLAUSE = re.compile(r"(\^|~=|~|[<>=!]?=|[<>])?\s*v?(\d[\w.!+-]*?(?:\.\*)?(?=[\s,]|$)|\*)")
_RELEASE = re.compile(r"\d+(?:\.\d+)*")
_PLACEHOLDERS = ("0", "0.0.0")  # where a plugin takes the version from git


def of_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """`name`, `version`, `dependencies`, `extras`, `scripts`, `groups`; those that are told."""
    tool = table_of(document.get("tool"))
    poetry = table_of(tool.get("poetry"))
    told = {**_of_poetry(poetry), **of_pyproject(document)}
    groups: Groups = {}
    for more in (
        groups_of(document.get("dependency-groups")),
        _groups_of_poetry(poetry),
        _groups_of_pdm(table_of(tool.get("pdm"))),
        {"dev": texts_of(table_of(tool.get("uv")).get("dev-dependencies"))},
        _groups_of_hatch(table_of(tool.get("hatch")), str(told.get("name") or "")),
    ):
        for name, requirements in more.items():
            groups[name] = tuple(dict.fromkeys((*groups.get(name, ()), *requirements)))
    told["groups"] = {name: requirements for name, requirements in groups.items() if requirements}
    return told


def _of_poetry(poetry: Mapping[str, Any]) -> dict[str, Any]:
    """What `[tool.poetry]` says of the project, in the form of `of_pyproject`."""
    needed = table_of(poetry.get("dependencies"))
    always = {name: said for name, said in needed.items() if table_of(said).get("optional") is not True}
    by_name = {normal(name): _requirements(name, said) for name, said in needed.items()}
    scripts = {"console_scripts": poetry.get("scripts"), **table_of(poetry.get("plugins"))}
    told = {
        "name": poetry.get("name"),
        "version": None if poetry.get("version") in _PLACEHOLDERS else poetry.get("version"),
        "dependencies": _listed(always),
        "extras": {
            extra: [one for name in texts_of(names) for one in by_name.get(normal(name), [])]
            for extra, names in table_of(poetry.get("extras")).items()
        },
        "scripts": {
            group: [f"{name} = {to}" for name, to in table_of(entries).items() if isinstance(to, str)]
            for group, entries in scripts.items()
            if table_of(entries)
        },
    }
    return {key: value for key, value in told.items() if value}


def _groups_of_poetry(poetry: Mapping[str, Any]) -> Groups:
    old = {"dev": {"dependencies": poetry.get("dev-dependencies")}}
    tables = [*old.items(), *table_of(poetry.get("group")).items()]
    found: Groups = {}
    for name, group in tables:
        needed = _listed(table_of(table_of(group).get("dependencies")))
        found[normal(name)] = (*found.get(normal(name), ()), *needed)
    return found


def _groups_of_pdm(pdm: Mapping[str, Any]) -> Groups:
    named = table_of(pdm.get("dev-dependencies"))
    return {normal(name): _no_options(requirements) for name, requirements in named.items()}


def _groups_of_hatch(hatch: Mapping[str, Any], project: str) -> Groups:
    """Its environments; `default`, where tests run unless there is another, is `dev`."""
    found: Groups = {}
    for name, said in table_of(hatch.get("envs")).items():
        told = table_of(said)
        extras = ",".join(texts_of(told.get("features")))
        found["dev" if name == "default" else normal(name)] = (
            *_no_options(told.get("dependencies")),
            *_no_options(told.get("extra-dependencies")),
            *([f"{project}[{extras}]"] if project and extras else []),
        )
    return found


def _no_options(value: object) -> tuple[str, ...]:
    """The requirements of a list: no `-e PATH`, nothing that Hatch fills in (`{root:uri}`)."""
    return tuple(one for one in texts_of(value) if one[:1] not in ("", "-") and "{" not in one)


def _listed(needed: Mapping[str, Any]) -> list[str]:
    return [one for name, said in needed.items() for one in _requirements(name, said)]


def _requirements(name: str, said: Any) -> list[str]:
    """A dependency as Poetry has it, and what is wanted of it: one requirement, or several by marker.

    Of what comes from git, a path or an address the name alone is left.
    """
    if name.lower() == "python":
        return []
    found = []
    for one in said if isinstance(said, list) else [said]:
        told = {"version": one} if isinstance(one, str) else table_of(one)
        version = told.get("version")
        extras = ",".join(texts_of(told.get("extras")))
        python, platform = told.get("python"), told.get("platform")
        markers = [
            _marker_of_python(python) if isinstance(python, str) else "",
            f'sys_platform == "{platform}"' if isinstance(platform, str) else "",
            str(told.get("markers") or ""),
        ]
        marker = " and ".join(f"({each})" for each in markers if each)
        row = name + (f"[{extras}]" if extras else "")
        row += _specifier(version) if isinstance(version, str) else ""
        found.append(f"{row} ; {marker}" if marker else row)
    return found


def _specifier(constraint: str) -> str:
    """A constraint in PEP 440's words. Of `A || B`, which it has none for: from A's least to B's most."""
    either = [_clauses(one) for one in re.split(r"\s*\|\|?\s*", constraint.strip())]
    if len(either) == 1:
        return ",".join(op + version for op, version in either[0])
    ends = [(op.replace("==", ">="), version.removesuffix(".*")) for op, version in either[0]]
    low = [op + version for op, version in ends if op.startswith(">")]
    return ",".join([*low, *(op + version for op, version in either[-1] if op.startswith("<"))])


def _marker_of_python(constraint: str) -> str:
    either = [
        " and ".join(f'python_full_version {op} "{version}"' for op, version in _clauses(one))
        for one in re.split(r"\s*\|\|?\s*", constraint.strip())
    ]
    return " or ".join(either) if all(either) else ""


def _clauses(constraint: str) -> list[tuple[str, str]]:
    """`^1.2` as `>=1.2` and `<2`, `~1.2` as `>=1.2` and `<1.3`, `1.2` as `==1.2`; nothing of `*`."""
    found: list[tuple[str, str]] = []
    for op, version in _CLAUSE.findall(constraint):
        release = _RELEASE.match(version)
        if version == "*" or release is None:
            continue
        parts = [int(part) for part in release[0].split(".")]
        if op == "^":
            place = next((n for n, part in enumerate(parts) if part), len(parts) - 1)
            found += [(">=", version), ("<", _raised(parts, place))]
        elif op == "~":
            found += [(">=", version), ("<", _raised(parts, min(1, len(parts) - 1)))]
        elif op in ("", "=", "=="):
            found.append(("==", version))
        else:
            found.append((op, version if op == "!=" else version.removesuffix(".*")))
    return found


def _raised(parts: list[int], place: int) -> str:
    return ".".join(str(part) for part in [*parts[:place], parts[place] + 1])
