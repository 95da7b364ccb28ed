"""A task of a suite: the folder layout of Harbor (task.toml, schema 1.4) and what we add to it.

    TASK/task.toml             settings, and our fields under [metadata.cursorbench]
    TASK/instruction.md        what the user said
    TASK/environment/          how the working copy is made (see `environment.py`)
    TASK/tests/                test files that are put in place before grading, and `tests.json`
    TASK/solution/             solution.patch (the kept change), solve.sh
    TASK/provenance.json       where it comes from, and how it was validated

Not here: making tasks (`cursorbench/builder/`), trying them (`evals/trials/`), grading.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Intent = Literal["feature", "refactor", "debug", "investigate"]
Split = Literal["dev", "heldout"]
PromptSource = Literal["user", "issue", "commit"]


@dataclass(frozen=True)
class CursorBenchFields:
    """The fields under `[metadata.cursorbench]`.

    Attributes:
        instance_id, repo, base_commit, created_at: as in SWE-bench; created_at is ISO 8601 with zone.
        cluster: what attempts cluster by, a repository or a feature of one.
        canary: a string found nowhere else; a model that can say it was trained on the suite.
        files_changed, lines_changed: of the kept change, tests apart (added plus deleted lines).
        prompt_chars: characters of the instruction.
        prompt_source: whose words the instruction is.
        reference_turns, reference_tokens: what the session needed; None without a session.
    """

    instance_id: str
    repo: str
    base_commit: str
    created_at: str
    cluster: str
    split: Split
    canary: str
    files_changed: int
    lines_changed: int
    prompt_chars: int
    prompt_source: PromptSource
    intent: Intent
    reference_turns: int | None = None
    reference_tokens: int | None = None


@dataclass(frozen=True)
class ExpectedTests:
    """Which tests tell: exact ids, found stable over all validation runs.

    Attributes:
        command: the test command, run in the working tree; `{report}` is the junit file it writes.
        fail_to_pass: fail on the base, pass with the solution.
        pass_to_pass: pass on both.
        files: test files put in place before grading, relative to the working tree.
    """

    command: tuple[str, ...]
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    files: tuple[str, ...]


@dataclass(frozen=True)
class Task:
    """One task, read from its folder."""

    folder: Path
    fields: CursorBenchFields
    instruction: str
    tests: ExpectedTests
    timeout_s: float
