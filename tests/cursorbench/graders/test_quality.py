"""Findings that a diff adds, by the real ruff and mypy in a real sandbox."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from cursorbench.graders import quality
from cursorbench.sandbox import open_backend
from tests.cursorbench.graders.forging import CORE, LIMITS, SOLVED, TEST_NEW, World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("quality")
    for place in (folder, folder.parent):
        place.chmod(0o755)
    return World(folder, open_backend())


def measured(world: World, files: dict[str, str | bytes], kept: int = 2) -> quality.Quality:
    return quality.measure(world.environment, world.diff(files), kept, world.backend, LIMITS)


def test_a_clean_change_adds_nothing(world: World) -> None:
    found = measured(world, {**SOLVED, "tests/test_core.py": TEST_NEW})
    assert (found.lint, found.types, found.note) == (0, 0, "")
    assert (found.lines, found.kept_lines, found.size_ratio) == (2, 2, 1.0)


def test_what_is_added_counts_and_what_moves_does_not(world: World) -> None:
    worse = "import os\n\n\ndef first(values: list[int]) -> str:\n    return values[0]\n\n\n"
    found = measured(world, {"calc/core.py": worse + CORE})
    assert found.lint == 1  # an unused import
    assert found.types == 1
    assert found.lines == 7


def test_what_was_found_in_a_file_before_it_moved_is_not_added() -> None:
    there = Counter({("calc/core.py", "F401 os"): 1})
    here = Counter({("calc/sums.py", "F401 os"): 2})
    assert quality._new(there, here, {"calc/core.py": "calc/sums.py"}) == 1
    assert quality._asked("/work/lib/a.py", ["a.py", "lib/a.py"]) == "lib/a.py"


def test_what_is_no_python_is_not_looked_at(world: World) -> None:
    found = measured(world, {"notes.txt": "import os\n"}, kept=0)
    assert (found.lint, found.types, found.lines, found.size_ratio) == (0, 0, 1, None)


def test_files_that_are_none_are_not_looked_at() -> None:
    """A link to nowhere called x.py: without a name left, ruff and mypy would take the whole repository."""
    asked: list[str] = []

    class Empty:
        def exec(self, command: list[str], **_: object) -> SimpleNamespace:
            asked.append(command[0])
            return SimpleNamespace(ok=False, ended="exited", output="")

    assert quality._look(Empty(), ["x.py"]) == (Counter(), Counter())  # type: ignore[arg-type]
    assert asked == ["test"]
