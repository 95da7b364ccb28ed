"""What a Python project says of itself at a commit: its name, requirements, version and where its code is.

Read from pyproject.toml, setup.cfg and setup.py as text: nothing of the repository is run. What only running
tells (a setup.py that computes) is not known. Not for: resolving requirements (`lock.py`).
"""

from __future__ import annotations

import ast
import configparser
import contextlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cursorbench.history.repository import FILES, Repository

_FILES_OF_REQUIREMENTS = re.compile(
    r"(dev-?|test-?)?requirements([-_](dev|tests?|testing))?\.txt|requirements/(base|main|dev|tests?|testing)\.txt"
)
_NAME = re.compile(r"^\s*([A-Za-z0-9][\w.-]*)")
_VERSION = re.compile(r"v?(\d+(?:\.\d+)*(?:[-._]?(?:a|b|rc|dev|post)\.?\d*)*)")
_NOT_CODE = frozenset(
    {"setup", "conftest", "noxfile", "tasks", "fabfile", "manage", "docs", "doc", "tests", "test"}
)


@dataclass(frozen=True)
class Project:
    """What the files say. Empty where they are silent.

    Attributes:
        name: as distributions are called, normalised.
        dependencies, extras, groups: requirements as written.
        files: requirements of files such as requirements-dev.txt, by path.
        scripts: entry points by group, as `name = module:function` lines.
        import_paths: folders that Python imports the code from, `src` or `.`.
        modules: top-level packages and modules of it.
        version_file: a file that the build writes the version to; "" for none.
    """

    name: str = ""
    version: str = ""
    dependencies: tuple[str, ...] = ()
    extras: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    scripts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    import_paths: tuple[str, ...] = (".",)
    modules: tuple[str, ...] = ()
    version_file: str = ""


def normal(name: str) -> str:
    """A distribution's name as all spellings of it are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirement_name(requirement: str) -> str:
    """The normalised name in a requirement; "" when it names none (a path, an option)."""
    found = _NAME.match(requirement)
    return normal(found[1]) if found else ""


def project_at(repository: Repository, commit: str) -> Project:
    """The project in the root of a commit's tree."""
    root = repository.root(commit)
    texts = {
        name: repository.text(repository.find(root, name))
        for name in ("pyproject.toml", "setup.cfg", "setup.py")
    }
    document = _toml(texts["pyproject.toml"])
    told = _of_pyproject(document)
    told = {**_of_setup_cfg(texts["setup.cfg"]), **told}
    told = {**_of_setup_py(texts["setup.py"]), **told}
    paths, modules = _code(repository, root)
    version = (
        str(told.get("version") or "")
        or _tag(repository, commit)
        or _assigned(repository, root, paths, modules)
    )
    return Project(
        name=normal(str(told.get("name") or "")),
        version=version,
        dependencies=_texts(told.get("dependencies")),
        extras={normal(name): _texts(value) for name, value in dict(told.get("extras") or {}).items()},
        groups=_groups(document.get("dependency-groups")),
        files=_requirement_files(repository, root),
        scripts={name: _texts(value) for name, value in dict(told.get("scripts") or {}).items()},
        import_paths=paths,
        modules=modules,
        version_file=_version_file(document),
    )


def has_pytest(repository: Repository, commit: str, project: Project) -> bool:
    """Whether its tests are pytest's: settings say so, a requirement, or a file with a test's name."""
    root = repository.root(commit)
    for name, mark in (("pytest.ini", ""), ("pyproject.toml", "[tool.pytest"), ("tox.ini", "[pytest]"),
                       ("setup.cfg", "[tool:pytest]"), (".pytest.ini", ""), ("conftest.py", "")):  # fmt: skip
        blob = repository.find(root, name)
        if blob and mark in repository.text(blob):
            return True
    every = [
        project.dependencies,
        *project.extras.values(),
        *project.groups.values(),
        *project.files.values(),
    ]
    if any(requirement_name(one) == "pytest" for requirements in every for one in requirements):
        return True
    listed = repository.git("ls-tree", "-r", "--name-only", "-z", commit).split("\0")
    return any(re.fullmatch(r"(.*/)?(test_[^/]*|[^/]*_test)\.py", path) for path in listed)


def _toml(text: str) -> dict[str, Any]:
    with contextlib.suppress(tomllib.TOMLDecodeError):
        return tomllib.loads(text)
    return {}


def _of_pyproject(document: Mapping[str, Any]) -> dict[str, Any]:
    project = _table(document.get("project"))
    scripts = {
        "console_scripts": _table(project.get("scripts")),
        "gui_scripts": _table(project.get("gui-scripts")),
        **_table(project.get("entry-points")),
    }
    told = {
        "name": project.get("name"),
        "version": project.get("version"),
        "dependencies": project.get("dependencies"),
        "extras": project.get("optional-dependencies"),
        "scripts": {
            group: [f"{name} = {target}" for name, target in _table(entries).items()]
            for group, entries in scripts.items()
            if entries
        },
    }
    return {key: value for key, value in told.items() if value}


def _of_setup_cfg(text: str) -> dict[str, Any]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    with contextlib.suppress(configparser.Error):
        parser.read_string(text)
    told: dict[str, Any] = {
        "name": parser.get("metadata", "name", fallback=""),
        "version": parser.get("metadata", "version", fallback=""),
        "dependencies": _rows(parser.get("options", "install_requires", fallback="")),
    }
    if told["version"].startswith(("attr:", "file:")):
        told["version"] = ""
    for key, section in (("extras", "options.extras_require"), ("scripts", "options.entry_points")):
        if parser.has_section(section):
            told[key] = {name: _rows(value) for name, value in parser.items(section)}
    return {key: value for key, value in told.items() if value}


def _of_setup_py(text: str) -> dict[str, Any]:
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
                        value = _of_setup_cfg(f"[options.entry_points]\n{value}").get("scripts")
                    told[wanted[keyword.arg]] = value
    return {key: value for key, value in told.items() if value}


def _literal(node: ast.AST, names: Mapping[str, ast.AST]) -> Any:
    if isinstance(node, ast.Name) and node.id in names:
        node = names[node.id]
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _groups(table: object) -> dict[str, tuple[str, ...]]:
    """Dependency groups (PEP 735), groups that include others written out."""
    raw = {normal(name): value for name, value in _table(table).items() if isinstance(value, list)}

    def written(name: str, above: frozenset[str]) -> list[str]:
        found: list[str] = []
        for one in raw.get(name, ()) if name not in above else ():
            if isinstance(one, str):
                found.append(one)
            elif isinstance(one, dict) and isinstance(one.get("include-group"), str):
                found += written(normal(one["include-group"]), above | {name})
        return found

    return {name: tuple(written(name, frozenset())) for name in raw}


def _requirement_files(repository: Repository, root: str) -> dict[str, tuple[str, ...]]:
    found = {}
    folders = {
        "": root,
        "requirements/": next((e.oid for e in repository.tree(root) if e.name == "requirements"), ""),
    }
    for folder, tree in folders.items():
        for entry in repository.tree(tree):
            if entry.mode in FILES and _FILES_OF_REQUIREMENTS.fullmatch(folder + entry.name):
                rows = repository.text(entry.oid).splitlines()
                plain = (row.split(" #")[0].strip() for row in rows)
                found[folder + entry.name] = tuple(row for row in plain if row and row[0] not in "#-.")
    return found


def _code(repository: Repository, root: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Where Python imports the code from, and its top-level modules."""
    source = next((e.oid for e in repository.tree(root) if e.name == "src" and e.mode == "40000"), "")
    for path, tree in (("src", source), (".", root)):
        modules = []
        for entry in repository.tree(tree):
            stem = entry.name.removesuffix(".py")
            package = entry.mode == "40000" and repository.find(entry.oid, "__init__.py")
            module = entry.mode in FILES and entry.name.endswith(".py")
            if (
                (package or module)
                and stem.isidentifier()
                and stem not in _NOT_CODE
                and not stem.startswith("test_")
            ):
                modules.append(stem)
        if modules:
            return (path, ".") if path != "." else (".",), tuple(sorted(modules))
    return (".",), ()


def _version_file(document: Mapping[str, Any]) -> str:
    tool = _table(document.get("tool"))
    hatch = _table(_table(_table(_table(tool.get("hatch")).get("build")).get("hooks")).get("vcs"))
    scm = _table(tool.get("setuptools_scm"))
    for value in (hatch.get("version-file"), scm.get("version_file"), scm.get("write_to")):
        if (
            isinstance(value, str)
            and value.endswith(".py")
            and ".." not in value
            and not value.startswith("/")
        ):
            return value
    return ""


def _tag(repository: Repository, commit: str) -> str:
    """The version that the nearest tag before a commit names."""
    try:
        tag = repository.git("describe", "--tags", "--abbrev=0", commit).strip()
    except OSError:
        return ""
    found = _VERSION.fullmatch(tag.rpartition("/")[2])
    return found[1] if found else ""


def _assigned(repository: Repository, root: str, paths: tuple[str, ...], modules: tuple[str, ...]) -> str:
    """The text that a package's `__version__` is set to."""
    for module in modules:
        for name in (
            f"{module}/__init__.py",
            f"{module}/__about__.py",
            f"{module}/version.py",
            f"{module}.py",
        ):
            path = name if paths[0] == "." else f"{paths[0]}/{name}"
            text = repository.text(repository.find(root, path))
            if found := re.search(
                r"^__version__\s*(?::\s*\w+\s*)?=\s*['\"]([\w.+-]+)['\"]", text, re.MULTILINE
            ):
                return found[1]
    return ""


def _rows(text: str) -> list[str]:
    return [row.strip() for row in text.splitlines() if row.strip() and not row.strip().startswith("#")]


def _texts(value: object) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list | tuple) else ()


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
