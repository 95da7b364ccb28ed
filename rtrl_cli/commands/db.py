"""`rtrl db upgrade | backup | check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rtrl_cli import options
from rtrl_cli.output import envelope, error_message, show

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Upgrade, back up or check the registry.",
)

HINT = "restore the newest file of store/backups; docs/registry.md says how"


def _store_dir(workspace: Path | None) -> Path:
    from stages.workspace import Workspace

    return Workspace.find(workspace).store_dir


@app.command()
def upgrade(
    as_json: options.Json = False, quiet: options.Quiet = False, workspace: options.Workspace = None
) -> None:
    """Bring the registry to this program's schema, after a backup. Nothing else ever migrates."""
    from stages.registry import migrate

    before, after, saved = migrate.upgrade(_store_dir(workspace))
    status = "noop" if saved is None else "succeeded"
    metrics = {"before": before, "after": after, "backup": str(saved) if saved else None}
    text = (
        f"at {after} already" if saved is None else f"upgraded {before or 'none'} -> {after}; backup {saved}"
    )
    show(as_json, envelope("db upgrade", status, metrics=metrics), lambda: text)


@app.command()
def backup(
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            metavar="<path>",
            help="New file to write, or a folder; default store/backups.",
            parser=options.path,
        ),
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    workspace: options.Workspace = None,
) -> None:
    """Copy the registry while others use it, and check the copy."""
    from stages.registry import migrate

    saved = migrate.backup(_store_dir(workspace), to)
    metrics = {"backup": str(saved), "bytes": saved.stat().st_size}
    show(as_json, envelope("db backup", "succeeded", metrics=metrics), lambda: str(saved))


@app.command()
def check(
    as_json: options.Json = False, quiet: options.Quiet = False, workspace: options.Workspace = None
) -> None:
    """Run SQLite's checks and compare the schema with this program's. Exit 12: damage; 10: another schema."""
    from stages.registry import migrate

    problems = migrate.check(_store_dir(workspace))
    error: dict[str, Any] | None = None
    if problems:
        error = {"code": 12, "kind": "integrity", "message": problems[0], "hint": HINT}
    status = "failed" if problems else "succeeded"
    document = envelope("db check", status, metrics={"problems": problems}, error=error)
    show(as_json, document, lambda: "" if problems else "the registry is sound")
    for problem in problems:
        error_message(problem, HINT if problem is problems[-1] else "")
    if problems:
        raise typer.Exit(12)
