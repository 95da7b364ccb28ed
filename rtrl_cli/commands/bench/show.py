"""`rtrl bench show SUITE [TASK]`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cursorbench.errors import UsageError
from rtrl_cli import options
from rtrl_cli.output import envelope, message, pairs, show, table

if TYPE_CHECKING:
    from cursorbench.tasks.profile import Profile, Spread
    from cursorbench.tasks.task import Task

SuitePath = Annotated[
    Path,
    typer.Argument(
        metavar="SUITE",
        help="Folder of a suite, with its suite.toml.",
        show_default=False,
        parser=options.path,
    ),
]


def command(
    suite: SuitePath,
    task: Annotated[str | None, typer.Argument(metavar="TASK", help="One task of it.")] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="FILE", help="Draw the profile: .png, .svg, .pdf or .html.", parser=options.path
        ),
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Check a suite and print its profile beside the published ones; or one of its tasks.

    Every task is read whole. Exit 12: one is wrong, and file and field are named.
    """
    from cursorbench.tasks import bundle, profile
    from cursorbench.tasks.suite import Suite

    if task is not None and plot is not None:
        raise UsageError("--plot draws a suite's profile, and TASK is one task", hint="leave one away")
    found = Suite.open(suite)
    for each in found.tasks:
        if each.bundle.exists():
            bundle.assert_whole(each.bundle)
    if task is not None:
        one = found.task(task)
        show(as_json, envelope("bench show", "succeeded", metrics=_described(one)), lambda: _task_text(one))
        return
    seen = profile.of_suite(found)
    if plot is not None:
        from cursorbench.tasks.plot import draw

        draw(found, seen, plot)
    show(as_json, envelope("bench show", "succeeded", metrics=seen.document()), lambda: _text(seen))
    if plot is not None:
        message(f"drawn to {plot}")


def _text(seen: Profile) -> str:
    from cursorbench.tasks.profile import PUBLISHED

    head: dict[str, object] = {
        "suite": seen.name,
        "digest": seen.digest,
        "tasks": f"{seen.tasks} ({_counts(seen.splits)})",
        "repositories": _counts(seen.repositories),
        "clusters": f"{len(seen.clusters)}: {_counts(seen.clusters)}"
        + ("; by one alone the gate decides nothing" if len(seen.clusters) == 1 else ""),
        "intents": _counts(seen.intents),
        "prompts by": _counts(seen.prompt_sources),
        "environments": _counts(seen.environments),
        "dates": f"{seen.first} to {seen.last}",
        "files changed": f"{_spread(seen.files)}; several in {seen.several_files:.0%}",
        "telling tests": _spread(seen.tests),
        "turns": _spread(seen.turns),
        "tokens": _spread(seen.tokens),
    }
    rows = [(seen.name, _spread(seen.lines), _spread(seen.characters))]
    rows += [(one.name, _range(one.lines), _range(one.characters)) for one in PUBLISHED]
    beside = table(("MEDIANS", "LINES CHANGED", "CHARACTERS OF THE PROMPT"), rows)
    return f"{pairs(head)}\n\n{beside}"


def _counts(found: Mapping[str, int], most: int = 5) -> str:
    shown = [f"{name} {count}" for name, count in list(found.items())[:most]]
    return ", ".join(shown) + (f", {len(found) - most} more" if len(found) > most else "")


def _spread(found: Spread) -> str:
    if found.median is None:
        return "not known"
    quartiles = "" if found.low is None else f" ({found.low:,.0f} to {found.high:,.0f})"
    return f"{found.median:,.0f}{quartiles}"


def _range(found: tuple[int, int]) -> str:
    low, high = found
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _described(one: Task) -> dict[str, Any]:
    from dataclasses import asdict

    from cursorbench.tasks.folder import provenance
    from cursorbench.tasks.suite import digest

    return {
        "fields": asdict(one.fields),
        "instruction": one.instruction,
        "tests": asdict(one.tests),
        "environment": asdict(one.environment),
        "timeout_s": one.timeout_s,
        "verifier_timeout_s": one.verifier_timeout_s,
        "digest": digest(one),
        "provenance": provenance(one),
    }


def _task_text(one: Task) -> str:
    fields, tests, spec = one.fields, one.tests, one.environment
    lines: dict[str, object] = {
        "task": one.name,
        "repository": f"{fields.repo} at {fields.base_commit[:12] or 'no commit'}",
        "created": fields.created_at,
        "cluster": f"{fields.cluster} ({fields.split})",
        "intent": fields.intent,
        "change": "not known"
        if fields.lines_changed is None
        else f"{fields.lines_changed} lines in {fields.files_changed} files",
        "prompt": f"{fields.prompt_chars} characters, by the {fields.prompt_source}",
        "tests": f"{len(tests.fail_to_pass)} must come to pass, {len(tests.pass_to_pass)} must stay so",
        "command": " ".join(tests.command),
        "environment": f"{spec.kind} {spec.python}".strip(),
        "folder": one.folder,
    }
    return f"{pairs(lines)}\n\n{one.instruction}"
