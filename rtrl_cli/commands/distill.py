"""`rtrl distill`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rtrl_cli import options
from rtrl_cli.output import envelope, show
from rtrl_cli.stage import StageFlags, finish, open_store, run_once
from stages.errors import UsageError

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.workspace import Workspace


Explain = Annotated[
    str | None,
    typer.Option(
        "--explain",
        metavar="EPISODE",
        help="Print every term of one episode's reward; by its name, or the id of an answer in it.",
        parser=options.name,
    ),
]
Engine = Annotated[
    str | None,
    typer.Option("--engine", metavar="local|ray", help="Who measures; the same as distill.engine."),
]


def command(
    inputs: options.Input = None,
    explain: Explain = None,
    engine: Engine = None,
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
    """Turn interactions into experience: signals and rewards. --explain prints the terms of one episode."""
    if explain is not None:
        given = {
            "--dry-run": dry_run,
            "--force": force,
            "--set": bool(overrides),
            "--engine": engine is not None,
            "--lock-timeout": lock_timeout is not None,
            "--from-run": from_run is not None,
            "--seed": seed is not None,
        }
        if named := ", ".join(name for name, is_given in given.items() if is_given):
            raise UsageError(
                f"--explain shows an episode as it was distilled; {named} would change nothing of that",
                hint=f"leave {named} away",
            )
        _explain(workspace, line, inputs or [], explain, as_json)
        return
    sets = [*options.settings(overrides, line), *([f"distill.engine={engine}"] if engine is not None else [])]
    flags = StageFlags(workspace, inputs or (), as_json, dry_run, force, sets, lock_timeout, from_run, seed)
    result = run_once("distill", flags, {})
    if not dry_run and from_run is None:  # before the result is shown: it is the last that is printed
        result.warnings += tell_alarms(*open_store(workspace, sets))
    finish(result, as_json=as_json)


def tell_alarms(workspace: Workspace, store: Store) -> list[str]:
    """Tell the webhook of new alarms of the monitors. Returns warnings."""
    from stages.monitor.alert import tell

    return tell(workspace, store)


def _explain(folder: Path | None, line: str | None, inputs: list[str], episode: str, as_json: bool) -> None:
    from stages.distill.explain import explain

    if strange := [ref for ref in inputs if not ref.startswith(("experience", "sha256:"))] or inputs[1:]:
        raise UsageError(
            f"--explain reads one experience; {strange[0]} is none, or another",
            hint="--input experience@vN; the newest without it",
        )
    workspace, store = open_store(folder, options.settings((), line))
    ref = inputs[0] if inputs else "experience@latest"
    found = explain(workspace, store, ref, episode)
    document = envelope("distill", "succeeded", inputs={"experience": ref}, metrics=found.to_dict())
    show(as_json, document, lambda: "\n".join(found.lines()))
