"""A suite: a folder with suite.toml and tasks/NAME, each a task.

`Suite.open` reads every task and believes none: one that is wrong fails the whole suite, with its file and
field, because a suite that leaves out what it cannot read measures something else. The digest is over
everything that makes results comparable. Not here: making suites (`cursorbench/builder/`).
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Self

import tomli_w

from cursorbench.errors import InputMissingError, IntegrityError, RtrlError, UsageError
from cursorbench.files import sha256_of
from cursorbench.tasks import bundle, folder, settings
from cursorbench.tasks.settings import Invalid
from cursorbench.tasks.task import Split, Task

SCHEMA = "cursorbench/1"
_PARTIAL = ".suite.toml.new"  # suite.toml while it is written
_NOT_COMPARED = ("provenance.json", "README.md", "task.toml", "environment/repo.bundle")


@dataclass(frozen=True)
class SuiteFields:
    """suite.toml.

    Attributes:
        name: of the suite; tables and reports show it.
        schema: `cursorbench/1`.
        created: ISO 8601 with zone.
        canary: as `CursorBenchFields.canary`; each task that is made for the suite has it.
        description: a sentence for people.
    """

    name: str
    schema: str
    created: str
    canary: str
    description: str = ""


@dataclass(frozen=True)
class Suite:
    """A suite, read whole.

    Attributes:
        path: its folder.
        fields: suite.toml.
        tasks: in the order of their names.
    """

    path: Path
    fields: SuiteFields
    tasks: tuple[Task, ...]

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Read a suite.

        Raises:
            InputMissingError: (exit 5) there is no suite.toml, or no task.
            IntegrityError: (exit 12) suite.toml or a task is wrong; names file and field, and how many are.
        """
        path = Path(path)
        known = _fields(path)
        names = sorted(one.name for one in (path / "tasks").glob("*") if not one.name.startswith("."))
        if not names:
            told = (path / "rejects.json").is_file()
            hint = "its rejects.json says why" if told else "a suite holds its tasks in tasks/NAME"
            raise InputMissingError(f"{path} has no task", hint=hint)
        tasks, wrong = [], []
        for name in names:
            try:
                tasks.append(_task(path / "tasks" / name))
            except RtrlError as error:
                wrong.append(error)
        if wrong:
            more = f" ({len(wrong)} of {len(names)} tasks are wrong)" if len(wrong) > 1 else ""
            raise IntegrityError(
                f"{wrong[0].message}{more}", hint=wrong[0].hint or "mend it, or remove its folder"
            )
        return cls(path=path, fields=known, tasks=tuple(tasks))

    @classmethod
    def create(cls, path: Path | str, name: str, *, description: str = "") -> Self:
        """Make an empty suite with a canary of its own; tasks are written to `suite.folder(NAME)`.

        Raises:
            UsageError: (exit 2) there is something already, or the name cannot be one.
        """
        path = Path(path)
        partial, tasks = path / _PARTIAL, path / "tasks"
        if why := _in_the_way(path, partial, tasks):
            raise UsageError(why, hint="choose another folder, or remove it")
        if not settings.NAME.fullmatch(name):
            raise UsageError(f"{name!r} is no name for a suite", hint="letters, digits, dots, dashes")
        created = datetime.now(UTC).isoformat(timespec="seconds")
        known = SuiteFields(name, SCHEMA, created, f"rtrl-{uuid.uuid4()}", description)
        tasks.mkdir(parents=True, exist_ok=True)
        with partial.open("w", encoding="utf-8") as file:
            file.write(tomli_w.dumps(asdict(known)))
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path / "suite.toml")
        return cls(path=path, fields=known, tasks=())

    @classmethod
    def begun(cls, path: Path | str) -> Self:
        """A suite that tasks are still written to: suite.toml, and no task read.

        Raises:
            InputMissingError, IntegrityError: as `open`, of suite.toml.
        """
        return cls(path=Path(path), fields=_fields(Path(path)), tasks=())

    def folder(self, name: str) -> Path:
        """Where the task of a name is, or would be."""
        return self.path / "tasks" / name

    def task(self, name: str) -> Task:
        """The task of a name. Raises InputMissingError (exit 5) when there is none."""
        found = next((task for task in self.tasks if task.name == name), None)
        if found is None:
            near = ", ".join(task.name for task in self.tasks[:3])
            raise InputMissingError(f"{self.path} has no task {name}", hint=f"it has {near}, ...")
        return found

    def of_split(self, split: Split | None) -> tuple[Task, ...]:
        """The tasks of a split; all for None."""
        return tuple(task for task in self.tasks if split in (None, task.fields.split))

    @cached_property
    def digest(self) -> str:
        """`sha256:` over every task; results under equal digests may be compared."""
        return _sha256(f"{task.name}\0{digest(task)}" for task in self.tasks)


def digest(task: Task) -> str:
    """`sha256:` over what an agent and a grader get of a task.

    The bundle counts by the tree that it is checked out to, since git may pack the same commits in other
    bytes; provenance does not count.
    """
    parts = [json.dumps([asdict(task.fields), asdict(task.environment)], sort_keys=True)]
    parts.append(f"{task.timeout_s}\0{task.verifier_timeout_s}")
    if task.bundle.exists():
        parts.append(bundle.head(task.bundle))
    for path in folder.walk(task.folder):
        name = path.relative_to(task.folder).as_posix()
        if name not in _NOT_COMPARED:
            parts.append(f"{name}\0{sha256_of(path)}")
    return _sha256(parts)


def _sha256(parts: Iterable[str]) -> str:
    known = hashlib.sha256()
    for part in parts:
        known.update(part.encode("utf-8", "surrogateescape") + b"\0\0")
    return f"sha256:{known.hexdigest()}"


def _in_the_way(path: Path, partial: Path, tasks: Path) -> str:
    """Why no suite can be made there; "" where one can, or can go on that was killed while it was made."""
    if not path.is_dir():
        return f"{path} is there already" if os.path.lexists(path) else ""
    for one in (partial, tasks):
        if one.is_symlink():
            return f"{one} is a link, and nothing is written through it"
    if partial.is_dir() or (tasks.exists() and not tasks.is_dir()):
        return f"{partial if partial.is_dir() else tasks} is in the way of a suite's own"
    others = {*path.iterdir(), *tasks.glob("*")} - {partial, tasks}
    return f"{path} is there already" if others else ""


def _task(path: Path) -> Task:
    task = folder.read(path)
    if task.name != path.name:
        raise IntegrityError(
            f"{path}/task.toml: metadata.cursorbench.instance_id is {task.name!r}, its folder {path.name!r}",
            hint="a task's folder is named as its instance id",
        )
    if task.bundle.exists() and (head := bundle.head(task.bundle)) != task.fields.base_commit:
        raise IntegrityError(f"{task.bundle} ends at {head}, not at base_commit", hint=folder.HINT)
    return task


def _fields(path: Path) -> SuiteFields:
    place = path / "suite.toml"
    if not place.is_file():
        raise InputMissingError(f"{place} is not there", hint="`rtrl bench build` or `import` makes a suite")
    try:
        known = settings.convert(settings.document(folder.text(place)), SuiteFields, "suite")
        if known.schema != SCHEMA:
            raise Invalid(f"schema is {known.schema!r}; this program reads {SCHEMA}")
        if not settings.NAME.fullmatch(known.name) or not settings.CANARY.fullmatch(known.canary):
            raise Invalid("name or canary is empty or cannot be one")
    except Invalid as error:
        raise IntegrityError(f"{place}: {error}", hint=folder.HINT) from error
    return known
