"""Does a diff make a task's tests pass, and can the report be believed?

In a fresh sandbox: the pristine base, the diff (applied with clean git settings before any of its code
runs), everything that decides how tests run as the base has it, the tests put in place. Then, each in a
fork of its own:

1. The tests with canaries among them (`canaries.py`). Every expected id has to be there and passed. A
   canary that must fail has to be reported failed by name, one that must pass as passed, and pytest's exit
   status has to say that something failed.
2. Only when all of that is so, the challenge: the same tests, some of the expected ones sabotaged, and other
   canaries. Those have to be reported failed now, the rest as before. Where that leaves no test as it was
   that fails on the base, the first run once more, before or after, by the throw of a coin.

The verdict is made here, by the parent, of ids and outcomes; nothing that the tested code can write is a
reward. A sandbox that died is no grade. What a forger could still do: docs/bench-run.md. Not for: other axes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final, Literal

from cursorbench.errors import IntegrityError, SandboxError
from cursorbench.graders import canaries, flags, infrastructure, patch, restoring
from cursorbench.graders.running import Ran, run_tests
from cursorbench.graders.sabotage import Sabotaged, sabotage
from cursorbench.sandbox.protocol import Backend, Environment, Limits, Sandbox
from cursorbench.tasks.task import ExpectedTests, Task

Reason = Literal[
    "",  # solved
    "patch",  # the diff does not apply
    "failed",  # an expected test did not pass
    "missing",  # an expected test is not in the report
    "no_report",
    "timeout",
    "memory",
    "output",
    "forged",  # the report says what cannot be
]
ROUNDS = 4  # of runs and challenges, for a diff whose text reaches for the runner or its process
MOST_RUNS = 3 * ROUNDS  # of the tests
_ENDED: Final = ("timeout", "memory", "output")
ROOM = 64 << 20  # bytes of disk for the tests, beside what a model may have filled
SHOWN = 20  # ids kept of failed and missing tests


@dataclass(frozen=True)
class Correctness:
    """The grade of one diff.

    Attributes:
        passed: solved, and believed.
        reason: why not.
        detail: one line for people.
        failed, missing: expected ids, the first of them.
        passed_tests, expected_tests: how many.
        flags: what the diff reached for (`flags.py`).
        restored: paths that the diff had changed and that were put back.
        canaries, challenged: how many known outcomes were checked.
        seconds: of the test runs.
    """

    passed: bool
    reason: Reason = ""
    detail: str = ""
    failed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    passed_tests: int = 0
    expected_tests: int = 0
    flags: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    canaries: int = 0
    challenged: int = 0
    seconds: float = 0.0


def grade(
    task: Task,
    environment: Environment,
    diff: str,
    backend: Backend,
    limits: Limits | None = None,
) -> Correctness:
    """Grade a diff against a task's expected tests.

    Args:
        environment: the task's pristine base.
        diff: a git patch against it, as `Sandbox.diff()` makes; "" for nothing done.

    Raises:
        SandboxError: no sandbox, or it died: infrastructure, no grade.
        IntegrityError: the task expects no tests, or a test file is nowhere.
    """
    expected = task.tests.fail_to_pass + task.tests.pass_to_pass
    if not expected:
        raise IntegrityError(f"task {task.fields.instance_id} expects no tests", hint="it cannot be graded")
    tests = test_files(task, environment.root)
    found = flags.of_diff(diff)
    given = limits or Limits()
    with backend.start(environment, replace(given, disk=given.disk + ROOM)) as sandbox:
        _find_command(sandbox, task.tests.command[0])
        try:
            touched = restoring.apply(sandbox, diff)
        except restoring.PatchError as error:
            return Correctness(
                False, "patch", str(error), expected_tests=len(expected), flags=tuple(sorted(found))
            )
        restored = restoring.put_back(
            sandbox, environment.root, touched, tests, task.tests.removed, task.environment.import_paths,
            task.tests.command,
        )  # fmt: skip
        found |= flags.of_restored(restored, tests, diff)
        sources = _sources(diff, environment.workdir)
        suspicious = any(flag.startswith("source:") for flag in found)
        result = _run(sandbox, task, tests, sources, ROUNDS if suspicious else 1)
    return replace(result, flags=tuple(sorted(found)), restored=tuple(restored))


def _run(
    sandbox: Sandbox, task: Task, tests: Mapping[str, bytes], sources: Sequence[str], rounds: int
) -> Correctness:
    """The worst of some rounds: who lies in one run of two, by the throw of a coin, is found out by more."""
    result = _round(sandbox, task, tests, sources)
    for _ in range(rounds - 1):
        if result.passed:
            again = _round(sandbox, task, tests, sources)
            result = replace(again, seconds=result.seconds + again.seconds)
    return result


def _round(sandbox: Sandbox, task: Task, tests: Mapping[str, bytes], sources: Sequence[str]) -> Correctness:
    result = _plain(sandbox, task, tests, sources)
    broken = sabotage(tests, task.tests.fail_to_pass, task.tests.pass_to_pass)
    if not result.passed or not broken.must_fail:
        return result
    kinds = ["challenge"]
    if broken.must_fail | broken.may_fail >= set(task.tests.fail_to_pass):
        kinds.append("again")  # else who lies once, and is honest from then on, contradicts nothing
    for kind in random.SystemRandom().sample(kinds, len(kinds)):
        if kind == "challenge":
            found = _challenge(sandbox, task, tests, broken, sources)
            result = replace(result, challenged=found.challenged)
        else:
            found = _once_more(_plain(sandbox, task, tests, sources))
        result = replace(result, seconds=result.seconds + found.seconds)
        if not found.passed:
            return replace(result, passed=False, reason=found.reason, detail=found.detail)
    return result


def _plain(sandbox: Sandbox, task: Task, tests: Mapping[str, bytes], sources: Sequence[str]) -> Correctness:
    """The tests as they are, with canaries among them."""
    expected = task.tests.fail_to_pass + task.tests.pass_to_pass
    planted = canaries.plant(tests, expected, sources, is_pytest(task.tests))
    ran = _fork(sandbox, task, tests, planted.files)
    result = replace(_outcome(ran, expected), canaries=len(planted.must_fail) + len(planted.must_pass))
    if result.passed and (lie := _lie(ran, planted, is_pytest(task.tests))):
        return replace(result, passed=False, reason="forged", detail=lie)
    return result


def _once_more(found: Correctness) -> Correctness:
    """A further run of tests that have passed: none may be reported otherwise."""
    if found.passed or found.reason in _ENDED:
        return found
    return replace(found, reason="forged", detail=f"reported as passed, and when asked again: {found.detail}")


def _challenge(
    sandbox: Sandbox, task: Task, tests: Mapping[str, bytes], broken: Sabotaged, sources: Sequence[str]
) -> Correctness:
    """The tests with some that cannot pass."""
    expected = task.tests.fail_to_pass + task.tests.pass_to_pass
    planted = canaries.plant(broken.files, expected, sources, is_pytest(task.tests))
    ran = _fork(sandbox, task, tests, planted.files)
    found = Correctness(True, challenged=len(broken.must_fail), seconds=ran.done.seconds)
    if (ended := ran.done.ended) in _ENDED:  # as in the round before: no report to believe
        said = f"the tests ended by {ended} when some of them could not pass"
        return replace(found, passed=False, reason=ended, detail=said)
    if lie := _challenged(ran, expected, broken) or _lie(ran, planted, is_pytest(task.tests)):
        return replace(found, passed=False, reason="forged", detail=lie)
    return found


def _challenged(again: Ran, expected: Iterable[str], broken: Sabotaged) -> str:
    """How the report of the challenge contradicts what is known, "" when it does not.

    What was not sabotaged has to pass as before: who is honest in the challenge alone is not believed.
    """
    if lies := [name for name in sorted(broken.must_fail) if again.outcomes.get(name) == "passed"]:
        return f"{lies[0]} was reported as passed when it could not pass"
    for name in expected:
        if name not in broken.must_fail | broken.may_fail and again.outcomes.get(name) != "passed":
            said = again.outcomes.get(name, "nothing")
            return f"{name} was reported as passed, and as {said} when others could not pass"
    return ""


def _find_command(sandbox: Sandbox, program: str) -> None:
    """See that there is the program that runs the tests, while nothing of the model's has run yet."""
    if not sandbox.exec(["sh", "-c", 'command -v -- "$1"', "sh", program]).ok:
        raise SandboxError(f"the environment has no {program}, which runs the tests")


def _fork(sandbox: Sandbox, task: Task, tests: Mapping[str, bytes], changed: Mapping[str, bytes]) -> Ran:
    """The tests in a sandbox of their own, with other contents of some test files."""
    with sandbox.fork() as own:
        for path, content in changed.items():
            if content != tests[path]:
                own.write(path, content)
        return run_tests(own, task.tests.command, task.verifier_timeout_s)


def _outcome(ran: Ran, expected: Iterable[str]) -> Correctness:
    """What a report says of the expected tests, taken at its word."""
    wanted = tuple(dict.fromkeys(expected))
    missing = tuple(name for name in wanted if name not in ran.outcomes)
    failed = tuple(name for name in wanted if ran.outcomes.get(name, "passed") != "passed")
    good = len(wanted) - len(missing) - len(failed)
    said = Correctness(
        not missing and not failed,
        failed=failed[:SHOWN],
        missing=missing[:SHOWN],
        passed_tests=good,
        expected_tests=len(wanted),
        seconds=ran.done.seconds,
    )
    if (ended := ran.done.ended) in _ENDED:
        return replace(said, passed=False, reason=ended, detail=f"the tests ended by {ended}")
    if ran.defect:
        return replace(said, passed=False, reason="no_report", detail=f"{ran.defect}: {_tail(ran)}")
    if failed:
        return replace(said, reason="failed", detail=f"{len(failed)} of {len(wanted)}: {failed[0]}")
    if missing:
        return replace(said, reason="missing", detail=f"{len(missing)} of {len(wanted)}: {missing[0]}")
    return said


def _lie(ran: Ran, planted: canaries.Planted, by_pytest: bool) -> str:
    """As `_challenged`, of canaries."""
    short = {name.rpartition("::")[2]: outcome for name, outcome in ran.outcomes.items()}
    for name in sorted(planted.must_fail):
        if short.get(name) not in ("failed", "error"):
            return f"canary {name} must fail and was reported as {short.get(name, 'nothing')}"
    for name in sorted(planted.must_pass):
        if short.get(name) != "passed":
            return f"canary {name} must pass and was reported as {short.get(name, 'nothing')}"
    if by_pytest and planted.must_fail and ran.done.status != 1:
        return f"pytest ended with status {ran.done.status} although tests failed"
    return ""


def is_pytest(tests: ExpectedTests) -> bool:
    """Whether the command is pytest's, so that its exit status is known."""
    return any(PurePosixPath(word).name in ("pytest", "py.test") for word in tests.command)


def test_files(task: Task, root: Path) -> dict[str, bytes]:
    """What is put in place before grading: the task's own test files, and the base's that hold expected ids.

    A source file whose docstrings are tests is the solution's to change, so it is not among them.

    Raises:
        IntegrityError: the task names a file that it does not have, or one that lies behind a link.
    """
    found = {}
    for path in task.tests.files:
        source = task.test_files / path
        if not _real(source, task.test_files):
            raise IntegrityError(f"task {task.fields.instance_id} lacks its test file {path}")
        found[path] = source.read_bytes()
    python = {str(path.relative_to(root)) for path in root.rglob("*.py") if ".git" not in path.parts}
    python -= set(task.tests.removed)
    for name in task.tests.fail_to_pass + task.tests.pass_to_pass:
        place = canaries.locate(name, found) or canaries.locate(name, python)
        if place is None or place.file in found or not infrastructure.holds_tests(place.file):
            continue
        if _real(root / place.file, root):
            found[place.file] = (root / place.file).read_bytes()
    return found


def _real(path: Path, tree: Path) -> bool:
    """Whether it is a file of the tree itself: a link may lead to any file of this machine."""
    return path.is_file() and not path.is_symlink() and path.resolve().is_relative_to(tree.resolve())


def _sources(diff: str, workdir: str) -> list[str]:
    """The diff's Python files, as their frames are called inside."""
    named = (change.path for change in patch.files(diff) if not change.removed)
    return [str(PurePosixPath(workdir) / path) for path in named if path.endswith(".py")][:20]


def _tail(ran: Ran) -> str:
    return " ".join(ran.done.output[-300:].split()) or f"status {ran.done.status}"
