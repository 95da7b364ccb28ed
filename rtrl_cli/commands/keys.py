"""`rtrl keys list | add | set | rotate | revoke`: who may use the gateway; `rtrl keys backup`."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rtrl_cli import options
from rtrl_cli.output import envelope, message, show, table

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="List, add, change or revoke API keys of the gateway; back up the keys that seal users' data.",
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
Rate = Annotated[
    str | None,
    typer.Option(
        metavar="REQUESTS",
        help="Requests a second, on all routes; `none` for any number, `default` for gateway.key_rate.",
    ),
]
Burst = Annotated[
    int | None,
    typer.Option(
        min=0, help="Requests at once after a pause; 0 for gateway.key_burst, or two seconds' worth."
    ),
]

_NO_TRAIN = typer.Option(
    "--no-train/--train",
    help="No-train: what comes with the key is served and counted, and none of its content written, "
    "whatever a request says.",
)
_LONGEST = 87_600  # hours; ten years


def _rate(text: str) -> float | None:
    """What `--rate` says. Raises UsageError."""
    from stages.errors import UsageError

    if text in ("none", "default"):
        return 0.0 if text == "none" else None
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 < rate < 1e9:
        raise UsageError(
            f"--rate {text!r} is no number of requests a second", hint="as in --rate 5, or none, or default"
        )
    return rate


def _told(rate: float | None) -> str:
    return "" if rate is None else f"{rate:g}/s" if rate else "none"


def _keys_dir(workspace: Path | None) -> Path:
    from stages.workspace import Workspace

    return Workspace.find(workspace).keys_dir


def _require_stdout() -> None:
    """Raise UsageError when what is printed is gone: a secret is printed once, and kept nowhere."""
    from stages.errors import UsageError

    with contextlib.suppress(OSError):  # no file at all, as in a program that calls this
        if os.path.samestat(os.fstat(sys.stdout.fileno()), Path(os.devnull).stat()):
            raise UsageError(
                "stdout leads nowhere, and the key is told only there", hint="read it, or send it to a file"
            )


def _tell(command: str, name: str, key: str, as_json: bool) -> None:
    """Print a secret before it is in force. Raises DependencyDownError when nobody gets it."""
    from stages.errors import DependencyDownError

    if not show(as_json, envelope(command, "succeeded", metrics={"name": name, "key": key}), lambda: key):
        raise DependencyDownError(
            "nobody reads stdout, and the key is told only there", hint="read it, or send it to a file"
        )


@app.command("list")
def list_keys(
    as_json: options.Json = False, quiet: options.Quiet = False, workspace: options.Workspace = None
) -> None:
    """Names, ids and dates of all keys, revoked ones too. The keys themselves are stored nowhere."""
    from stages.gateway.keys import ApiKeys

    found = ApiKeys.listed(_keys_dir(workspace))
    columns = ("name", "id", "shared", "population", "rate", "no_train", "created", "revoked")
    metrics = {"keys": [{column: getattr(key, column) for column in columns} for key in found]}
    rows = [
        (
            key.name,
            key.id,
            "yes" if key.shared else "",
            key.population,
            _told(key.rate),
            "yes" if key.no_train else "",
            key.created,
            key.revoked,
        )
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
    rate: Rate = None,
    burst: Burst = None,
    no_train: Annotated[bool, _NO_TRAIN] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    workspace: options.Workspace = None,
) -> None:
    """Make a key and print it, this once. A running gateway takes it within a second."""
    from stages.gateway.keys import ApiKeys

    _require_stdout()
    ApiKeys.create(
        _keys_dir(workspace),
        name,
        shared=shared,
        population=population or "",
        rate=_rate(rate or "default"),
        burst=burst or 0,
        no_train=no_train,
        told=lambda key: _tell("keys add", name, key, as_json),
    )
    message("keep it: it is shown only now, and stored hashed", kind="hint")


@app.command("set")
def change(
    name: Name,
    shared: Annotated[bool | None, _SHARED] = None,
    population: Population = None,
    rate: Rate = None,
    burst: Burst = None,
    no_train: Annotated[bool | None, _NO_TRAIN] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    workspace: options.Workspace = None,
) -> None:
    """Say whether many people come through a key, its population, how often it may ask, and consent.

    What is trained from now on goes by the first, what is made with it from now on is of the second and of
    the last; a running gateway knows within a second. What was written before stays: `rtrl forget`.
    """
    from stages.errors import UsageError
    from stages.gateway.keys import ApiKeys

    told: dict[str, Any] = {
        "shared": shared,
        "population": population,
        "burst": burst,
        "no_train": no_train,
    }
    fields = {field: value for field, value in told.items() if value is not None}
    if rate is not None:
        fields["rate"] = _rate(rate)
    if not fields:
        raise UsageError(
            "nothing to set",
            hint="--shared, --personal, --population NAME, --rate N, --burst N, --no-train, --train",
        )
    key = ApiKeys.change(_keys_dir(workspace), name, **fields)
    metrics = {
        "name": name,
        **{one: getattr(key, one) for one in ("shared", "population", "rate", "burst", "no_train")},
    }
    of = f", of population {key.population}" if key.population else ""
    of += f", {_told(key.rate)}" if key.rate else ""
    of += ", no-train" if key.no_train else ""
    text = f"{name} is {'shared: capped by user only' if key.shared else 'one contributor'}{of}"
    show(as_json, envelope("keys set", "succeeded", metrics=metrics), lambda: text)


@app.command()
def rotate(
    name: Name,
    keep_old: Annotated[
        float,
        typer.Option(
            "--keep-old", min=0, max=_LONGEST, metavar="HOURS", help="So long the old secret is taken too."
        ),
    ] = 24.0,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    workspace: options.Workspace = None,
) -> None:
    """Give a key a new secret and print it, this once. It stays the same key, with what it has made."""
    from stages.gateway.key_file import DEFAULT_KEY, default_key
    from stages.gateway.keys import ApiKeys

    _require_stdout()
    keys_dir = _keys_dir(workspace)
    key = ApiKeys.rotate(
        keys_dir, name, keep_hours=keep_old, told=lambda key: _tell("keys rotate", name, key, as_json)
    )
    also = default_key(keys_dir) == key
    kept = f"keys/{DEFAULT_KEY} has it too" if also else "keep it: it is shown only now, and stored hashed"
    message(kept, kind="hint")


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


@app.command()
def backup(
    to: Annotated[
        Path,
        typer.Option(
            "--to",
            metavar="<path>",
            help="File, or a folder for a vault.db; the copy there is replaced.",
            parser=options.path,
        ),
    ],
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    workspace: options.Workspace = None,
) -> None:
    """Copy the keys that seal users' data, while others use them; without the master key.

    After each backup of the data, and after each `rtrl forget`. Exit 12: the copy there has keys that are
    lost here.
    """
    from stages.vault_backup import backup as copy
    from stages.workspace import Workspace

    found = Workspace.find(workspace)
    saved, users = copy(found.root, found.keys_dir, to)
    metrics = {"backup": str(saved), "bytes": saved.stat().st_size, "users": users}
    show(as_json, envelope("keys backup", "succeeded", metrics=metrics), lambda: str(saved))
