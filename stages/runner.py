"""What every run of a stage has in common: lock, sweep, inputs, fingerprint, run, publish, exit status.

A stage never imports this. Not for: what a stage does (`stages/<name>/run.py`), how the publish
protocol survives a kill (`registry/publish.py`), how a result is shown (`rtrl_cli/output.py`).
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from cursorbench.redaction import redact
from stages import faults, interrupts, locks
from stages.errors import RtrlError, classified
from stages.identity import code_version, fingerprint
from stages.line_in_hints import hints_on_line, on_line
from stages.populations import as_begun, begin_line
from stages.progress import Silent
from stages.refs import Refs, refs_by_kind
from stages.registry.check import check_artifact
from stages.registry.publish import publish
from stages.registry.rebuilt import check_rebuilt
from stages.registry.runs import begin_run, begin_scratch, describe_error, fail_run, new_run_id
from stages.registry.scratch import recorded_plan, scratch_store, unchanged
from stages.registry.sweep import sweep
from stages.result import StageResult, attach_result, status_of
from stages.runlog import JsonRunLog, NoLog, heartbeat
from stages.stage import Artifact, Outcome, Progress, RunContext, Stage

if TYPE_CHECKING:
    from stages.registry.models import RunRow
    from stages.registry.store import Store
    from stages.workspace import Workspace

TARGET_STAGES = ("deploy", "rollback")  # act on what is served: one lock, and no fingerprint


@dataclass(frozen=True)
class Plan:
    """A run that is fully decided and not begun."""

    stage: Stage
    config: BaseModel
    inputs: Mapping[str, Artifact]
    extra: Mapping[str, Any]
    seed: int
    fingerprint: str  # "" when the stage has none
    lock: str
    from_run: str = ""


def run_stage(
    workspace: Workspace,
    store: Store,
    stage: Stage,
    refs: Refs = (),
    overrides: Sequence[str] = (),
    *,
    force: bool = False,
    dry_run: bool = False,
    lock_timeout: float | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
    from_run: str | None = None,
    lock: locks.FileLock | None = None,
) -> StageResult:
    """Run one stage once.

    Args:
        refs: inputs the user named, by kind or as references. The rest the stage chooses.
        overrides: `section.key=value` settings for this run.
        force: run even when a run with the same fingerprint came to a result.
        dry_run: resolve everything, take no lock, change nothing.
        lock_timeout: seconds to wait for the lock; default the stage's. `seed`: default the workspace's.
        lock: the stage's lock, when the caller holds it already; freed here.
        from_run: repeat this recorded run into a scratch store; with `dry_run` only say what it would be.

    Returns:
        The result. A run whose fingerprint came to a result before is not repeated: `noop` for a
        success, else the recorded `rejected` or `inconclusive` again.

    Raises:
        UsageError: (exit 2) `from_run` with what would make it another run.
        LockedError: (exit 11) another run of the stage, or of the deployment target, is going on.
        RtrlError: whatever the stage could not do; `stages.result.result_of(error)` names the run.
    """
    started = time.monotonic()
    workspace = workspace.with_overrides(overrides)
    if from_run is not None:
        unchanged({"--input": refs, "--set": overrides, "--seed": seed is not None, "--force": force})
        return _repeat(workspace, store, stage, from_run, dry_run, progress or Silent(), started)
    config: BaseModel = getattr(workspace.settings, stage.name)
    if dry_run:
        with hints_on_line(workspace), as_begun(workspace, store) as begun:
            plan = _plan(workspace, begun, stage, refs, config, seed)
            return _dry(workspace, begun, plan, force, progress or Silent(), started)
    timeout = lock_timeout if lock_timeout is not None else getattr(config, "lock_timeout_s", 0.0)
    lock_name = _lock_name(workspace, stage)
    lock = lock or locks.acquire(store.lock_path(lock_name), what=lock_name, timeout=timeout)
    with hints_on_line(workspace), lock.held():
        return _alone(workspace, store, stage, refs, seed, force, progress or Silent(), started)


def _alone(
    workspace: Workspace,
    store: Store,
    stage: Stage,
    refs: Refs,
    seed: int | None,
    force: bool,
    progress: Progress,
    started: float,
) -> StageResult:
    """Under the lock: what a killed run left is swept, and a run whose result is known is not repeated."""
    sweep(store)
    begin_line(workspace, store)
    if settle := getattr(stage, "settle", None):  # what another run of it moved and could not put on record
        settle(workspace, store)
    plan = _plan(workspace, store, stage, refs, getattr(workspace.settings, stage.name), seed)
    if plan.fingerprint and not force and (known := store.finished_run(plan.fingerprint)):
        return _known(store, plan, known, started)
    return _execute(workspace, store, plan, progress, started)


def _lock_name(workspace: Workspace, stage: Stage) -> str:
    what = "target" if stage.name in TARGET_STAGES else stage.name
    return f"{what}-{workspace.settings.workspace.line}"


def _plan(
    workspace: Workspace,
    store: Store,
    stage: Stage,
    refs: Refs,
    config: BaseModel,
    seed: int | None,
) -> Plan:
    settings = workspace.settings.workspace
    inputs = stage.resolve(workspace, store, refs_by_kind(store, stage, refs, settings.line))
    extra = dict(stage.extra(workspace, store, config))
    seed = settings.seed if seed is None else seed
    digests = {role: artifact.digest for role, artifact in inputs.items()}
    facts = {**extra, "line": settings.line}
    said, apart = config.model_dump(mode="json"), stage.name in TARGET_STAGES
    return Plan(
        stage=stage,
        config=config,
        inputs=inputs,
        extra=extra,
        seed=seed,
        fingerprint="" if apart else fingerprint(stage.name, digests, facts, said, seed),
        lock=_lock_name(workspace, stage),
    )


def _dry(
    workspace: Workspace, store: Store, plan: Plan, force: bool, progress: Progress, started: float
) -> StageResult:
    """What would be done. A stage may say more with a method `plan(config, inputs, extra, ctx)`."""
    known = store.finished_run(plan.fingerprint) if plan.fingerprint and not force else None
    result = StageResult(plan.stage.name, "noop", inputs=dict(plan.inputs))
    result.metrics = {
        "dry_run": True,
        "would_run": known is None,
        "fingerprint": plan.fingerprint,
        "seed": plan.seed,
        "config": plan.config.model_dump(mode="json"),
        "extra": dict(plan.extra),
    }
    if explain := getattr(plan.stage, "plan", None):
        with tempfile.TemporaryDirectory() as scratch:
            context = RunContext(workspace, store, "dry-run", plan.seed, Path(scratch), progress, NoLog())
            result.metrics["plan"] = explain(plan.config, plan.inputs, plan.extra, context)
    what = f"repeat {plan.from_run}" if plan.from_run else f"run {plan.stage.name}"
    result.notes.append(f"would {what}" if known is None else f"nothing to do: {known.id} did this already")
    result.duration_s = time.monotonic() - started
    return result


def _known(store: Store, plan: Plan, known: RunRow, started: float) -> StageResult:
    result = StageResult(plan.stage.name, "noop", run_id=known.id, inputs=dict(plan.inputs))
    if known.state in ("rejected", "inconclusive"):
        result.status = known.state  # type: ignore[assignment]
        result.warnings = json.loads(known.warnings)  # why: whoever hears it now may not have heard it then
    result.outputs, result.metrics = store.outputs_by_name(known.id), json.loads(known.metrics)
    result.notes.append(f"nothing to do: {known.id} did this already (--force repeats it)")
    result.duration_s = time.monotonic() - started
    return result


def _repeat(
    workspace: Workspace,
    store: Store,
    stage: Stage,
    from_run: str,
    dry_run: bool,
    progress: Progress,
    started: float,
) -> StageResult:
    row = store.run(from_run)
    workspace = workspace.on_line(row.line)
    known = recorded_plan(store, stage, row)
    plan = Plan(stage, *known, row.seed, row.fingerprint, row.lock, from_run=row.id)
    if dry_run:
        return _dry(workspace, store, plan, True, progress, started)
    scratch = scratch_store(workspace, store, row)
    progress.message(f"repeating {row.id} into {scratch.dir}")
    result = _execute(workspace.with_store(scratch.dir), scratch, plan, progress, started)
    result.notes.append(f"repeated {row.id}; the outputs are in {scratch.dir}")
    return result


def _execute(
    workspace: Workspace, store: Store, plan: Plan, progress: Progress, started: float
) -> StageResult:
    name, line = plan.stage.name, workspace.settings.workspace.line
    run_id = new_run_id(name)
    result = StageResult(name, "failed", run_id=run_id, inputs=dict(plan.inputs))
    work = store.dir / "tmp" / run_id
    with (
        locks.hold(store.run_lock_path(run_id), what=f"run {run_id}", run=run_id),
        JsonRunLog(store.dir / "logs" / f"{run_id}.jsonl") as log,
    ):
        try:
            with hints_on_line(workspace), classified():
                _begin(store, plan, run_id, line)
                (work / "out").mkdir(parents=True, exist_ok=True)
                scratch = begin_scratch(store, plan.fingerprint, run_id)
                log.write("run.begin", stage=name, inputs={k: v.digest for k, v in plan.inputs.items()})
                for artifact in plan.inputs.values():
                    check_artifact(artifact)
                    check_rebuilt(store, artifact)
                context = RunContext(workspace, store, run_id, plan.seed, scratch, progress, log)
                with interrupts.heeded(), heartbeat(store.dir, run_id):
                    outcome = plan.stage.run(plan.config, plan.inputs, plan.extra, work / "out", context)
                outcome.warnings = [on_line(text, workspace) for text in outcome.warnings]
                faults.point(f"{name}.run.after")
                result.outputs = _publish(store, run_id, line, outcome, work / "out")
            log.write("run.end", status=outcome.status, metrics=outcome.metrics)
            shutil.rmtree(scratch, ignore_errors=True)
        except BaseException as error:
            log.write("run.error", error=describe_error(error), traceback=redact(traceback.format_exc()).text)
            with contextlib.suppress(RtrlError):  # on a full disk the run stays open, and is swept
                fail_run(store, run_id, error)
            result.error = describe_error(error)
            result.status = status_of(result.error["code"])
            result.duration_s = time.monotonic() - started
            attach_result(error, result)
            raise
        finally:
            shutil.rmtree(work, ignore_errors=True)
            store.run_lock_path(run_id).unlink(missing_ok=True)
    result.status = "noop" if outcome.noop else outcome.status
    result.metrics, result.warnings = dict(outcome.metrics), list(outcome.warnings)
    result.duration_s = time.monotonic() - started
    return result


def _begin(store: Store, plan: Plan, run_id: str, line: str) -> None:
    """Put the run on record, and its name beside the lock that it holds."""
    begin_run(
        store,
        run_id,
        stage=plan.stage.name,
        line=line,
        inputs=plan.inputs,
        config=plan.config.model_dump(mode="json"),
        extra=plan.extra,
        seed=plan.seed,
        fingerprint=plan.fingerprint,
        code_version=code_version(),
        lock=plan.lock,
        from_run=plan.from_run,
    )
    if plan.lock and (held := store.lock_path(plan.lock)).exists():  # since before the run had an id
        locks.note_run(held, run_id)


def _publish(store: Store, run_id: str, line: str, outcome: Outcome, out: Path) -> dict[str, Artifact]:
    return publish(
        store,
        run_id,
        line,
        outcome.outputs,
        out,
        state=outcome.status,
        metrics=outcome.metrics,
        warnings=outcome.warnings,
    )
