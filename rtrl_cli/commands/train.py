"""`rtrl train`."""

from __future__ import annotations

from rtrl_cli import options
from rtrl_cli.stage import StageFlags, run_command
from rtrl_cli.train_view import train_text


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
    workspace: options.Workspace = None,
) -> None:
    """Train the live checkpoint on the newest experience; gives a candidate checkpoint and its line state."""
    flags = StageFlags(
        workspace, inputs or (), as_json, dry_run, force, overrides or (), lock_timeout, quiet, from_run, seed
    )
    run_command("train", flags, text=train_text)
