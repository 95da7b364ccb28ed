"""A task of a suite: the folder layout of Harbor (task.toml, schema 1.4) and what we add to it.

    TASK/task.toml             settings, and our fields under [metadata.cursorbench]
    TASK/instruction.md        what the user said
    TASK/environment/          how the working copy is made (see `environment.py`)
    TASK/tests/                tests.json, files/ (put in place before grading), test.sh
    TASK/solution/             solution.patch (the kept change), solve.sh
    TASK/provenance.json       where it comes from, and how it was validated

Not here: making tasks (`cursorbench/builder/`), trying them (`evals/trials/`), grading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Intent = Literal["feature", "refactor", "debug", "investigate"]
Split = Literal["dev", "heldout"]
PromptSource = Literal["user", "issue", "commit", "author"]
Kind = Literal["python", "host", "docker"]
Verifier = Literal["junit", "reward"]


@dataclass(frozen=True)
class CursorBenchFields:
    """The fields under `[metadata.cursorbench]`.

    Attributes:
        instance_id, repo, base_commit, created_at: as in SWE-bench; created_at is ISO 8601 with zone. A
            Harbor task that came without a repository has an empty base_commit.
        cluster: what attempts cluster by, a repository or a feature of one.
        canary: a string found nowhere else; a model that can say it was trained on the suite.
        files_changed, lines_changed: of the kept change, tests apart (added plus deleted lines). None where
            nobody knows the change: only of Harbor tasks whose solution is a program.
        prompt_chars: characters of the instruction.
        prompt_source: whose words the instruction is: a user's in a session, an issue's, a commit's, or its
            author's, who made the task by hand.
        reference_turns, reference_tokens: what the session needed; None without a session.
        ambiguous: the instruction cannot be followed without an answer from the user: to ask is right.
    """

    instance_id: str
    repo: str
    base_commit: str
    created_at: str
    cluster: str
    split: Split
    canary: str
    prompt_chars: int
    prompt_source: PromptSource
    intent: Intent
    files_changed: int | None = None
    lines_changed: int | None = None
    reference_turns: int | None = None
    reference_tokens: int | None = None
    ambiguous: bool = False


@dataclass(frozen=True)
class ExpectedTests:
    """Which tests tell: exact ids, found stable over all validation runs. `tests/tests.json`.

    Attributes:
        command: the test command, run in the working tree; `{report}` is the junit file it writes.
        fail_to_pass: fail on the base, pass with the solution.
        pass_to_pass: pass on both.
        files: test files put in place before grading, relative to the working tree; their content is
            below `tests/files/`.
        removed: test files that the kept change deleted; deleted before grading.
        verifier: `junit`: the command's report against the ids; `reward`: a Harbor task's own
            `tests/test.sh` writes `/logs/verifier/reward.txt`, and there are no ids.
    """

    command: tuple[str, ...]
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    files: tuple[str, ...]
    removed: tuple[str, ...] = ()
    verifier: Verifier = "junit"


@dataclass(frozen=True)
class EnvironmentSpec:
    """How the working copy and what it needs are made; `environment.open` does it.

    Attributes:
        kind: `python`: a virtual environment from `environment/requirements.lock`; `host`: the
            interpreter that runs rtrl, with what is installed there (tests and demonstrations);
            `docker`: an image, which needs a container engine.
        python: the interpreter's version as `3.11`; empty for other kinds.
        import_paths: folders of the working tree that are on Python's import path, such as `src`.
        variables: further environment variables of all commands; `[environment.env]` of task.toml.
        image: the image of a docker task that is not built from `environment/Dockerfile`.
        workdir: where the working tree stands inside.
        tree: git's id of the base commit's tree; what the repository is checked against.
        cpus, memory_mb, storage_mb, build_timeout_s: as Harbor's `[environment]`; None: no limit named.
    """

    kind: Kind = "python"
    python: str = ""
    import_paths: tuple[str, ...] = (".",)
    variables: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    workdir: str = "/work"
    tree: str = ""
    cpus: float | None = 1
    memory_mb: int | None = 2048
    storage_mb: int | None = 1024
    build_timeout_s: float = 600.0


@dataclass(frozen=True)
class Task:
    """One task, read from its folder.

    Attributes:
        timeout_s: seconds that an agent has, `[agent].timeout_sec`.
        verifier_timeout_s: seconds that the test command has, `[verifier].timeout_sec`.
    """

    folder: Path
    fields: CursorBenchFields
    instruction: str
    tests: ExpectedTests
    timeout_s: float
    environment: EnvironmentSpec = field(default_factory=EnvironmentSpec)
    verifier_timeout_s: float = 600.0

    @property
    def name(self) -> str:
        """Its instance id, which is the folder's name in a suite."""
        return self.fields.instance_id

    @property
    def solution(self) -> Path:
        """The kept change, tests apart: a patch for `git apply`."""
        return self.folder / "solution" / "solution.patch"

    @property
    def test_files(self) -> Path:
        """The folder below which `tests.files` lie."""
        return self.folder / "tests" / "files"

    @property
    def bundle(self) -> Path:
        """The repository up to the base commit; a Harbor task may have none."""
        return self.folder / "environment" / "repo.bundle"

    @property
    def lock(self) -> Path:
        """The locked requirements, with hashes, of a `python` environment."""
        return self.folder / "environment" / "requirements.lock"

    @property
    def overlay(self) -> Path:
        """Files laid over the checked-out tree that git does not see, such as a generated `_version.py`."""
        return self.folder / "environment" / "overlay"

    @property
    def logs(self) -> Path:
        """Noise that was there, such as logs of failing builds; agents see it at `/context`."""
        return self.folder / "environment" / "logs"
