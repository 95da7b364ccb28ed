"""`rtrl train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rtrl_cli import options
from rtrl_cli.stage import StageFlags, dry_plan, run_command
from rtrl_cli.train_view import train_text
from stages.errors import UsageError
from stages.train import crew

Explain = Annotated[
    str | None,
    typer.Option(
        "--explain",
        metavar="EPISODE",
        help="Print the loss of one episode (its name, or the id of an answer in it), token by token; "
        "train nothing.",
        parser=options.name,
    ),
]
ImportDir = Annotated[
    Path | None,
    typer.Option(
        "--import", metavar="DIR", help="Adopt a model trained elsewhere, with --parent.", parser=options.path
    ),
]
Parent = Annotated[
    str, typer.Option("--parent", metavar="REF", help="The checkpoint that --import was trained from.")
]
Consumed = Annotated[
    list[str] | None,
    typer.Option("--consumed", metavar="REF", help="An experience --import was trained on; repeatable."),
]


def command(
    inputs: options.Input = None,
    explain: Explain = None,
    as_json: options.Json = False,
    dry_run: options.DryRun = False,
    force: options.Force = False,
    line: options.Line = None,
    overrides: options.Set = None,
    lock_timeout: options.LockTimeout = None,
    quiet: options.Quiet = False,
    from_run: options.FromRun = None,
    seed: options.Seed = None,
    import_dir: ImportDir = None,
    parent: Parent = "",
    consumed: Consumed = None,
    workspace: options.Workspace = None,
) -> None:
    """Train the live checkpoint on the newest experience; gives a candidate checkpoint and its line state.

    Under torchrun every process runs this command: the first does what is said here, the others help.
    --import DIR --parent REF makes a candidate of what your own trainer wrote (docs/train.md).
    """
    if crew.follows():
        from stages.train.worker import follow

        raise typer.Exit(follow())
    settings = options.settings(overrides, line)
    flags = StageFlags(
        workspace, inputs or (), as_json, dry_run, force, settings, lock_timeout, from_run, seed
    )
    outside = {"import_dir": import_dir, "parent": parent, "consumed": tuple(consumed or ())}
    with crew.leading():
        if explain is not None:
            _explain(explain, flags, any(outside.values()))
        else:
            run_command("train", flags, text=train_text, **outside)


def _explain(episode: str, flags: StageFlags, outside: bool) -> None:
    given = {
        "--dry-run": flags.dry_run,
        "--force": flags.force,
        "--lock-timeout": flags.lock_timeout is not None,
        "--import": outside,
    }
    if named := ", ".join(name for name, is_given in given.items() if is_given):
        raise UsageError(
            f"--explain runs nothing; {named} has no meaning with it", hint=f"leave {named} away"
        )
    from rtrl_cli.explain_view import explain_text
    from rtrl_cli.output import message, show

    result = dry_plan("train", flags, explain=episode)
    found = result.metrics = result.envelope()["metrics"]["plan"]
    result.warnings += [f"a training run would refuse: {problem}" for problem in found["problems"]]
    for warning in result.warnings:
        message(warning, kind="warning")
    document = result.envelope() | {"status": "succeeded"}
    show(flags.as_json, document, lambda: explain_text(found, document["inputs"]))
