"""`rtrl eval`."""

from __future__ import annotations

from rtrl_cli import options
from rtrl_cli.stage import StageFlags, run_command


def command(
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
    """Compare a candidate with the live checkpoint. Exit 0 pass, 3 regressed, 4 inconclusive."""
    settings = options.settings(overrides, line)
    flags = StageFlags(
        workspace, inputs or (), as_json, dry_run, force, settings, lock_timeout, from_run, seed
    )
    run_command("eval", flags)
