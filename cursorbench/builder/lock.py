"""The locked requirements of a task: what its project asks for at the base, resolved as of the base's days.

`wanted` reads what `--install` says against the project at the base, `resolve` lets uv make a lock with exact
versions and hashes, of nothing that was uploaded after the quarter of the base commit: newer releases of
what the project stands on have made many an old test fail. The project itself is never in a lock, not even
where something else requires it: its code is the working tree. Not for: installing
(`cursorbench/tasks/venv.py`).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType

from cursorbench.builder.project import Project, of_tree, requirement_name
from cursorbench.errors import DependencyDownError, UsageError
from cursorbench.tasks.venv import normal

AUTO = "auto"
_FOR_TESTS = re.compile(r"tests?|testing|tests?-.*|.*-tests?|dev|develop(ment)?|all|ci")
# programs that no test imports; what is imported without being declared often comes with mypy or black
_TOOLS = re.compile(
    r"ruff|pyright|pyrefly|ty|prek|pre-commit|tox.*|nox|uv|twine|build|bump.*|towncrier|commitizen|codespell|watchfiles"
    r"|sphinx.*|.*-autobuild|furo|reno|mkdocs.*|myst-parser|shibuya|codecov|coveralls|check-manifest|poethepoet"
)
_WORD = re.compile(
    r"\.(?:\[(?P<extras>[\w.,\s-]+)\])?|@(?P<group>[\w.-]+)|-r(?P<file>\S+)|(?P<other>[^-.@\s]\S*)"
)
_EXTRAS = re.compile(r"\s*[\w./-]+\s*\[([^\]]*)\]")
_NO_FIT = re.compile(
    r"No solution found|unsatisfiable|Failed to build|was not found in the package|Couldn't parse|expected"
)
RESOLVE_S = 300.0


class UnresolvableError(Exception):
    """No versions fit together; the reason is uv's, on one line. A reason against a candidate."""


def words(install: str) -> tuple[str, ...]:
    """What `--install` says, word by word.

    `auto`; or any of `.`, `.[EXTRA,...]`, `@GROUP`, `-rFILE` (all of the project at the base; one that it has
    not there is left out) and plain requirements.

    Raises:
        UsageError: (exit 2) a word is none of these.
    """
    said = tuple(re.sub(r"(^|\s)-r\s+", r"\1-r", install).split())
    for word in said:
        if word != AUTO and not _WORD.fullmatch(word):
            raise UsageError(
                f"--install: {word!r} is no requirement",
                hint="auto, or like: . .[test] @dev -rdev.txt pytest>=8",
            )
    return said


def wanted(said: Sequence[str], project: Project) -> tuple[str, ...]:
    """The requirements that the words mean for a project, sorted, the project itself not among them."""
    about = [project, *(project.members[name] for name in project.changed)]
    found = [one for word in said for each in about for one in _of_word(word, each)]
    return tuple(sorted(dict.fromkeys(_without_itself(found, project))))


def _of_word(word: str, project: Project) -> list[str]:
    match = _WORD.fullmatch(word)
    if word == AUTO:
        return _auto(project)
    if match and match["group"]:
        return list(project.groups.get(normal(match["group"]), ()))
    if match and match["file"]:
        return list(project.files.get(match["file"], ()))
    if word.startswith("."):
        extras = (match["extras"] if match and match["extras"] else "").split(",")
        asked = [one for extra in extras for one in project.extras.get(normal(extra.strip()), ())]
        return [*project.dependencies, *asked]
    return [word]


def _auto(project: Project) -> list[str]:
    """The project's own requirements, and those of its tests but for programs such as linters."""
    beside: list[str] = []
    for table in (project.extras, project.groups):
        for name, requirements in table.items():
            if _FOR_TESTS.fullmatch(name):
                beside += requirements
    for path, requirements in project.files.items():
        own = path in ("requirements.txt", "requirements/base.txt", "requirements/main.txt")
        if not own or not project.dependencies or _of_developers(requirements):
            beside += requirements
    kept = [one for one in beside if not (_TOOLS.fullmatch(requirement_name(one)) or of_address(one))]
    return [*project.dependencies, *kept, "pytest"]


def _of_developers(requirements: Iterable[str]) -> bool:
    """Whether a file that is called like the project's own requirements is for who works on it."""
    return any(one.startswith(".") or requirement_name(one) == "pytest" for one in requirements)


def _without_itself(requirements: Iterable[str], project: Project, depth: int = 0) -> list[str]:
    """Requirements such as `svcs[tests]` of svcs or `-e .[tests]` written out, and those of a workspace's
    members in their place.
    """
    found: list[str] = []
    for one in requirements:
        if (about := of_tree(one, project)) is not None:
            needed = [*about.dependencies, *_asked_extras(one, about)]
            found += _without_itself(needed, project, depth + 1) if depth < 8 else []
        elif not one.startswith("."):
            found.append(one)
    return found


def _asked_extras(requirement: str, about: Project) -> list[str]:
    """What the extras that a requirement asks for come to, but for programs."""
    asked = _EXTRAS.match(requirement)
    inner = [
        one
        for extra in (asked[1].split(",") if asked else ())
        for one in about.extras.get(normal(extra.strip()), ())
    ]
    return [one for one in inner if not _TOOLS.fullmatch(requirement_name(one))]


def as_of(committed: datetime) -> datetime:
    """The end of the quarter in which a commit was made, UTC: few locks for many commits."""
    day = committed.astimezone(UTC)
    month = 3 * ((day.month - 1) // 3) + 4
    return datetime(day.year + month // 13, month if month <= 12 else 1, 1, tzinfo=UTC)


def of_address(requirement: str) -> bool:
    """Whether it is to come from an address (`y @ git+https://...`), where an index has the hashes."""
    return "://" in requirement.partition(";")[0]


def resolve(
    requirements: Sequence[str],
    python: str,
    until: datetime,
    code: Sequence[str],
    cache: Path,
    later: Mapping[str, datetime] = MappingProxyType({}),
) -> str:
    """The lock, as pip and uv read it; made once per cache.

    Args:
        python: version such as `3.11`; until: nothing uploaded later; code: distributions that are left
            out, for their code is in the tree; later: distributions of which more is taken, until then.

    Raises:
        UnresolvableError: no versions fit together.
        DependencyDownError: (exit 13) uv is missing, or the index cannot be reached.
    """
    until = min(until, datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1))
    more = [f"{name}={day.isoformat()}" for name, day in sorted(later.items()) if day > until]
    told = "\n".join([*requirements, python, until.date().isoformat(), " ".join(code), sys.platform, *more])
    kept = cache / f"{hashlib.sha256(told.encode()).hexdigest()[:32]}.lock"
    if kept.exists():
        return kept.read_text("utf-8")
    with tempfile.TemporaryDirectory(prefix="rtrl-lock-") as folder:
        asked = Path(folder, "requirements.in")
        asked.write_text("".join(f"{one}\n" for one in requirements), "utf-8")
        options = ["--generate-hashes", "--no-header", "--no-annotate", "--quiet", "--python-version", python]
        options += ["--exclude-newer", until.isoformat(), "--no-config"]
        for name in code:
            options += ["--no-emit-package", name]
        for name in more:
            options += ["--exclude-newer-package", name]
        text = _uv([*options, str(asked)], folder)
    cache.mkdir(parents=True, exist_ok=True)
    half = kept.with_suffix(f".{os.getpid()}.{id(text)}")
    half.write_text(text, "utf-8")
    half.replace(kept)
    return text


def _uv(arguments: Sequence[str], folder: str) -> str:
    program = _program()
    try:
        done = subprocess.run(
            [program, "pip", "compile", *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            timeout=RESOLVE_S,
        )
    except subprocess.TimeoutExpired as error:
        raise DependencyDownError(
            f"uv did not resolve in {RESOLVE_S:.0f} s", hint="is the index there?"
        ) from error
    if done.returncode == 0:
        return done.stdout
    said = " ".join(done.stderr.split())
    if _NO_FIT.search(said):
        raise UnresolvableError(said[:300].replace(folder, ""))
    raise DependencyDownError(
        f"requirements cannot be resolved: {said[:300]}", hint="is the package index there?"
    )


def _program() -> str:
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if not found:
        raise DependencyDownError("uv is not installed", hint="pip install uv")
    return found
