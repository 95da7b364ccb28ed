"""Whether a project has modules that a compiler makes (C, Cython, Rust): no task builds them.

    told(repository, commit)   a line for people, "" where nothing says so

The tests of a task run the Python code alone. Where the project has a version in Python beside the compiled
one, its commits make tasks; where a test needs the compiled one, they make none. Read as text, as
`project.py` reads. Not for: requirements that are compiled, which pip builds.
"""

from __future__ import annotations

import re
from typing import Final

from cursorbench.builder.declared import texts_of, toml
from cursorbench.builder.project import requirement_name
from cursorbench.history.repository import Repository
from cursorbench.sessions.reading import table_of

_SETUP: Final = re.compile(
    r"^[^#\n]*\b(ext_modules|rust_extensions|cffi_modules|mypycify\(|cythonize\()", re.MULTILINE
)
_TOOLS: Final = frozenset(
    {
        "cffi",
        "cython",
        "maturin",
        "meson-python",
        "nanobind",
        "pybind11",
        "scikit-build",
        "scikit-build-core",
        "setuptools-rust",
    }
)
_SOURCE: Final = (".pyx", ".pyx.in")


def told(repository: Repository, commit: str) -> str:
    """What is to be said of a project's compiled modules; the first file that has some is named."""
    root = repository.root(commit)
    place = ""
    for name in ("setup.py", "setup.cfg"):
        if _SETUP.search(repository.text(repository.find(root, name))):
            place = name
    system = table_of(toml(repository.text(repository.find(root, "pyproject.toml"))).get("build-system"))
    if not _TOOLS.isdisjoint(requirement_name(one) for one in texts_of(system.get("requires"))):
        place = "pyproject.toml"
    if not place:
        listed = repository.git("ls-tree", "-r", "--name-only", "-z", commit).split("\0")
        place = next((path for path in listed if path.endswith(_SOURCE)), "")
    if not place:
        return ""
    return (
        f"the project has compiled modules ({place}), which no task builds: tests run its Python code alone, "
        "and a commit whose tests need the compiled one makes no task"
    )
