"""A task's folder, read and written whole.

`read` believes nothing: every field has its type and range, every file that is named is there, nothing
leads out of the folder. `write` makes the folder under another name and renames it, so a folder with a
task's name is a whole task. Not here: what a suite is (`suite.py`), how a task is run.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cursorbench.errors import InputMissingError, IntegrityError, UsageError
from cursorbench.tasks import bundle, container, settings
from cursorbench.tasks.settings import Invalid
from cursorbench.tasks.task import ExpectedTests, Task

MAX_TEXT = 8 << 20  # bytes of a file that is read as text
HINT = "docs/cursorbench.md describes the format"


@dataclass(frozen=True)
class Contents:
    """What a task's folder holds besides its settings and its instruction.

    Attributes:
        bundle: the repository up to the base commit (`bundle.write`); copied.
        solution: the kept change without its tests, for `git apply`.
        test_files: by path in the working tree; the keys are `ExpectedTests.files`.
        lock: locked requirements with hashes, of a `python` environment.
        overlay: files that git does not see, laid over the checked-out tree.
        logs: what an agent sees below `/context`.
        provenance: where the task comes from and how it was validated; as JSON.
    """

    bundle: Path | None
    solution: bytes
    test_files: Mapping[str, bytes]
    lock: str = ""
    overlay: Mapping[str, bytes] = field(default_factory=dict)
    logs: Mapping[str, bytes] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)


def read(folder: Path) -> Task:
    """Read a task.

    Raises:
        InputMissingError: (exit 5) there is no task.toml.
        IntegrityError: (exit 12) with the file and the field that is wrong.
    """
    config = folder / "task.toml"
    if not config.is_file():
        raise InputMissingError(f"{config} is not there", hint="a task is a folder with a task.toml")
    found = settings.parse(text(config), str(config))
    instruction = container.without_canary(text(folder / "instruction.md"))
    task = Task(
        folder=folder,
        fields=found.fields,
        instruction=instruction,
        tests=_tests(folder, docker=found.environment.kind == "docker"),
        timeout_s=found.timeout_s,
        environment=found.environment,
        verifier_timeout_s=found.verifier_timeout_s,
    )
    try:
        _check(task)
    except Invalid as error:
        raise IntegrityError(f"{folder}: {error}", hint=HINT) from error
    return task


def text(path: Path) -> str:
    """A file as text, its line ends as they are.

    Raises:
        IntegrityError: (exit 12) not there, no file (a pipe or device has no end), too long, not UTF-8.
    """
    try:
        if not stat.S_ISREG((found := path.stat()).st_mode):
            raise IntegrityError(f"{path} is no file", hint=HINT)
        if found.st_size > MAX_TEXT:
            raise IntegrityError(f"{path} is longer than {MAX_TEXT >> 20} MB", hint=HINT)
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        raise IntegrityError(f"{path} is not there", hint=HINT) from error
    except UnicodeDecodeError as error:
        raise IntegrityError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from error


def provenance(task: Task) -> dict[str, Any]:
    """What provenance.json says; empty when there is none.

    Raises:
        IntegrityError: (exit 12) it is no JSON object.
    """
    path = task.folder / "provenance.json"
    return _object(path) if path.exists() else {}


def _object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(text(path))
        json.dumps(found, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{path} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise IntegrityError(f"{path} is no JSON object", hint=HINT)
    return found


def _tests(folder: Path, *, docker: bool) -> ExpectedTests:
    path = folder / "tests" / "tests.json"
    if docker and not path.exists():
        return ExpectedTests(("bash", "/tests/test.sh"), (), (), (), verifier="reward")
    try:
        return settings.convert(_object(path), ExpectedTests, "tests")
    except Invalid as error:
        raise IntegrityError(f"{path}: {error}", hint=HINT) from error


def _check(task: Task) -> None:
    """That the parts agree. Raises Invalid."""
    known, tests = task.fields, task.tests
    if known.prompt_chars != len(task.instruction):
        raise Invalid(
            f"metadata.cursorbench.prompt_chars is {known.prompt_chars}, "
            f"instruction.md has {len(task.instruction)}"
        )
    if not task.instruction:
        raise Invalid("instruction.md says nothing")
    for path in (*tests.files, *tests.removed):
        settings.inside(path, "tests/tests.json: files")
    for path in tests.files:
        if not (task.test_files / path).is_file():
            raise Invalid(f"tests/files/{path} is not there, which tests/tests.json names")
    if tests.verifier == "junit":
        _check_ids(tests)
        for needed in (task.solution, task.bundle):
            if not needed.is_file():
                raise Invalid(f"{needed.relative_to(task.folder)} is not there")
    elif not (task.folder / "tests" / "test.sh").is_file():
        raise Invalid("tests/test.sh is not there")
    if task.environment.kind == "python" and not task.lock.is_file():
        raise Invalid(f"{task.lock.relative_to(task.folder)} is not there")
    for place in walk(task.folder):
        if place.is_relative_to(task.overlay):
            settings.inside(str(place.relative_to(task.overlay)), "environment/overlay")


def _check_ids(tests: ExpectedTests) -> None:
    place = "tests/tests.json"
    if not tests.fail_to_pass:
        raise Invalid(f"{place}: fail_to_pass is empty: nothing would tell")
    if twice := set(tests.fail_to_pass) & set(tests.pass_to_pass):
        raise Invalid(f"{place}: {min(twice)!r} is in fail_to_pass and in pass_to_pass")
    if not any("{report}" in word for word in tests.command):
        raise Invalid(f"{place}: command has no {{report}}, so no report would be written")


def walk(folder: Path) -> Iterator[Path]:
    """Every file below a folder, in the order of its path; links are followed only inside.

    Raises:
        Invalid: a link that leads out of the folder, or what is neither file nor folder.
    """
    root = folder.resolve()
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(root):
            raise Invalid(f"{path.relative_to(folder)} is a link that leads out of the task")
        if path.is_file():
            yield path
        elif not path.is_dir():
            raise Invalid(f"{path.relative_to(folder)} is neither file nor folder")


def write(task: Task, contents: Contents) -> Task:
    """Write a task to `task.folder`, whole or not at all, and read it back.

    `tests.files` and `prompt_chars` are set from what is written. Layers of white space round the
    instruction are dropped.

    Raises:
        UsageError: (exit 2) the folder is there already, or the task is none that could be read again.
    """
    if task.folder.exists():
        raise UsageError(f"{task.folder} is there already", hint="choose another folder, or remove it")
    instruction = task.instruction.strip()
    task = replace(
        task,
        instruction=instruction,
        fields=replace(task.fields, prompt_chars=len(instruction)),
        tests=replace(task.tests, files=tuple(sorted(contents.test_files))),
    )
    task.folder.parent.mkdir(parents=True, exist_ok=True)
    made = task.folder.parent / f".{task.folder.name}.{uuid.uuid4().hex[:8]}.tmp"
    try:
        _write(replace(task, folder=made), contents)
        read(made)
        made.rename(task.folder)
    except (IntegrityError, Invalid, UnicodeEncodeError) as error:
        said = str(error).replace(f"{made}", str(task.folder))
        raise UsageError(f"the task {task.name} cannot be written: {said}", hint=HINT) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(made)
    return read(task.folder)


def _write(task: Task, contents: Contents) -> None:
    folder = task.folder
    (folder / "environment").mkdir(parents=True)
    put(folder / "task.toml", settings.dump(task))
    put(folder / "instruction.md", container.with_canary(task.instruction, task.fields.canary))
    put(folder / "tests" / "tests.json", json.dumps(asdict(task.tests), indent=1, ensure_ascii=False) + "\n")
    put(
        folder / "provenance.json", json.dumps(dict(contents.provenance), indent=1, ensure_ascii=False) + "\n"
    )
    put(task.solution, contents.solution)
    if contents.bundle is not None:
        shutil.copyfile(contents.bundle, task.bundle)
        if bundle.beside(contents.bundle).exists():
            shutil.copyfile(bundle.beside(contents.bundle), bundle.beside(task.bundle))
    if contents.lock:
        put(task.lock, contents.lock)
    for below, files in (
        (task.test_files, contents.test_files),
        (task.overlay, contents.overlay),
        (task.logs, contents.logs),
    ):
        for path, content in files.items():
            put(below / settings.inside(path, str(below.relative_to(folder))), content)
    for path, script in container.files(task).items():
        put(folder / path, script)


def within(tree: Path, name: str) -> Path:
    """Where a file of a checked-out tree is written or removed; a link in its place is taken away.

    Raises:
        IntegrityError: (exit 12) a folder on the way is a link, so it would be elsewhere on this machine.
    """
    path = tree / name
    if path.parent.resolve() != tree.resolve().joinpath(*Path(name).parts[:-1]):
        raise IntegrityError(f"{name} lies behind a link of the repository", hint=HINT)
    if path.is_symlink():
        path.unlink()
    return path


def put(path: Path, content: str | bytes) -> None:
    """Write a file and make its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    if path.suffix == ".sh":
        path.chmod(0o755)
