"""`rtrl collect`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rtrl_cli import options
from rtrl_cli.output import pairs
from rtrl_cli.stage import StageFlags, default_text, run_command
from stages.errors import UsageError

if TYPE_CHECKING:
    from stages.collect.logs.source import Source
    from stages.result import StageResult
_NAMES_OF_USERS = ("feedback_not_used",)  # counts by names that stand in somebody's logs


Paths = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[PATH]...",
        help="Session logs, folders of them, git repositories.",
        show_default=False,
        parser=options.path,
    ),
]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="KIND", help="Read PATH as this kind of log, not as what it looks like."),
]
User = Annotated[
    str | None,
    typer.Option("--user", help="Whose sessions PATH holds. Without it each session is a user of its own."),
]
RepositoryName = Annotated[
    str | None,
    typer.Option("--repository", help="Name of what the sessions of PATH worked on."),
]
Repo = Annotated[
    list[Path] | None,
    typer.Option(
        "--repo",
        metavar="GIT",
        help="Repository that took the edits: what of them stands later. Without PATH also several.",
        parser=options.path,
    ),
]
Timezone = Annotated[
    str | None,
    typer.Option(
        "--timezone", metavar="NAME", help="Zone of a log's times that have none (Aider's, OpenHands')."
    ),
]

Received = Annotated[
    bool, typer.Option("--received", help="Read what the gateway was sent of other systems' sessions.")
]


def command(
    paths: Paths = None,
    kind: From = None,
    user: User = None,
    repos: Repo = None,
    repository: RepositoryName = None,
    timezone: Timezone = None,
    received: Received = False,
    inputs: options.Input = None,
    as_json: options.Json = False,
    dry_run: options.DryRun = False,
    force: options.Force = False,
    line: options.Line = None,
    overrides: options.Set = None,
    lock_timeout: options.LockTimeout = None,
    quiet: options.Quiet = False,
    from_run: options.FromRun = None,
    seed: options.Seed = None,
    workspace: options.Workspace = None,
) -> None:
    """Seal the spool's matured episodes into interactions; with PATH those of session logs.

    Exit 5 or 4 when there is nothing yet. A path may be a file, a folder or a git repository whose branches
    and notes hold sessions; docs/sources.md lists the kinds.
    """
    settings = options.settings(overrides, line)
    flags = StageFlags(
        workspace, inputs or (), as_json, dry_run, force, settings, lock_timeout, from_run, seed
    )
    theirs = {"--from": kind, "--user": user, "--timezone": timezone}
    code = {"--repo": repos, "--repository": repository}
    _agree(paths, theirs, code, from_run, received=received)
    if not paths and not received:
        if repos:
            asked = json.dumps([str(repo.absolute()) for repo in repos])
            flags = replace(flags, overrides=[*flags.overrides, f"collect.repos={asked}"])
        run_command("collect", flags, text=_text)
        return
    source = _source(paths or [], kind, user, repos, repository, timezone, workspace, received=received)
    run_command("collect", flags, text=_text, source=source)


def _agree(
    paths: list[Path] | None,
    theirs: Mapping[str, object],
    code: Mapping[str, object],
    from_run: str | None,
    *,
    received: bool,
) -> None:
    """Raise UsageError (2) where flags say something of records that the command reads none of."""
    if received:
        if paths or from_run is not None or any(one is not None for one in theirs.values()):
            raise UsageError(
                "--received knows whose records these are, of which kind and when",
                hint="leave PATH, --from, --user, --timezone and --from-run away",
            )
    elif not paths:
        given = {**theirs, "--repository": code["--repository"]}
        if from_run is not None and code["--repo"] is not None:
            raise UsageError("--from-run knows its repositories", hint="leave --repo away")
        if named := ", ".join(name for name, value in given.items() if value is not None):
            raise UsageError(f"{named} goes with session logs, and no PATH is named", hint="name a PATH")
    elif from_run is not None:
        raise UsageError("--from-run knows its paths", hint="leave PATH away")


def _source(
    paths: list[Path],
    kind: str | None,
    user: str | None,
    repos: list[Path] | None,
    repository: str | None,
    timezone: str | None,
    workspace: Path | None,
    *,
    received: bool = False,
) -> Source:
    """The logs that the flags mean. Raises UsageError for flags that can mean nothing."""
    from stages.collect.logs.clock import zone_of
    from stages.collect.logs.edits import place_of
    from stages.collect.logs.source import Source
    from stages.gateway.attribution import MAX_NAME
    from stages.workspace import Workspace

    if user == "":
        raise UsageError("--user names nobody", hint="leave it away, or say whose sessions these are")
    if user is not None and not (len(user) <= MAX_NAME and user.isprintable()):
        # keys of the vault's own are unprintable
        raise UsageError(f"--user must be a name of at most {MAX_NAME} printable characters")
    if repos and len(repos) > 1:
        raise UsageError("--repo names two repositories", hint="collect the logs of each by themselves")
    if pipes := [path for path in paths if path.exists() and not (path.is_file() or path.is_dir())]:
        hint = (
            "write it to a file first, as logs are read more than once; compressed ones are read as they are"
        )
        raise UsageError(f"{pipes[0]} is a pipe or a device", hint=hint)
    found = Workspace.find(workspace, ())
    return Source(
        paths=tuple(path.resolve() for path in paths),
        kind=kind or "",
        user=user or "",
        repository=repository or "",
        repo=place_of(repos[0]) if repos else None,
        zone=zone_of(timezone) if timezone is not None else None,
        leave_out=found.root.resolve(),
        received=found.inbox_dir if received else None,
    )


def _text(result: StageResult) -> str:
    """What was read, and what became of it."""
    metrics: dict[str, Any] = dict(result.metrics)
    titles = {
        "items": "read",
        "said": "found",
        "feedback_not_used": "feedback not used",
        "quarantined": "quarantined",
    }
    found = {
        title: ", ".join(
            f"{n} {name if key in _NAMES_OF_USERS else name.replace('_', ' ')}"
            for name, n in metrics.get(key, {}).items()
        )
        for key, title in titles.items()
    }
    found |= _edits_followed(metrics.get("persistence") or {})
    told = pairs({key: value for key, value in found.items() if value})
    return "\n\n".join(filter(None, [default_text(result), told]))


def _edits_followed(persistence: dict[str, Any]) -> dict[str, str]:
    """What repositories tell of the edits, of how many, and why not of the others."""
    if not persistence:
        return {}
    followed, elsewhere = persistence["edits"], persistence.get("made_elsewhere", 0)
    others = f"{elsewhere} of {followed + elsewhere} left out, made in folders of other names"
    why = [others] * bool(elsewhere) + [f"{n}: {reason}" for reason, n in persistence["reasons"].items()]
    stands = ", ".join(
        f"{one['rate']:.2f} of {one['lines']} lines {'at HEAD' if name == 'head' else f'after {name}'}"
        for name, one in persistence["kept"].items()
        if one["rate"] is not None
    )
    return {"edits followed": "; ".join([str(followed), *why]), "stands later": stands}
