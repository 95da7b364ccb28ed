"""What the six stage commands have in common: find the workspace, run the stage, show the result.

A stage's command is a few lines: its flags and `run_command(...)`. Not for: anything a stage decides.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rtrl_cli import line
from rtrl_cli.output import message, pairs, show, size, table
from rtrl_cli.progress import make_progress
from stages.wording import digits

if TYPE_CHECKING:
    from stages.locks import FileLock
    from stages.registry.store import Store
    from stages.result import StageResult
    from stages.stage import Stage
    from stages.workspace import Workspace


# flags of deploy and rollback that are on record with a run, and repeated from there
RECORDED = ("override", "reason", "offline", "canary", "promote")


@dataclass(frozen=True)
class StageFlags:
    """The flags every stage takes."""

    workspace: Path | None = None
    inputs: Sequence[str] = ()
    as_json: bool = False
    dry_run: bool = False
    force: bool = False
    overrides: Sequence[str] = ()
    lock_timeout: float | None = None
    from_run: str | None = None
    seed: int | None = None
    lock: FileLock | None = None  # the stage's, when the command holds it already


def open_store(
    folder: Path | None, overrides: Sequence[str] = (), *, begins: bool = False
) -> tuple[Workspace, Store]:
    """The workspace and its store.

    `begins`: the line may be a new one. Raises StoreError (10), InputMissingError (5): the line that the
    overrides name is none.
    """
    from stages.line_in_hints import names_line
    from stages.populations import require_line
    from stages.registry.store import Store
    from stages.workspace import Workspace

    workspace = Workspace.find(folder, overrides)
    line.work_on(workspace)
    store = Store.open(workspace.store_dir)
    if names_line(workspace) and not begins:
        require_line(store, workspace.settings)
    return workspace, store


def load_stage(name: str) -> Stage:
    """`STAGE` of `stages/<name>/run.py`."""
    stage: Stage = importlib.import_module(f"stages.{name}.run").STAGE
    return stage


def run_command(
    name: str, flags: StageFlags, *, text: Callable[[StageResult], str] | None = None, **changes: Any
) -> None:
    """Run one stage as the command line asks, show the result, leave with its exit status.

    Args:
        text: the result for people; default its outputs and metrics.
        changes: attributes for a copy of the stage (flags only this stage has, e.g. deploy's reason).
    """
    finish(run_once(name, flags, changes), as_json=flags.as_json, text=text)


def dry_plan(name: str, flags: StageFlags, **changes: Any) -> StageResult:
    """What the stage would begin with, and nothing run; `metrics["plan"]` is what its `plan` says."""
    return run_once(name, replace(flags, dry_run=True), changes)


def run_once(name: str, flags: StageFlags, changes: Mapping[str, Any]) -> StageResult:
    """As `run_command`, and nothing shown."""
    from stages.runner import run_stage

    begins = name == "collect"  # of session logs
    workspace, store = open_store(flags.workspace, flags.overrides, begins=begins)
    stage = load_stage(name)
    if flags.from_run is not None:
        from stages.registry.scratch import unchanged

        given = [name for name in RECORDED if name in changes and changes[name] != getattr(stage, name)]
        unchanged({f"--{name}": True for name in given})
    if changes:
        import copy

        stage = copy.copy(stage)
        for key, value in changes.items():
            setattr(stage, key, value)
    with make_progress() as progress:
        return run_stage(
            workspace,
            store,
            stage,
            list(flags.inputs),
            [] if flags.from_run is None else flags.overrides,
            force=flags.force,
            dry_run=flags.dry_run,
            lock_timeout=flags.lock_timeout,
            seed=flags.seed,
            progress=progress,
            from_run=flags.from_run,
            lock=flags.lock,
        )


def finish(result: StageResult, *, as_json: bool, text: Callable[[StageResult], str] | None = None) -> None:
    """Show a result and leave with its exit status when that is not 0."""
    for note in result.notes:
        message(note)
    for warning in result.warnings:
        message(warning, kind="warning")
    show(as_json, result.envelope(), lambda: (text or default_text)(result))
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def default_text(result: StageResult) -> str:
    """Status, outputs and single-valued metrics as aligned lines; lists of records as tables below."""
    lines: dict[str, object] = {result.command: f"{result.status} in {result.duration_s:.1f} s"}
    if result.run_id:
        lines["run"] = result.run_id
    for role, artifact in result.inputs.items():
        lines[f"input {role}"] = artifact.ref
    for name, artifact in result.outputs.items():
        lines[f"output {name}"] = f"{artifact.ref}  {artifact.digest[:19]}  {size(artifact.bytes)}"
    tables: list[str] = []
    for key, value in result.envelope()["metrics"].items():
        if isinstance(value, float):
            lines[key] = digits(value, 6)
        elif isinstance(value, str | int | bool):
            lines[key] = value
        elif isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            names = dict.fromkeys(name for row in value for name in row)
            header = [name for name in names if not any(isinstance(row.get(name), dict) for row in value)]
            rows = [[_cell(row.get(name)) for name in header] for row in value]
            tables.append(f"{key}\n{table(header, rows)}")
    return "\n\n".join([pairs(lines), *tables])


def _cell(value: object) -> object:
    if value is None:
        return "-"
    return digits(value, 6) if isinstance(value, float) else value
