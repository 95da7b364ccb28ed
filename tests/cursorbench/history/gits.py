"""Small real repositories with fixed times for the tests of `cursorbench.history`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from cursorbench.history.changes import Change, Survival
from cursorbench.history.follow import follow
from cursorbench.history.repository import Repository
from cursorbench.sessions.lines import Kept

T0 = 1_700_000_000_000  # ms
HOUR = 3_600_000
DAY = 24 * HOUR


class Git:
    """A repository in a folder; every commit has the time it is told."""

    def __init__(self, folder: Path, *init: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.time, self.zone = T0, "+0000"
        self("init", "-q", "-b", "main", *init)

    def __call__(self, *arguments: str) -> str:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "GIT_CONFIG_NOSYSTEM": "1",
            # else each commit asks two more processes whether it is time to clear up
            "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "maintenance.auto", "GIT_CONFIG_VALUE_0": "false",
            "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org",
            "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org",
            "GIT_AUTHOR_DATE": f"{self.time // 1000} {self.zone}",
            "GIT_COMMITTER_DATE": f"{self.time // 1000} {self.zone}",
        }  # fmt: skip
        done = subprocess.run(
            ["git", *arguments], cwd=self.folder, env=environment, capture_output=True, check=True
        )
        return done.stdout.decode().strip()

    def commit(self, at: int, files: dict[str, str | None], message: str = "m") -> str:
        """Write files (None: delete) and commit them `at` ms after T0."""
        self.time = T0 + at
        for name, text in files.items():
            path = self.folder / name
            if text is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text.encode())
        self("add", "-A")
        self("commit", "-q", "--allow-empty", "-m", message)
        return self("rev-parse", "HEAD")

    def follow(self, *changes: Change) -> list[Survival]:
        """What became of them."""
        with Repository(self.folder) as repository:
            return list(follow(repository, changes))


def change(
    before: str | None,
    after: str | None,
    path: str = "a.py",
    at: int | None = 0,
    key: str = "k",
    diff: str | None = None,
    commits: tuple[str, ...] = (),
    session: str = "",
    undone: bool = False,
) -> Change:
    """A change `at` ms after T0."""
    return Change(key, path, before, after, diff, None if at is None else T0 + at, commits, session, undone)


def text(*lines: str) -> str:
    """Lines as a file."""
    return "".join(f"{line}\n" for line in lines)


OLD = text("import logging", "def first_one():", "    return 'first value'")
NEW = text(
    "import logging",
    "def first_one():",
    "    return 'other value'",
    "def second_one():",
    "    return 'second value'",
)
# NEW adds 3 lines that can be recognised and deletes 1.
ALL = Kept(3, 3, 1, 1)
NONE = Kept(3, 0, 1, 0)
LATE = 8 * DAY


def taken(git: Git) -> str:
    """A repository in which OLD became NEW a minute after the change."""
    git.commit(-HOUR, {"a.py": OLD, "b.py": text("something_else = 1")})
    return git.commit(60_000, {"a.py": NEW})
