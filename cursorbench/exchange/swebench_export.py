"""Tasks as SWE-bench rows, in JSON lines that its tools read.

A row has no environment, no intent and no cluster, so a suite is not got back from its rows whole. Not here:
the row's form (`rows.py`).
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from cursorbench.errors import UsageError
from cursorbench.exchange.refused import Exchanged, Refused
from cursorbench.exchange.rows import Row, dump
from cursorbench.files import write_whole
from cursorbench.tasks import bundle, folder
from cursorbench.tasks.suite import Suite
from cursorbench.tasks.task import Task


def export(suite: Suite, out: Path) -> Exchanged:
    """Write the rows of a suite to `out`, whole or not at all.

    Tasks that came from Harbor have no commit and no test ids; they are refused and counted.

    Raises:
        UsageError: (exit 2) no task can be a row.
    """
    rows: list[Row] = []
    refused: list[Refused] = []
    for task in suite.tasks:
        if task.tests.verifier == "reward":
            refused.append(Refused(task.name, "no_test_ids", "a Harbor task tells by its own script"))
        else:
            rows.append(row_of(task))
    if not rows:
        raise UsageError(f"no task of {suite.path} can be a SWE-bench row", hint="all came from Harbor")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, "".join(json.dumps(dump(row), ensure_ascii=False) + "\n" for row in rows).encode())
    return Exchanged(out, tuple(row.instance_id for row in rows), tuple(refused))


def row_of(task: Task) -> Row:
    """The row of a task with test ids."""
    kept: dict[str, Any] = folder.provenance(task).get("swe_bench") or {}
    fields = task.fields
    return Row(
        repo=fields.repo,
        instance_id=fields.instance_id,
        base_commit=fields.base_commit,
        patch=patch_of_solution(task),
        test_patch=patch_of_tests(task),
        problem_statement=task.instruction,
        hints_text=str(kept.get("hints_text", "")),
        created_at=fields.created_at,
        version=str(kept.get("version", "")),
        fail_to_pass=task.tests.fail_to_pass,
        pass_to_pass=task.tests.pass_to_pass,
        environment_setup_commit=str(kept.get("environment_setup_commit", "")) or fields.base_commit,
    )


def patch_of_solution(task: Task) -> str:
    """The kept change as a text; where it is none, its files that are not UTF-8 are binary ones in it."""
    try:
        return task.solution.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        pass
    with tempfile.TemporaryDirectory(prefix="rtrl-export-") as scratch:
        tree = Path(scratch, "tree")
        bundle.checkout(task.bundle, tree)
        how = ("apply", "--index", "--binary", "--whitespace=nowarn")
        bundle.git(tree, *how, str(task.solution.absolute()))
        return _staged(tree)


def patch_of_tests(task: Task) -> str:
    """What putting the tests in place changes on the base, as a patch."""
    with tempfile.TemporaryDirectory(prefix="rtrl-export-") as scratch:
        tree = Path(scratch, "tree")
        bundle.checkout(task.bundle, tree)
        for path in task.tests.removed:
            folder.within(tree, path).unlink(missing_ok=True)
        for path in task.tests.files:
            folder.put(folder.within(tree, path), (task.test_files / path).read_bytes())
        bundle.git(tree, "add", "-A", "-f")
        return _staged(tree)


def _staged(tree: Path) -> str:
    """What is staged, as a patch that a row can hold: a row is text, so other files are in it as binary."""
    how = ("--literal-pathspecs", "diff", "--cached", "--binary", "--full-index", "--no-renames")
    if _is_text(whole := bundle.git(tree, *how)):
        return whole
    attributes = tree / ".git" / "info" / "attributes"
    attributes.parent.mkdir(exist_ok=True)
    names = bundle.git(tree, "diff", "--cached", "--name-only", "--no-renames", "-z").split("\0")
    parts = []
    for name in filter(None, names):
        attributes.write_text("", encoding="ascii")
        if not _is_text(part := bundle.git(tree, *how, "--", name)):
            attributes.write_text("* -diff\n", encoding="ascii")
            part = bundle.git(tree, *how, "--", name)
        parts.append(part)
    return "".join(parts)


def _is_text(patch: str) -> bool:
    return not any("\udc80" <= one <= "\udcff" for one in patch)
