"""A candidate as a task that is not validated yet: prompt, repository, requirements, patches, test files.

`prepare` reads the repository and rejects what needs no run; `Draft.task` is the task of given test ids. Not
for: running (`validate.py`), which commits (`candidates.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from cursorbench.builder import leak as leaks
from cursorbench.builder.candidates import Candidate
from cursorbench.builder.fields import facts, fields, task_name
from cursorbench.builder.instruction import Instruction, Issues, of_commit
from cursorbench.builder.members import about
from cursorbench.builder.overlooked import holds
from cursorbench.builder.patch import File, diff
from cursorbench.builder.paths import targets_of
from cursorbench.builder.project import Project, has_pytest, project_at
from cursorbench.builder.requests import Request
from cursorbench.builder.runner import lock_of
from cursorbench.builder.settings import Settings, filled
from cursorbench.builder.unfit import Unfit
from cursorbench.graders import infrastructure
from cursorbench.graders import patch as patches
from cursorbench.graders.infrastructure import TEST_FILE, tests_folder
from cursorbench.history.repository import Repository
from cursorbench.redaction import redact, visible
from cursorbench.tasks.folder import Contents
from cursorbench.tasks.task import CursorBenchFields, EnvironmentSpec, ExpectedTests, Task

MOST_PROMPT = 20_000  # characters


@dataclass(frozen=True)
class Draft:
    """A candidate with all that git and its prompt tell.

    Attributes:
        solution: the patch of all but tests; without: by file, the patch of all others.
        added: lines that the solution adds, by source file.
        forbidden: objects that its repository must not hold.
        python: version of the interpreter.
        lock: the locked requirements, "" for the host's environment; locks: where resolved ones are kept.
        command: the test command, its tests filled in.
        facts: for provenance.json.
    """

    candidate: Candidate
    name: str
    instruction: Instruction
    request: Request | None
    project: Project
    solution: str
    added: Mapping[str, list[str]]
    without: Mapping[str, str]
    test_files: Mapping[str, bytes]
    removed: tuple[str, ...]
    overlay: Mapping[str, bytes]
    forbidden: frozenset[str]
    python: str
    lock: str
    locks: Path
    command: tuple[str, ...]
    fields: CursorBenchFields
    facts: dict[str, Any] = field(default_factory=dict)

    def task(
        self, folder: Path, tests: ExpectedTests, tree: str, settings: Settings, slowest_s: float
    ) -> Task:
        """The task in a folder, to be written."""
        return Task(
            folder=folder,
            fields=self.fields,
            instruction=self.instruction.text,
            tests=tests,
            timeout_s=3600.0,
            environment=EnvironmentSpec(
                kind=settings.environment,
                python=self.python if settings.environment == "python" else "",
                import_paths=self.project.import_paths,
                tree=tree,
            ),
            verifier_timeout_s=min(settings.timeout_s, max(60.0, round(10 * slowest_s))),
        )

    def contents(self, bundle: Path) -> Contents:
        """What else the folder holds."""
        return Contents(
            bundle=bundle,
            solution=self.solution.encode("utf-8", "surrogateescape"),
            test_files=self.test_files,
            lock=self.lock,
            overlay=self.overlay,
            provenance=self.facts,
        )


def prepare(
    repository: Repository,
    candidate: Candidate,
    request: Request | None,
    settings: Settings,
    issues: Issues,
    canary: str,
    locked: Path,
) -> Draft:
    """Make the draft of a candidate.

    Args:
        request: what a person said before it; None takes issue or message.
        locked: folder where resolved locks are kept.

    Raises:
        Unfit: it makes no task.
        DependencyDownError: (exit 13) its requirements cannot be resolved now.
    """
    base, commit = candidate.base, candidate.commit
    changed = [file.path for file in candidate.tests if file.new]
    candidate = _beyond_settings(repository, candidate)
    instruction = _instruction(candidate, request, issues)
    added = _added(repository, candidate)
    found = _without_solution(added, instruction)
    project = about(project_at(repository, base), _names((*candidate.solution, *candidate.tests)))
    name, python = task_name(settings.repository_name(), commit), settings.python_at(candidate.at)
    return Draft(
        candidate=candidate,
        name=name,
        instruction=instruction,
        request=request,
        project=project,
        solution=diff(repository, base, commit, _names(candidate.solution)),
        added=added,
        without=_each_left_out(repository, candidate),
        test_files={file.path: _bytes(repository, file.new) for file in candidate.tests if file.new},
        removed=_removed(candidate),
        overlay=overlay(repository, base, project),
        forbidden=_forbidden(repository, candidate),
        python=python,
        lock=lock_of(settings, python, candidate.at, project, locked),
        locks=locked,
        command=_command(repository, candidate, project, changed, settings),
        fields=fields(candidate, instruction, request, name, settings, canary),
        facts=facts(candidate, request, found, settings),
    )


def _command(
    repository: Repository, candidate: Candidate, project: Project, changed: list[str], settings: Settings
) -> tuple[str, ...]:
    """What runs the changed test files. Raises Unfit where nobody says what does."""
    otherwise = _called_otherwise(repository, candidate)
    if not (settings.test_command or otherwise or has_pytest(repository, candidate.commit, project)):
        raise Unfit("no_test_command", "no sign of pytest; name a --test-command")
    return filled(settings.command, targets_of(changed, otherwise) if settings.scope == "changed" else ())


def _called_otherwise(repository: Repository, candidate: Candidate) -> tuple[str, ...]:
    """Files with tests in them that lie among tests and are not called like one (`tests/smoke.py`)."""
    python = [file for file in candidate.tests if file.new and file.path.endswith(".py")]
    return tuple(
        file.path
        for file in python
        if tests_folder(file.path)
        and not TEST_FILE.fullmatch(PurePosixPath(file.path).name)
        and holds(repository.text(file.new))
    )


def _removed(candidate: Candidate) -> tuple[str, ...]:
    """Test files that are not to be there any more, under the names that they had."""
    return tuple(
        path for file in candidate.tests for path in file.paths if not (file.new and path == file.path)
    )


def _added(repository: Repository, candidate: Candidate) -> dict[str, list[str]]:
    """The lines that a candidate adds to source, by file."""
    source = diff(repository, candidate.base, candidate.commit, _names(candidate.sources))
    return {one.path: one.added for one in patches.files(source)}


def _without_solution(added: Mapping[str, list[str]], instruction: Instruction) -> leaks.Leak:
    """What of the solution the instruction tells. Raises Unfit when that is too much."""
    found = leaks.leak(instruction.text, added)
    if found.kind:
        raise Unfit(
            "prompt_has_solution", f"{found.kind}: {found.lines} of {found.of} lines, run of {found.run}"
        )
    return found


def _each_left_out(repository: Repository, candidate: Candidate) -> dict[str, str]:
    """The solution without one of its files, by that file; nothing for a solution of one file."""
    files = candidate.solution
    if len(files) == 1:
        return {}
    return {
        file.path: diff(
            repository, candidate.base, candidate.commit, _names(one for one in files if one != file)
        )
        for file in files
    }


def _beyond_settings(repository: Repository, candidate: Candidate) -> Candidate:
    """`with_settings`. Raises Unfit where nothing is left; a row's patch may be of templates alone."""
    found = with_settings(repository, candidate)
    if not found.solution or (candidate.sources and not found.sources):
        raise Unfit("only_settings", "its source says how tests run, and nothing else")
    return found


def with_settings(repository: Repository, candidate: Candidate) -> Candidate:
    """The candidate with what says how tests run among its tests, no model being let near that.

    A kept change that moves pytest's settings in pyproject.toml comes with the settings in place.
    """

    def deciding(file: File) -> bool:
        name = PurePosixPath(file.path).name
        if name not in infrastructure.SHARED:
            return infrastructure.decides(file.path)
        old, new = (repository.content(blob) if blob else None for blob in (file.old, file.new))
        return not infrastructure.same_settings(name, old, new)

    moved = tuple(file for file in candidate.solution if deciding(file))
    kept = tuple(file for file in candidate.solution if file not in moved)
    return replace(candidate, solution=kept, tests=(*candidate.tests, *moved))


def overlay(repository: Repository, base: str, project: Project) -> dict[str, bytes]:
    """What a build would put beside the code and git does not have: the version file, the metadata.

    With the metadata on the import path `importlib.metadata` finds version and entry points of the project,
    as after an editable install, of the working tree and of no release.
    """
    files = _built(project)
    for member in project.members.values():
        files |= {f"{member.folder}/{path}": text for path, text in _built(member).items() if member.imported}
    root = repository.root(base)
    return {path: content for path, content in files.items() if not repository.find(root, path)}


def _built(project: Project) -> dict[str, bytes]:
    """Of one distribution, by path in its folder."""
    files: dict[str, bytes] = {}
    version = project.version or "0.0.0"
    if project.version_file:
        numbers = ", ".join(part if part.isdigit() else repr(part) for part in version.split("."))
        text = f'__version__ = version = "{version}"\n__version_tuple__ = version_tuple = ({numbers},)\n'
        files[project.version_file] = text.encode()
    if project.name:
        prefix = "" if project.import_paths[0] == "." else f"{project.import_paths[0]}/"
        folder = f"{prefix}{project.name.replace('-', '_')}.egg-info"
        files[f"{folder}/PKG-INFO"] = (
            f"Metadata-Version: 2.1\nName: {project.name}\nVersion: {version}\n".encode()
        )
        if entries := "\n".join(f"[{group}]\n" + "\n".join(rows) for group, rows in project.scripts.items()):
            files[f"{folder}/entry_points.txt"] = f"{entries}\n".encode()
    return files


def _instruction(candidate: Candidate, request: Request | None, issues: Issues) -> Instruction:
    said = Instruction(request.text, "user") if request else of_commit(candidate.message, issues)
    if said is None:
        raise Unfit("no_instruction", "neither issue nor message says in three words what is wanted")
    text = redact(visible(said.text)).text.strip()
    if len(text) > MOST_PROMPT:
        raise Unfit("prompt_too_long", f"{len(text)} characters")
    return Instruction(text, said.source)


def _names(files: Any) -> list[str]:
    return [path for file in files for path in file.paths]


def _bytes(repository: Repository, blob: str) -> bytes:
    content = repository.content(blob)
    if content is None:
        raise Unfit("object_missing", f"{blob} is not in the repository: a partial clone?")
    return content


def _forbidden(repository: Repository, candidate: Candidate) -> frozenset[str]:
    """The kept commit, its tree and its new blobs, without what the base has under another name."""
    every = (*candidate.solution, *candidate.tests)
    stood = repository.git("ls-tree", "-r", "-z", "--format=%(objectname)", candidate.base).split("\0")
    new = {candidate.commit, repository.root(candidate.commit), *(file.new for file in every if file.new)}
    return frozenset(new - set(stood))
