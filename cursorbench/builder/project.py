"""What a Python project says of itself at a commit: its name, requirements, version and where its code is.

Read from pyproject.toml, setup.cfg and setup.py as text: nothing of the repository is run. What only running
tells (a setup.py that computes) is not known. Not for: resolving requirements (`lock.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cursorbench.builder.declared import of_setup_cfg, of_setup_py, texts_of, toml
from cursorbench.builder.requirement_files import requirement_files
from cursorbench.builder.tool_tables import of_document
from cursorbench.graders.infrastructure import TEST_FILE
from cursorbench.history.repository import FILES, Repository
from cursorbench.sessions.reading import table_of
from cursorbench.tasks.venv import normal

_MEMBERS = 200  # of a workspace that are looked at
_NAME = re.compile(r"^\s*([A-Za-z0-9][\w.-]*)")
_NAMESPACES = 3  # namespaces within each other that are looked into
_SHARES = re.compile(r"^[^#\n]*\b(declare_namespace|extend_path)\(", re.MULTILINE)  # older namespaces
_VERSION = re.compile(r"v?(\d+(?:\.\d+)*(?:[-._]?(?:a|b|rc|dev|post)\.?\d*)*)")
_NOT_CODE = frozenset(
    {"setup", "conftest", "noxfile", "tasks", "fabfile", "manage", "docs", "doc", "tests", "test"}
)


@dataclass(frozen=True)
class Project:
    """What the files say. Empty where they are silent.

    Attributes:
        name: as distributions are called, normalised.
        folder: where it is below the root; "" for the root's.
        members: the other distributions whose code is in the tree, by name: those of a workspace.
        changed: members that a change is about; imported: whether it is one that this needs (`members.py`).
        dependencies, extras, groups: requirements as written.
        files: rows of files such as requirements-dev.txt and of tox's usual environment, by path.
        scripts: entry points by group, as `name = module:function` lines.
        import_paths: folders that Python imports the code from, `src` or `.`.
        modules: top-level packages and modules of it; of a namespace `zope.event`, no `zope`.
        version_file: a file that the build writes the version to; "" for none.
    """

    name: str = ""
    folder: str = ""
    members: Mapping[str, Project] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    imported: bool = False
    version: str = ""
    dependencies: tuple[str, ...] = ()
    extras: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    scripts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    import_paths: tuple[str, ...] = (".",)
    modules: tuple[str, ...] = ()
    version_file: str = ""

    @property
    def code(self) -> tuple[str, ...]:
        """The distributions whose code is in the tree: never installed, a later release least of all."""
        return (*([self.name] if self.name else []), *sorted(self.members))


def requirement_name(requirement: str) -> str:
    """The normalised name in a requirement; "" when it names none (a path, an option)."""
    found = _NAME.match(requirement)
    return normal(found[1]) if found else ""


def of_tree(requirement: str, project: Project) -> Project | None:
    """Whose code a requirement means that is in the tree, by name or path (`./core[test]`); None for none."""
    if requirement.startswith("."):
        folder = requirement.partition("[")[0].removeprefix(".").removeprefix("/")
        return next((one for one in (project, *project.members.values()) if one.folder == folder), None)
    name = requirement_name(requirement)
    return project if project.name and name == project.name else project.members.get(name)


def project_at(repository: Repository, commit: str) -> Project:
    """The project in the root of a commit's tree, with the members of its workspace."""
    root = repository.root(commit)
    found = _in(repository, commit, root)
    listed = repository.git("ls-tree", "-r", "--name-only", "-z", commit).split("\0")
    members = {}
    for path in [path for path in listed if path.endswith("/pyproject.toml")][:_MEMBERS]:
        folder = path.rpartition("/")[0]
        member = _in(repository, commit, _below(repository, root, folder), folder)
        if member.name and member.name != found.name:
            members[member.name] = member
    return replace(found, members=members)


def _below(repository: Repository, tree: str, folder: str) -> str:
    """The tree of a folder in a tree."""
    for part in folder.split("/"):
        tree = next((e.oid for e in repository.tree(tree) if e.name == part and e.mode == "40000"), "")
    return tree


def _in(repository: Repository, commit: str, root: str, folder: str = "") -> Project:
    """What the files in a folder say, by its tree."""
    said = {
        name: repository.text(repository.find(root, name))
        for name in ("pyproject.toml", "setup.cfg", "setup.py")
    }
    document = toml(said["pyproject.toml"])
    told = of_document(document)
    told = {**of_setup_cfg(said["setup.cfg"]), **told}
    told = {**of_setup_py(said["setup.py"]), **told}
    paths, modules = _code(repository, root)
    version = (
        str(told.get("version") or "")
        or _tag(repository, commit)
        or _assigned(repository, root, paths, modules)
    )
    return Project(
        name=normal(str(told.get("name") or "")),
        folder=folder,
        version=version,
        dependencies=texts_of(told.get("dependencies")),
        extras={normal(name): texts_of(value) for name, value in table_of(told.get("extras")).items()},
        groups=table_of(told.get("groups")),
        files=requirement_files(repository, root),
        scripts={name: texts_of(value) for name, value in table_of(told.get("scripts")).items()},
        import_paths=paths,
        modules=modules,
        version_file=_version_file(document),
    )


def has_pytest(repository: Repository, commit: str, project: Project) -> bool:
    """Whether pytest can run its tests: settings say so, a requirement, or a Python file with a test's name.

    Those of unittest alone as well (`test.py`, `pkg/tests.py`): they are named to it, and it runs them.
    """
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
    names = (path.rpartition("/")[2] for path in listed if path.endswith(".py"))
    return any(TEST_FILE.fullmatch(name) for name in names)


def _code(repository: Repository, root: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Where Python imports the code from, and its top-level modules."""
    source = next((e.oid for e in repository.tree(root) if e.name == "src" and e.mode == "40000"), "")
    if modules := [*_modules(repository, source), *_packages(repository, source, _NAMESPACES)]:
        return ("src", "."), tuple(sorted(modules))
    return (".",), tuple(sorted([*_modules(repository, root), *_packages(repository, root, 0)]))


def _modules(repository: Repository, tree: str) -> Iterator[str]:
    """The modules of a folder that are files."""
    for entry in repository.tree(tree):
        stem = entry.name.removesuffix(".py")
        if entry.mode in FILES and stem != entry.name and _is_code(stem):
            yield stem


def _packages(repository: Repository, tree: str, deep: int) -> Iterator[str]:
    """The packages of a folder; of a namespace, which other distributions share, those that are in it."""
    for entry in repository.tree(tree):
        if entry.mode != "40000" or not _is_code(entry.name):
            continue
        first = repository.find(entry.oid, "__init__.py")
        if first and not _SHARES.search(repository.text(first)):
            yield entry.name
        elif deep:
            yield from (f"{entry.name}.{one}" for one in _packages(repository, entry.oid, deep - 1))


def _is_code(name: str) -> bool:
    return name.isidentifier() and name not in _NOT_CODE and not name.startswith("test_")


def _version_file(document: Mapping[str, Any]) -> str:
    tool = table_of(document.get("tool"))
    hatch = table_of(table_of(table_of(table_of(tool.get("hatch")).get("build")).get("hooks")).get("vcs"))
    scm = table_of(tool.get("setuptools_scm"))
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
