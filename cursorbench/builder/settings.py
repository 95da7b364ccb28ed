"""What a build is told, checked before anything is run.

Not for: the command line (`rtrl_cli/commands/bench/build.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from cursorbench.builder.candidates import Bounds
from cursorbench.builder.lock import AUTO, words
from cursorbench.errors import DependencyDownError, InputMissingError, IntegrityError, UsageError
from cursorbench.graders.running import REPORT
from cursorbench.sessions.git_environment import only_reading
from cursorbench.tasks.venv import locked, python_of, pythons

TESTS = "{tests}"
LOCK_HINT = "uv pip compile --generate-hashes"
RULES = 10  # raised when a rule changes that verdicts hang on
PYTEST = ("python", "-m", "pytest", "--continue-on-collection-errors", "-q", f"--junitxml={REPORT}", TESTS)
_DURATION = re.compile(r"(\d+)\s*(d|w|m|y)")
_DAYS = {"d": 1, "w": 7, "m": 30, "y": 365}


@dataclass(frozen=True)
class Settings:
    """A build.

    Attributes:
        repo: a git repository, only read; out: the suite's folder.
        name: `OWNER/REPO` as tasks call it; "" takes origin's, else the folder's.
        head: the history that is read.
        sessions: logs, folders of logs, or repositories that hold sessions.
        untraced: with sessions, take commits too that none is traced to.
        issues: a JSON file of issues; None for none.
        since: no commit older, ms; limit: so many candidates, the newest; None for all.
        install: what `--install` says; lock: a lock of one's own instead.
        environment: `python`: a virtual environment of the lock; `host`: what runs rtrl.
        python: version of the interpreter; `auto`: the newest here that a base's days knew.
        test_command: with `{report}` and perhaps `{tests}`; "" for pytest.
        scope: which tests run: of the changed files, or all.
        timeout_s: of one run of the tests.
        heldout: share of the tasks that are held out.
        jobs: candidates at a time.
        backend: of the sandbox.
        cache: of environments.
    """

    repo: Path
    out: Path
    name: str = ""
    head: str = "HEAD"
    sessions: tuple[Path, ...] = ()
    untraced: bool = False
    issues: Path | None = None
    since: int = 0
    limit: int | None = None
    install: str = AUTO
    lock: Path | None = None
    environment: Literal["python", "host"] = "python"
    python: str = f"{sys.version_info.major}.{sys.version_info.minor}"
    test_command: str = ""
    scope: Literal["changed", "all"] = "changed"
    timeout_s: float = 300.0
    heldout: float = 0.5
    jobs: int = 1
    backend: str = "auto"
    cache: Path = Path("~/.cache/rtrl/environments")
    bounds: Bounds = field(default_factory=Bounds)

    def checked(self) -> Settings:
        """The same, of a folder in a work tree that work tree.

        Raises:
            UsageError: (exit 2) a value that cannot be, or two that contradict each other.
            InputMissingError: (exit 5) a lock that is not there.
            IntegrityError: (exit 12) a lock that is none.
        """
        words(self.install)
        _require_told(self)
        if self.test_command and REPORT not in self.test_command:
            raise UsageError(
                "--test-command has no {report}: no report would be written",
                hint='for one "pytest --junitxml={report} {tests}"',
            )
        if self.lock is not None and self.install != AUTO:
            raise UsageError("--lock and --install contradict each other", hint="give one of them")
        if self.lock is not None:
            _require_lock(self.lock)
        if self.environment == "host" and (self.lock is not None or self.install != AUTO):
            raise UsageError(
                "--environment host takes what is installed", hint="leave out --lock and --install"
            )
        if self.jobs < 1 or (self.limit is not None and self.limit < 1):
            raise UsageError("--jobs and --limit are at least 1")
        if not 0 <= self.heldout <= 1:
            raise UsageError(f"--heldout is a share from 0 to 1, not {self.heldout}")
        if self.untraced and not self.sessions:
            raise UsageError("--untraced says nothing without --sessions")
        return replace(self, repo=_work_tree(self.repo))

    @property
    def command(self) -> tuple[str, ...]:
        """The test command, `{tests}` not filled in."""
        return tuple(shlex.split(self.test_command)) if self.test_command else PYTEST

    def python_at(self, at: str) -> str:
        """The interpreter's version for a base of a time (ISO 8601)."""
        return python_of(datetime.fromisoformat(at).astimezone(UTC)) if self.python == AUTO else self.python

    def repository_name(self) -> str:
        """What tasks call the repository."""
        return self.name or _origin(self.repo) or _folder_name(self.repo)

    def key(self, about: str, *, date_moves: bool) -> str:
        """Digest of all that a candidate's verdict hangs on; `about`: what else, its prompt for one."""
        there = pythons() if self.python == AUTO else ()
        told = [
            RULES, self.repository_name(), self.install, self.lock.read_text("utf-8") if self.lock else "",
            self.environment, self.python, *there, self.command, self.scope, self.timeout_s, self.heldout,
            date_moves, about,
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def since(text: str) -> int:
    """`2026-01-31`, or `90d`, `6m`, `1y` back from now, as ms.

    Raises:
        UsageError: (exit 2) it is neither.
    """
    if found := _DURATION.fullmatch(text.strip()):
        return int(1000 * (datetime.now(UTC).timestamp() - 86_400 * int(found[1]) * _DAYS[found[2]]))
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise UsageError(
            f"--since: {text!r} is no date", hint="like 2026-01-31, or 90d, 12w, 6m, 1y"
        ) from error
    return int(1000 * (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def filled(command: tuple[str, ...], tests: tuple[str, ...]) -> tuple[str, ...]:
    """The command with the tests in the place of `{tests}`; in a word with more, as one text."""
    found: list[str] = []
    for word in command:
        if word == TESTS:
            found += tests
        else:
            found.append(word.replace(TESTS, shlex.join(tests)))
    return tuple(found)


def _require_told(settings: Settings) -> None:
    """Raise UsageError for words that cannot be read: each candidate would be rejected for them."""
    if settings.python != AUTO and not re.fullmatch(r"3\.\d{1,2}", settings.python):
        raise UsageError(f"--python: {settings.python!r} is no version", hint="like 3.11, or auto")
    try:
        shlex.split(settings.test_command)
    except ValueError as error:
        raise UsageError(f"--test-command cannot be read: {error}", hint="quote it as for a shell") from error


def _require_lock(lock: Path) -> None:
    """Raise InputMissingError or IntegrityError for a lock that no environment can be made from."""
    if not lock.is_file():
        raise InputMissingError(f"there is no lock {lock}", hint=LOCK_HINT)
    try:
        text = lock.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise IntegrityError(
            f"{lock} is no text: {error.reason} at byte {error.start}", hint=LOCK_HINT
        ) from error
    if not text.strip():
        raise IntegrityError(f"{lock} is empty", hint=LOCK_HINT)
    locked(text, lock)


def _work_tree(repo: Path) -> Path:
    """The root of the work tree that a folder is in; the folder itself where it is no such folder."""
    up = _asked(repo, "rev-parse", "--show-cdup")
    return Path(os.path.normpath(repo.resolve() / up)) if up else repo


def _asked(repo: Path, *arguments: str) -> str:
    """What git says of a repository, "" where it says nothing; who reads the repository says why.

    Raises:
        DependencyDownError: (exit 13) there is no git.
    """
    command = ["git", "-C", str(repo), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, env=only_reading(), check=False)
    except FileNotFoundError as error:
        raise DependencyDownError("git is not installed", hint="install git 2.30 or newer") from error
    return done.stdout.decode("utf-8", "surrogateescape").strip()  # settings may be of any bytes


def _origin(repo: Path) -> str:
    """OWNER/REPO of the remote `origin`, as hosts write it."""
    url = _asked(repo, "config", "--get", "remote.origin.url")
    found = re.search(r"[/:]([\w.-]+)/([\w.-]+?)(?:\.git)?/?$", url)
    remote = "://" in url or "@" in url
    return f"{found[1]}/{found[2]}" if found and remote else ""


def _folder_name(repo: Path) -> str:
    path = repo.resolve()
    path = path.parent if path.name == ".git" else path
    return path.name.removesuffix(".git") or "repository"
