"""`rtrl keys list | add | set | revoke`: who may use the gateway."""

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
    help="List, add, change or revoke API keys of the gateway.",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="What the key is called: a client, a team.")]

_SHARED = typer.Option(
    "--shared/--personal",
    help="Shared: many people come through it, and its holder answers for their names; `train` then caps "
    "each of them, not the key.",
)
Shared = Annotated[bool, _SHARED]
Population = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help='The organisation or kind of work that everything made with the key is of; "" for none. '
        "No client can say otherwise.",
    ),
]


def _keys_dir(workspace: Path | None) -> Path:
    from stages.workspace import Workspace

    return Workspace.find(workspace).keys_dir


@app.command("list")
def list_keys(
    as_json: options.Json = False, quiet: options.Quiet = False, workspace: options.Workspace = None
) -> None:
    """Names, ids and dates of all keys, revoked ones too. The keys themselves are stored nowhere."""
    from stages.gateway.keys import ApiKeys

    found = ApiKeys.listed(_keys_dir(workspace))
    columns = ("name", "id", "shared", "population", "created", "revoked")
    metrics = {"keys": [{column: getattr(key, column) for column in columns} for key in found]}
    rows = [
        (key.name, key.id, "yes" if key.shared else "", key.population, key.created, key.revoked)
        for key in found
    ]
    show(
        as_json,
        envelope("keys list", "succeeded", metrics=metrics),
        lambda: table(tuple(name.upper() for name in columns), rows),
    )


@app.command()
def add(
    name: Name,
    shared: Shared = False,
    population: Population = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    workspace: options.Workspace = None,
) -> None:
    """Make a key and print it, this once. A running gateway takes it within a second."""
    from stages.gateway.keys import ApiKeys

    key = ApiKeys.create(_keys_dir(workspace), name, shared=shared, population=population or "")
    show(as_json, envelope("keys add", "succeeded", metrics={"name": name, "key": key}), lambda: key)
    if not quiet:
        message("keep it: it is shown only now, and stored hashed", kind="hint")


@app.command("set")
def change(
    name: Name,
    shared: Annotated[bool | None, _SHARED] = None,
    population: Population = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    workspace: options.Workspace = None,
) -> None:
    """Say whether many people come through a key, or what population it is of.

    What is trained from now on goes by the first, what is made with it from now on is of the second; a
    running gateway knows within a second.
    """
    from stages.errors import UsageError
    from stages.gateway.keys import ApiKeys

    if shared is None and population is None:
        raise UsageError("nothing to set", hint="--shared, --personal or --population NAME")
    key = ApiKeys.change(_keys_dir(workspace), name, shared=shared, population=population)
    metrics = {"name": name, "shared": key.shared, "population": key.population}
    of = f", of population {key.population}" if key.population else ""
    text = f"{name} is {'shared: capped by user only' if key.shared else 'one contributor'}{of}"
    show(as_json, envelope("keys set", "succeeded", metrics=metrics), lambda: text)


@app.command()
def revoke(
    name: Name,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    workspace: options.Workspace = None,
) -> None:
    """Refuse a key from now on; a running gateway does so within a second."""
    from stages.gateway.keys import ApiKeys

    ApiKeys.revoke(_keys_dir(workspace), name)
    show(as_json, envelope("keys revoke", "succeeded", metrics={"name": name}), lambda: f"{name} is revoked")
