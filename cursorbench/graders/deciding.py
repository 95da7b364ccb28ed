"""Which paths of a task decide how its tests run, by their names and by what its base has.

Not here: names that decide in any task (`infrastructure.py`), putting them back (`restoring.py`).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Self

from cursorbench.graders import infrastructure


@dataclass(frozen=True)
class Deciding:
    """Asked of a path in the working tree.

    Attributes:
        root: the pristine tree, on the host.
        tests: paths of the test files.
        folders: of tests.
        first: folders that modules are imported from before the library's.
        runners: modules that the command starts, besides those that are known.
        scripts: files of the base that the command names.
    """

    root: Path
    tests: Collection[str]
    folders: Collection[str]
    first: Collection[str]
    runners: Collection[str]
    scripts: Collection[str]

    @classmethod
    def of(cls, root: Path, tests: Collection[str], imports: Iterable[str], command: Sequence[str]) -> Self:
        """Of a task. `imports`: folders on Python's import path."""
        folders = infrastructure.test_folders(tests)
        first = {*folders, *imports, *(_prepended(path, root) for path in tests)} - {"."}
        scripts = {path for word in command if (root / (path := os.path.normpath(word))).is_file()}
        return cls(root, tests, folders, first, infrastructure.started(command), scripts)

    def __call__(self, path: str) -> bool:
        """Whether it decides."""
        if path in self.scripts or infrastructure.decides(path):
            return True
        if infrastructure.of_tests(path, self.folders):
            return True
        if PurePosixPath(path).name in infrastructure.SHARED or self._of_tests_beside_code(path):
            return True
        shadow = infrastructure.shadows(path, self.first, self.runners)
        return bool(shadow) and not (self.root / shadow).exists()

    def _of_tests_beside_code(self, path: str) -> bool:
        """Whether it is a base's file that the tests beside code share, or is imported in place of a test.

        No solution has one. `test_core/__init__.py` and `test_core.abi3.so` come before `test_core.py`.
        """
        pure = PurePosixPath(path)
        if infrastructure.TEST_FILE.fullmatch(pure.name) and (self.root / path).exists():
            return True
        modules = (one.with_name(f"{one.name.partition('.')[0]}.py") for one in (pure, *pure.parents[:-1]))
        return any(
            infrastructure.TEST_FILE.fullmatch(one.name)
            and (str(one) in self.tests or (self.root / one).is_file())
            for one in modules
        )


def _prepended(path: str, root: Path) -> str:
    """The folder that pytest puts before all others on the import path, for a test file to be imported."""
    folder = PurePosixPath(path).parent
    while folder.name and (root / folder / "__init__.py").is_file():
        folder = folder.parent
    return str(folder)
