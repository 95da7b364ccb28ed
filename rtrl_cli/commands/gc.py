"""`rtrl gc`."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from cursorbench.errors import UsageError
from rtrl_cli import options
from rtrl_cli.output import envelope, message, show, size, table
from rtrl_cli.stage import open_store


def command(
    yes: Annotated[bool, typer.Option("--yes", help="Remove; without it the plan is shown.")] = False,
    keep_days: Annotated[
        float, typer.Option("--keep-days", min=0, help="Keep whatever is younger than this.")
    ] = 7.0,
    pin: Annotated[
        str | None, typer.Option("--pin", metavar="REF", help="Keep REF whatever happens.")
    ] = None,
    unpin: Annotated[str | None, typer.Option("--unpin", metavar="REF", help="Undo --pin.")] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why, for --pin.")] = "",
    as_json: options.Json = False,
    workspace: options.Workspace = None,
) -> None:
    """Remove artifacts that nothing needs. Without --yes, only say which, and why the rest is kept."""
    from stages.registry import gc

    found, store = open_store(workspace)
    line, by = found.settings.workspace.line, getpass.getuser()
    if pin is not None or unpin is not None:
        if pin is not None and not reason:
            raise UsageError("--pin needs a reason", hint='give --reason "..."')
        if pin is not None:
            gc.pin(store, store.resolve(pin, line).digest, by=by, reason=reason)
        if unpin is not None and not gc.unpin(store, store.resolve(unpin, line).digest, by=by):
            message(f"{unpin} was not pinned")
        show(as_json, envelope("gc", "succeeded", metrics={"pinned": pin, "unpinned": unpin}), str)
        return
    plan = gc.collect(store, keep_days, by=by) if yes else gc.plan(store, keep_days)
    rows = [(f"{row.kind}@v{row.version}", size(row.bytes or 0), row.created_at[:19]) for row in plan.remove]
    reasons: dict[str, int] = {}
    for why in plan.keep.values():
        reasons[why] = reasons.get(why, 0) + 1
    metrics = {
        "removed" if yes else "would_remove": [row[0] for row in rows],
        "bytes": plan.bytes,
        "kept": len(plan.keep),
        "kept_because": reasons,
    }
    show(
        as_json,
        envelope("gc", "succeeded" if rows else "noop", metrics=metrics),
        lambda: table(("REMOVED" if yes else "WOULD REMOVE", "SIZE", "MADE"), rows),
    )
    verb = "removed" if yes else "would remove"
    message(f"{verb} {len(rows)} artifacts, {size(plan.bytes)}; {len(plan.keep)} kept")
    if rows and not yes:
        message("`rtrl gc --yes` removes them", kind="hint")
