"""Harbor tasks as tasks of a suite: the folder is copied as it is, our fields are added to its task.toml.

Harbor still runs such a task. It has an image of its own, so it needs a container engine, and its own
`tests/test.sh` decides; there are no test ids. What Harbor has and a suite cannot (several steps, Windows) is
refused. Not here: tasks of ours that went through Harbor; they are recognised and copied.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tomllib
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tomli_w

from cursorbench.builder.intent import intent
from cursorbench.builder.unfit import Unfit
from cursorbench.errors import InputMissingError, RtrlError
from cursorbench.exchange.refused import Exchanged, Refused
from cursorbench.graders import patch as patches
from cursorbench.tasks import container, folder, settings
from cursorbench.tasks.settings import Invalid
from cursorbench.tasks.suite import Suite
from cursorbench.tasks.task import CursorBenchFields

MOST = 1 << 30  # bytes of a task's folder
_WORKDIR = re.compile(r"^[^\S\n]*WORKDIR\s+[\"']?(/[^\s\"']*)", re.MULTILINE | re.IGNORECASE)
_NEEDS_DOCKER = "needs a container engine"


def import_tasks(source: Path, suite: Suite, said: Callable[[str], None]) -> Exchanged:
    """Copy the Harbor tasks at a folder into a suite; those that are there already stay.

    Args:
        source: a task, or a folder with tasks in it, at any depth.
        said: told each task's name.

    Raises:
        InputMissingError: (exit 5) there is no task.toml below `source`.
    """
    found = _folders(source)
    if not found:
        older = next(source.rglob("task.yaml"), None)  # Terminal-Bench's own form, before its version 2
        told = "`harbor tasks migrate -i FOLDER -o OTHER` makes Harbor tasks of those with a task.yaml"
        hint = told if older else "a Harbor task, or a folder of them"
        raise InputMissingError(f"{source} holds no task.toml", hint=hint)
    made: list[str] = []
    refused: list[Refused] = []
    notes: dict[str, str] = {}
    again = 0
    for path in found:
        said(path.name)
        if path.name in made:
            refused.append(Refused(path.name, "twice", str(path)))
            continue
        target = suite.folder(path.name)
        try:
            if target.exists():
                again += 1
            else:
                _take(path, target, suite, source)
            made.append(path.name)
            if folder.read(target).environment.kind == "docker":
                notes[path.name] = _NEEDS_DOCKER
        except Unfit as error:
            refused.append(Refused(path.name, error.reason, error.detail))
    return Exchanged(suite.path, tuple(made), tuple(refused), again, notes)


def _folders(source: Path) -> list[Path]:
    if (source / "task.toml").is_file():
        return [source.resolve()]
    found: list[Path] = []
    for path in sorted(source.rglob("task.toml")):
        if not any(path.is_relative_to(one) for one in found):
            found.append(path.parent)
    return found


def _take(path: Path, target: Path, suite: Suite, source: Path) -> None:
    """Copy one. Raises Unfit."""
    if not settings.is_folder_name(path.name):
        what = "letters, digits, dots, dashes and underscores make a task's name"
        raise Unfit("bad_name", f"up to {settings.LONGEST_NAME} {what}")
    _checked(path)
    half = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(half, ignore_errors=True)
    try:
        shutil.copytree(path, half, symlinks=True, ignore=shutil.ignore_patterns(".git", "__pycache__"))
        config = half / "task.toml"
        text = folder.text(config)
        found = settings.document(text)
        if not settings.table(found, "metadata", "cursorbench"):
            config.write_text(_with(text, found, _ours(path, found, suite, source)), encoding="utf-8")
        folder.read(half)
        target.parent.mkdir(parents=True, exist_ok=True)
        half.rename(target)
    except (RtrlError, Invalid) as error:
        said = getattr(error, "message", str(error)).replace(str(half), path.name)
        raise Unfit("not_a_task", said) from error
    finally:
        shutil.rmtree(half, ignore_errors=True)


def _checked(path: Path) -> None:
    """That a suite can hold it. Raises Unfit."""
    try:
        total = sum(file.stat().st_size for file in folder.walk(path))
        found = settings.document(folder.text(path / "task.toml"))
        environment = settings.table(found, "environment")
    except (RtrlError, Invalid) as error:
        raise Unfit("not_a_task", getattr(error, "message", str(error))) from error
    if total > MOST:
        raise Unfit("too_large", f"{total >> 20} MB")
    if found.get("steps"):
        raise Unfit("several_steps", "a task of a suite has one instruction")
    if str(environment.get("os", "linux")).lower() != "linux":
        raise Unfit("not_linux", str(environment["os"]))
    if not (path / "instruction.md").is_file():
        raise Unfit("no_instruction", "instruction.md is not there")
    if not (path / "tests" / "test.sh").is_file():
        raise Unfit("no_test_script", "tests/test.sh is not there")
    if not environment.get("docker_image") and not (path / "environment").is_dir():
        raise Unfit("no_environment", "neither environment/ nor docker_image")


def _with(text: str, found: dict[str, Any], ours: dict[str, Any]) -> str:
    """The text with our tables at its end; written anew where TOML lets none be added there.

    That is: `metadata = {...}` in one line, which is closed.
    """
    longer = text.rstrip("\n") + "\n\n" + tomli_w.dumps({"metadata": {"cursorbench": ours}})
    with contextlib.suppress(tomllib.TOMLDecodeError):
        tomllib.loads(longer)
        return longer
    return tomli_w.dumps({**found, "metadata": {**settings.table(found, "metadata"), "cursorbench": ours}})


def _ours(path: Path, found: dict[str, Any], suite: Suite, source: Path) -> dict[str, Any]:
    """The table that is added. Raises Invalid, IntegrityError."""
    instruction = container.without_canary(folder.text(path / "instruction.md"))
    metadata, named = settings.table(found, "metadata"), settings.table(found, "task")
    changes = patches.files(_solution(path))
    added = sum(len(one.added) for one in changes)
    deleted = sum(len(one.deleted) for one in changes)
    origin = str(named.get("name") or f"{source.resolve().name}/{path.name}")
    fields = CursorBenchFields(
        instance_id=path.name,
        repo=str(metadata.get("repo") or origin),
        base_commit="",
        created_at=_day(metadata) or datetime.now(UTC).isoformat(timespec="seconds"),
        cluster=str(metadata.get("repo") or metadata.get("category") or origin),
        split="heldout",
        canary=suite.fields.canary,
        prompt_chars=len(instruction),
        prompt_source="author",
        intent=intent(instruction, "", added=added, deleted=deleted),
        files_changed=len(changes) or None,
        lines_changed=(added + deleted) or None,
    )
    environment: dict[str, Any] = {"kind": "docker", "import_paths": []}
    ours = {key: value for key, value in asdict(fields).items() if value is not None}
    if workdir := _workdir(path):
        environment["workdir"] = workdir
    return ours | {"environment": environment}


def _workdir(path: Path) -> str:
    """The last WORKDIR of the Dockerfile; [environment].workdir, where it is, comes before it."""
    dockerfile = path / "environment" / "Dockerfile"
    return (_WORKDIR.findall(folder.text(dockerfile)) or [""])[-1] if dockerfile.is_file() else ""


def _solution(path: Path) -> str:
    """The first text below solution/ that holds a git patch: one by itself, or a script with one in it."""
    for file in sorted((path / "solution").glob("*")):
        if (
            file.suffix in (".patch", ".diff", ".sh")
            and file.is_file()
            and file.stat().st_size < folder.MAX_TEXT
        ):
            text = file.read_text("utf-8", "replace")
            if "\ndiff --git " in f"\n{text}":
                return text
    return ""


def _day(metadata: dict[str, Any]) -> str:
    value = metadata.get("created_at")
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        return ""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()
