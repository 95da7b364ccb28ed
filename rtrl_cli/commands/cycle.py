"""`rtrl cycle`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rtrl_cli import options
from rtrl_cli.output import error_message, message, show, table
from rtrl_cli.progress import make_progress
from rtrl_cli.stage import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from stages.cycle.result import CycleResult
    from stages.cycle.run import Listener
    from stages.result import StageResult


def command(
    deadline: Annotated[
        str | None,
        typer.Option(
            "--deadline", metavar="TIME", help="How long it may take: 5h, 90m, 45s (or 45). [cycle.deadline]"
        ),
    ] = None,
    ping: Annotated[
        str | None,
        typer.Option("--ping", metavar="URL", help="Told of start (URL/start), success (URL), exit (URL/N)."),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Do not go on with an interrupted cycle.")] = False,
    as_json: options.Json = False,
    dry_run: options.DryRun = False,
    line: options.Line = None,
    overrides: options.Set = None,
    lock_timeout: options.LockTimeout = None,
    quiet: options.Quiet = False,
    workspace: options.Workspace = None,
) -> None:
    """Run collect, distill, train, eval and deploy once, or what is left of an interrupted cycle.

    Exit 0 deployed or nothing to do, 3 the candidate was rejected or an alarm waits, 4 not decided (too
    little use, late), 11 another cycle is going on or a canary waits to be decided; else as the stage that
    failed. docs/cycle.md has more.
    """
    from rtrl_cli.commands.distill import tell_alarms
    from stages.cycle.run import plan_cycle, run_cycle

    found, store = open_store(workspace, options.settings(overrides, line))
    alarms = _Alarms(lambda: tell_alarms(found, store), _tell)
    if dry_run:
        result = plan_cycle(found, store, deadline, fresh=fresh)
        show(as_json, result.envelope(), lambda: _plan(result))
        return
    with make_progress() as progress:
        result = run_cycle(
            found,
            store,
            deadline=deadline,
            ping_url=ping,
            fresh=fresh,
            lock_timeout=lock_timeout or 0.0,
            progress=progress,
            listener=alarms,
        )
    result.warnings += alarms.at_the_end()
    _say(result, as_json)
    if result.exit_code:
        raise typer.Exit(result.exit_code)


class _Alarms:
    """Listens to a cycle: alarms are told as soon as distill has raised them, not after hours of training."""

    def __init__(self, tell: Callable[[], list[str]], listener: Listener | None) -> None:
        self._tell, self._listener = tell, listener
        self._warnings: list[str] = []

    def __call__(self, name: str, ended: StageResult | None) -> None:
        if name == "distill" and ended is not None:
            self._warnings += self._tell()
        if self._listener is not None:
            self._listener(name, ended)

    def at_the_end(self) -> list[str]:
        """Warnings of all telling; those of a cycle that was interrupted after distill are told now."""
        return list(dict.fromkeys([*self._warnings, *self._tell()]))


def _say(result: CycleResult, as_json: bool) -> None:
    for warning in result.warnings:
        message(warning, kind="warning")
    show(as_json, result.envelope(), lambda: _text(result))
    if result.error:
        error_message(str(result.error["message"]), str(result.error["hint"]))


def _tell(name: str, ended: StageResult | None) -> None:
    if ended is not None:
        message(f"{name}: {ended.status} in {ended.duration_s:.1f} s {_outputs(ended)}".rstrip())


def _outputs(ended: StageResult) -> str:
    return ", ".join(artifact.ref for artifact in ended.outputs.values())


def _text(result: CycleResult) -> str:
    rows = [
        (stage.command, stage.status, f"{stage.duration_s:.1f} s", stage.run_id or "-", _outputs(stage))
        for stage in result.stages
    ]
    lines = [f"{result.id}: {result.status} in {result.duration_s:.1f} s"]
    if result.resumed_at:
        lines[0] += f" (went on at {result.resumed_at})"
    lines.append(table(("stage", "status", "took", "run", "made"), rows))
    lines += [f"{stage.command}: {text}" for stage in result.stages for text in stage.warnings]
    return "\n".join(line for line in lines if line)


def _plan(result: CycleResult) -> str:
    begin = f"goes on with {result.id} at {result.resumed_at}" if result.resumed_at else "begins at collect"
    rows = [
        (row["stage"], f"{float(row['share']):.0%}", f"{float(row['late_at_s']) / 60:.1f} min", row["late"])
        for row in result.deadline
    ]
    return f"{begin}\n{table(('stage', 'share', 'late at', 'a late one'), rows)}"
