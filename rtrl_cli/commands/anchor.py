"""`rtrl anchor REF --reason TEXT`."""

from __future__ import annotations

from typing import Annotated

import typer

from rtrl_cli import options
from rtrl_cli.output import envelope, show
from rtrl_cli.stage import open_store


def command(
    ref: options.Ref,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept on record.")],
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    line: options.Line = None,
    workspace: options.Workspace = None,
) -> None:
    """Pin the line's anchor, to which the KL of training is measured, to another checkpoint."""
    from stages.anchor import move_anchor

    found, store = open_store(workspace, options.settings((), line))
    moved = move_anchor(store, found.settings.workspace.line, ref, reason=reason, dry_run=dry_run)
    same = moved.before == moved.after
    document = envelope("anchor", "noop" if same or dry_run else "succeeded", metrics=moved.to_dict())
    would = "would move" if dry_run else "moved"
    text = (
        f"the anchor is {moved.after} already" if same else f"anchor {would} {moved.before} -> {moved.after}"
    )
    show(as_json, document, lambda: text)
