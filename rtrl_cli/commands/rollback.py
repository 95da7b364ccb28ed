"""`rtrl rollback`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from cursorbench.errors import RtrlError
from rtrl_cli import options
from rtrl_cli.commands.deploy import Offline, Reason, text
from rtrl_cli.stage import StageFlags, finish, run_command

if TYPE_CHECKING:
    from stages.rollback.first import Begun

To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="REF",
        help="Checkpoint to go back to; default what was live before.",
        parser=options.name,
    ),
]


def command(
    ctx: typer.Context,
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
    refs = [*(inputs or ()), *([to] if to is not None else [])]
    settings = options.settings(overrides, line)
    flags = StageFlags(workspace, refs, as_json, dry_run, force, settings, lock_timeout, from_run)
    begun: Begun | None = ctx.obj  # by `early.py`
    moved, asked = (begun.moved, begun.asked) if begun else (None, "")
    lock = moved.lock if moved else None
    if moved is not None and lock is None:  # the store is away
        from stages.rollback.recorded import finish_away

        finish(finish_away(workspace, moved), as_json=as_json, text=text)
        return
    flags = replace(flags, lock=lock)
    try:
        told = {"reason": reason, "offline": offline, "moved": moved, "asked": asked}
        run_command("rollback", flags, text=text, **told)
    except RtrlError as error:
        if moved is None:
            raise
        from stages.rollback.recorded import finish_moved

        finish(finish_moved(workspace, moved, error), as_json=as_json, text=text)
