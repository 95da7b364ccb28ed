"""`rtrl rollback`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from rtrl_cli import options
from rtrl_cli.commands.deploy import Offline, Reason, text
from rtrl_cli.stage import StageFlags, run_command

To = Annotated[
    str | None,
    typer.Option("--to", metavar="REF", help="Checkpoint to go back to; default what was live before."),
]


def command(
    to: To = None,
    reason: Reason = "",
    inputs: options.Input = None,
    offline: Offline = False,
    as_json: options.Json = False,
    dry_run: options.DryRun = False,
    force: options.Force = False,
    line: options.Line = None,
    overrides: options.Set = None,
    lock_timeout: options.LockTimeout = None,
    quiet: options.Quiet = False,
    from_run: options.FromRun = None,
    workspace: options.Workspace = None,
) -> None:
    """Serve the checkpoint that was live before, and take its line state back. No report is asked for."""
    refs = [*(inputs or ()), *([to] if to else [])]
    settings = options.settings(overrides, line)
    flags = StageFlags(workspace, refs, as_json, dry_run, force, settings, lock_timeout, quiet, from_run)
    moved = None
    if not (refs or offline or dry_run or from_run or overrides or line):  # of the main line only
        from stages.rollback.first import move_first

        moved = move_first(workspace, reason, lock_timeout)
    lock = moved.lock if moved else None
    run_command("rollback", replace(flags, lock=lock), text=text, reason=reason, offline=offline, moved=moved)
