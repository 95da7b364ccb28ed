"""`rtrl init`."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from rtrl_cli import options
from rtrl_cli.output import envelope, message, pairs, show, size
from stages.errors import UsageError

if TYPE_CHECKING:
    from stages.init import Made

Target = Annotated[
    str,  # as typed: the Path of "" is the current folder
    typer.Argument(
        metavar="[PATH]",
        help="The workspace's folder, made if need be; default this one.",
        show_default=False,
    ),
]
Tiny = Annotated[bool, typer.Option("--tiny", help="Take the shipped model of a million parameters.")]
Model = Annotated[
    Path | None,
    typer.Option(
        "--model", metavar="FOLDER", help="Take a Hugging Face causal-LM folder.", parser=options.path
    ),
]
NoModel = Annotated[
    bool,
    typer.Option("--no-model", help="Take none: for session logs alone. `rtrl init --model` can follow."),
]


def _no_flag(folder: str | None) -> None:
    if folder is not None:
        raise UsageError(
            "`rtrl init` takes the workspace's folder as PATH, without a flag",
            hint=f"`rtrl init {quote(folder)} ...`",
        )


Elsewhere = Annotated[
    str | None,
    typer.Option("-w", "--workspace", hidden=True, callback=_no_flag, help="What all other commands take."),
]


def command(
    path: Target = ".",
    tiny: Tiny = False,
    model: Model = None,
    no_model: NoModel = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    _workspace: Elsewhere = None,
) -> None:
    """Make a workspace with its first checkpoint, live and anchor, and an API key."""
    if tiny + (model is not None) + no_model != 1:
        raise typer.BadParameter("give either --tiny, or --model FOLDER, or --no-model")
    if not path:
        raise typer.BadParameter("the workspace's folder is named by nothing")
    import time

    from stages.init import init_bare, init_model, init_tiny
    from stages.workspace import SETTINGS_FILE

    there = (Path(path) / SETTINGS_FILE).exists()
    note = " (was there already; its settings are kept)" if there else ""
    if no_model:
        root = init_bare(Path(path)).root
        document = envelope("init", "succeeded", metrics={"workspace": str(root), "existed": there})
        steps = {
            "workspace": f"{root}{note}",
            "next": f"rtrl collect PATH-OF-SESSION-LOGS -w {quote(str(root))}",
        }
        show(as_json, document, lambda: pairs(steps))
        return
    started = time.monotonic()
    made = init_tiny(Path(path)) if model is None else init_model(Path(path), model)
    document = envelope(
        "init",
        "succeeded",
        run_id=made.checkpoint.run_id,
        outputs={
            artifact.kind: {"ref": artifact.ref, "digest": artifact.digest, "bytes": artifact.bytes}
            for artifact in (made.checkpoint, made.line_state)
        },
        metrics={"workspace": str(made.workspace.root), "key_file": str(made.key_file), "existed": there},
        warnings=list(made.warnings),
        duration_s=round(time.monotonic() - started, 3),
    )
    for warning in made.warnings:
        message(warning, kind="warning")
    show(as_json, document, lambda: _text(made, note))


def _text(made: Made, note: str) -> str:
    checkpoint = made.checkpoint
    lines = {
        "workspace": f"{made.workspace.root}{note}",
        "live": f"{checkpoint.ref}, {checkpoint.meta['parameters']:,} parameters, {size(checkpoint.bytes)}",
        "API key": f"in {made.key_file}",
        "next": f"rtrl serve -w {quote(str(made.workspace.root))}",
    }
    return pairs(lines)
