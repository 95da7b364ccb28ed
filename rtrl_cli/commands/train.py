"""`rtrl train`."""

from __future__ import annotations

from typing import Annotated

import typer

from rtrl_cli import options
from rtrl_cli.stage import StageFlags, dry_plan, run_command
from rtrl_cli.train_view import train_text
from stages.errors import UsageError


def command(
    inputs: options.Input = None,
    explain: Annotated[
        str | None,
        typer.Option(
            "--explain",
            metavar="EPISODE",
            help="Print the loss of one episode, token by token; train nothing.",
        ),
    ] = None,
    as_json: options.Json = False,
    dry_run: options.DryRun = False,
    force: options.Force = False,
    overrides: options.Set = None,
    lock_timeout: options.LockTimeout = None,
    quiet: options.Quiet = False,
    from_run: options.FromRun = None,
    seed: options.Seed = None,
    workspace: options.Workspace = None,
) -> None:
    """Train the live checkpoint on the newest experience; gives a candidate checkpoint and its line state."""
    flags = StageFlags(
        workspace, inputs or (), as_json, dry_run, force, overrides or (), lock_timeout, quiet, from_run, seed
    )
    if explain is not None:
        _explain(explain, flags)
        return
    run_command("train", flags, text=train_text)


def _explain(episode: str, flags: StageFlags) -> None:
    given = {
        "--dry-run": flags.dry_run,
        "--force": flags.force,
        "--lock-timeout": flags.lock_timeout is not None,
    }
    if named := ", ".join(name for name, is_given in given.items() if is_given):
        raise UsageError(
            f"--explain runs nothing; {named} has no meaning with it", hint=f"leave {named} away"
        )
    from rtrl_cli.explain_view import explain_text
    from rtrl_cli.output import message, show

    result = dry_plan("train", flags, explain=episode)
    found = result.metrics = result.envelope()["metrics"]["plan"]
    result.warnings += [f"a training run would refuse: {problem}" for problem in found["problems"]]
    if not flags.quiet:
        for warning in result.warnings:
            message(warning, kind="warning")
    document = result.envelope() | {"status": "succeeded"}
    show(flags.as_json, document, lambda: explain_text(found, document["inputs"]))
