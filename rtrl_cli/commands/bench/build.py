"""`rtrl bench build --repo GIT --out SUITE`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rtrl_cli import options
from rtrl_cli.commands.bench import flags
from rtrl_cli.output import envelope, message, pairs, show, table
from rtrl_cli.progress import make_progress

if TYPE_CHECKING:
    from cursorbench.builder.build import Built
    from cursorbench.builder.settings import Settings

SUBJECT = 60  # characters of a commit's subject in the table


Repo = Annotated[
    Path,
    typer.Option(
        "--repo", metavar="GIT", help="Repository; only read.", show_default=False, parser=options.path
    ),
]
Sessions = Annotated[
    list[Path] | None,
    typer.Option(
        "--sessions",
        metavar="PATH",
        help="Session logs, a folder of them, or a repository that holds sessions; repeatable.",
        parser=options.path,
    ),
]
Untraced = Annotated[
    bool, typer.Option("--untraced", help="With --sessions: also commits that no session is traced to.")
]
Issues = Annotated[
    Path | None,
    typer.Option(
        "--issues",
        metavar="FILE",
        help="Issues as JSON, for commits that name one (`gh issue list --json`).",
        parser=options.path,
    ),
]
Name = Annotated[str, typer.Option("--name", metavar="OWNER/REPO", help="Default: origin's.")]
Head = Annotated[str, typer.Option("--head", metavar="REF", help="The history that is read.")]
Since = Annotated[
    str, typer.Option("--since", metavar="WHEN", help="No older commits: 2026-01-31, or 90d, 6m, 1y.")
]
Limit = Annotated[
    int | None,
    typer.Option("--limit", metavar="N", help="At most so many candidates, the newest.", min=1),
]
Install = Annotated[
    str,
    typer.Option(
        "--install",
        metavar="WORDS",
        help="What tests need, resolved as of each base's quarter: auto, or like '. @dev pytest>=8'.",
    ),
]
Scope = Annotated[
    Literal["changed", "all"],
    typer.Option("--scope", help="Tests to run: of the changed test files, or all."),
]
Heldout = Annotated[float, typer.Option("--heldout", metavar="SHARE", help="Of the tasks.", min=0, max=1)]
Jobs = Annotated[int, typer.Option("--jobs", metavar="N", help="Candidates at a time.", min=1)]


def command(
    repo: Repo,
    out: flags.Out,
    sessions: Sessions = None,
    untraced: Untraced = False,
    issues: Issues = None,
    name: Name = "",
    head: Head = "HEAD",
    since: Since = "",
    limit: Limit = None,
    install: Install = "auto",
    lock: flags.Lock = None,
    environment: flags.Environment = "python",
    python: flags.Python = "",
    test_command: flags.TestCommand = "",
    scope: Scope = "changed",
    timeout: flags.Timeout = 300.0,
    heldout: Heldout = 0.5,
    jobs: Jobs = 1,
    sandbox: flags.Sandbox = "auto",
    cache: flags.Cache = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Make tasks from a repository's history, and from the sessions of agents that worked on it.

    A task is a commit with source and tests whose tests tell, run several times in the sandbox. Every
    candidate that makes none is in SUITE/rejects.json with its reason. A build that was stopped goes on.
    """
    from cursorbench.builder.settings import Settings
    from cursorbench.builder.settings import since as since_ms

    usual = Settings(repo, out)
    settings = Settings(
        repo=repo, out=out, name=name, head=head, sessions=tuple(sessions or ()), untraced=untraced,
        issues=issues, since=since_ms(since) if since else 0, limit=limit, install=install, lock=lock,
        environment=environment, python=python or usual.python, test_command=test_command, scope=scope,
        timeout_s=timeout, heldout=heldout, jobs=jobs, backend=sandbox, cache=cache or usual.cache,
    )  # fmt: skip
    _build(settings, as_json=as_json)


def _build(settings: Settings, *, as_json: bool) -> None:
    from cursorbench.builder.build import build

    began = time.monotonic()
    with make_progress() as progress:
        built = build(settings, progress)
    counts = built.counts()
    warnings = [*built.warnings, *_warnings(built)]
    document = envelope(
        "bench build",
        "succeeded",
        outputs={"suite": {"path": str(built.suite.path), "tasks": [one.task for one in built.tasks]}},
        metrics={**counts, "rejects": built.rejects()},
        warnings=warnings,
        duration_s=round(time.monotonic() - began, 3),
    )
    show(as_json, document, lambda: _text(built))
    for warning in warnings:
        message(warning, kind="warning")


def _warnings(built: Built) -> list[str]:
    found = []
    if unfinished := [one for one in built.verdicts if one.outcome == "unfinished"]:
        found.append(f"{len(unfinished)} candidates could not be judged; the same command tries them again")
    if busy := sum(one.in_doubt for one in built.verdicts):
        found.append(
            f"{busy} candidates were rejected for what time can do to tests while the machine was busy; "
            "the same command looks again when it is quiet, or half as busy"
        )
    if old := sum(one.reason in ("old_runner", "not_built") for one in built.verdicts):
        found.append(
            f"{old} candidates are too old for their Python: --python auto takes older ones of this machine"
        )
    if built.traced == (0, 0) and not built.passed_over:
        found.append(
            "no session is traced to a commit of this history: none of their edits is in one of its commits; "
            "--untraced takes commits without a session"
        )
    elif not (built.verdicts or built.filtered):
        found.append("no commit changes source and tests, as their paths tell them (docs/bench-build.md)")
    elif not built.tasks:
        found.append("no candidate made a task; the reasons are in rejects.json")
    if built.unread:
        told = ", ".join(f"{reason} {count}" for reason, count in built.unread.items())
        found.append(f"some of the sessions could not be read: {told}")
    return found


def _text(built: Built) -> str:
    counts = built.counts()
    head: dict[str, object] = {
        "suite": built.suite.path,
        "tasks": f"{counts['tasks']} of {counts['candidates']} candidates",
        "judged before": counts["again"],
        "filtered by git alone": counts["filtered"],
        "no candidates": ", ".join(f"{reason} {count}" for reason, count in counts["passed_over"].items())
        or 0,
    }
    if built.removed:
        head["removed"] = f"{len(built.removed)} tasks of earlier builds that this one would not make"
    if "traced" in counts:
        head["traced to a session"] = (
            f"{counts['traced']} commits, and {counts['traced_without_words']} without words"
        )
    rows = [
        (one["commit"][:10], one["reason"], one["subject"][:SUBJECT], one["detail"][:SUBJECT])
        for one in built.rejects()
    ]
    kept = [
        (one.task, one.facts.get("validation", {}).get("fail_to_pass", ""), one.subject[:SUBJECT])
        for one in built.tasks
    ]
    blocks = [
        pairs(head),
        table(("TASK", "TELLING TESTS", "COMMIT"), kept),
        table(("NO TASK", "REASON", "COMMIT", "DETAIL"), rows),
    ]
    return "\n\n".join(block for block in blocks if block)
