"""Tasks of earlier builds that a build of today would not make: they go, or the suite measures them too.

A commit that was reverted since, one that no session is traced to where only traced ones are wanted, one
whose task has another name now. What is only beyond `--limit` or `--since`, or of another history, stays.
"""

from __future__ import annotations

import shutil

from cursorbench.builder.fields import task_name
from cursorbench.builder.scanned import Scanned
from cursorbench.builder.state import State, Verdict
from cursorbench.tasks.suite import Suite


def clear(suite: Suite, state: State, found: Scanned, repository: str) -> tuple[str, ...]:
    """Remove such tasks and forget their verdicts.

    Args:
        repository: what tasks call it now.

    Returns:
        Their names, sorted.
    """
    names = []
    for verdict in state.kept():
        if _outdated(verdict, found, repository):
            remove(suite, state, verdict.task)
            state.forget(verdict.commit)
            names.append(verdict.task)
    return tuple(sorted(names))


def remove(suite: Suite, state: State, name: str) -> None:
    """Remove a task's folder, if there is one: out of the suite in one step, a build may be killed."""
    if name not in {path.name for path in (suite.path / "tasks").glob("*")}:  # it is read off a file
        return
    aside = state.drafts / f"{name}.outdated"
    suite.folder(name).rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def _outdated(verdict: Verdict, found: Scanned, repository: str) -> bool:
    if verdict.commit not in found.branch:
        return False
    if verdict.commit in found.rejected or verdict.task != task_name(repository, verdict.commit):
        return True
    # logs are not kept for ever: what a person said is no worse when its session is gone
    asked = verdict.facts.get("prompt", {}).get("source") == "session"
    return verdict.commit in found.untraced and not asked
