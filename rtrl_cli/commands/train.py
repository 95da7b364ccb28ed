"""`rtrl train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rtrl_cli import options
from rtrl_cli.stage import StageFlags, run_command
from rtrl_cli.train_view import train_text
from stages.train import crew


def command(
    inputs: options.Input = None,
    as_json: options.Json = False,
    dry_run: options.DryRun = False,
    force: options.Force = False,
    overrides: options.Set = None,
    lock_timeout: options.LockTimeout = None,
    quiet: options.Quiet = False,
    from_run: options.FromRun = None,
    seed: options.Seed = None,
    import_dir: Annotated[
        Path | None,
        typer.Option("--import", metavar="DIR", help="Adopt a model trained elsewhere, with --parent."),
    ] = None,
    parent: Annotated[
        str, typer.Option("--parent", metavar="REF", help="The checkpoint that --import was trained from.")
    ] = "",
    consumed: Annotated[
        list[str] | None,
        typer.Option("--consumed", metavar="REF", help="An experience --import was trained on; repeatable."),
    ] = None,
    workspace: options.Workspace = None,
) -> None:
    """Train the live checkpoint on the newest experience; gives a candidate checkpoint and its line state.

    Under torchrun every process runs this command: the first does what is said here, the others help.
    --import DIR --parent REF makes a candidate of what your own trainer wrote (docs/train.md).
    """
    if crew.follows():
        from stages.train.worker import follow

        raise typer.Exit(follow())
    flags = StageFlags(
        workspace, inputs or (), as_json, dry_run, force, overrides or (), lock_timeout, quiet, from_run, seed
    )
    outside = {"import_dir": import_dir, "parent": parent, "consumed": tuple(consumed or ())}
    with crew.leading():
        run_command("train", flags, text=train_text, **outside)
