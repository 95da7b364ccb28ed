"""`rtrl collect`."""

from __future__ import annotations

from rtrl_cli import options
from rtrl_cli.stage import StageFlags, run_command


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
    """Seal the spool's matured episodes into interactions. Exit 5 or 4 when there is nothing yet."""
    flags = StageFlags(
        workspace, inputs or (), as_json, dry_run, force, overrides or (), lock_timeout, quiet, from_run, seed
    )
    run_command("collect", flags)
