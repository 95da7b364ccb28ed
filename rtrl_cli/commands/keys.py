"""`rtrl keys list | add | revoke`: who may use the gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rtrl_cli import options
from rtrl_cli.output import envelope, message, show, table

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="List, add or revoke API keys of the gateway.",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="What the key is called: a client, a team.")]


def _keys_dir(workspace: Path | None) -> Path:
    from stages.workspace import Workspace

    return Workspace.find(workspace).keys_dir


@app.command("list")
def list_keys(as_json: options.Json = False, workspace: options.Workspace = None) -> None:
    """Names, ids and dates of all keys, revoked ones too. The keys themselves are stored nowhere."""
    from stages.gateway.keys import ApiKeys

    found = ApiKeys.listed(_keys_dir(workspace))
    rows = [(key.name, key.id, key.created, key.revoked or "") for key in found]
    columns = ("name", "id", "created", "revoked")
    metrics = {"keys": [dict(zip(columns, row, strict=True)) for row in rows]}
    show(
        as_json,
        envelope("keys list", "succeeded", metrics=metrics),
        lambda: table(tuple(name.upper() for name in columns), rows),
    )


@app.command()
def add(name: Name, as_json: options.Json = False, workspace: options.Workspace = None) -> None:
    """Make a key and print it, this once. A running gateway takes it within a second."""
    from stages.gateway.keys import ApiKeys

    key = ApiKeys.create(_keys_dir(workspace), name)
    show(as_json, envelope("keys add", "succeeded", metrics={"name": name, "key": key}), lambda: key)
    message("keep it: it is shown only now, and stored hashed", kind="hint")


@app.command()
def revoke(name: Name, as_json: options.Json = False, workspace: options.Workspace = None) -> None:
    """Refuse a key from now on; a running gateway does so within a second."""
    from stages.gateway.keys import ApiKeys

    ApiKeys.revoke(_keys_dir(workspace), name)
    show(as_json, envelope("keys revoke", "succeeded", metrics={"name": name}), lambda: f"{name} is revoked")
