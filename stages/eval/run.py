"""`rtrl eval`: a candidate checkpoint against the live one on the same cases, and the gate's verdict.

Publishes a report whatever the verdict. A candidate that regressed is rejected (exit 3), one that
cannot be told is inconclusive (exit 4). Not here: deploying what passed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

from stages.errors import InputMissingError
from stages.eval.config import EvalConfig
from stages.monitor.gate import alarmed, alarms_of
from stages.populations import require_live
from stages.stage import Artifact, Kind, Outcome, Output, RunContext

if TYPE_CHECKING:
    from stages.eval.subjects import ChatEngine
    from stages.registry.store import Store
    from stages.workspace import Workspace

_STATUS: dict[str, Literal["succeeded", "rejected", "inconclusive"]] = {
    "pass": "succeeded",
    "regressed": "rejected",
    "inconclusive": "inconclusive",
}


def start_engine(workspace: Workspace, folder: Path) -> ChatEngine:
    """The real engine, set up and sampling as the served one, for large batches."""
    from stages.engine.inprocess import InProcessEngine
    from stages.eval.known import served_sampling
    from stages.eval.subjects import BATCH_SEQUENCES

    config = workspace.settings.engine
    wide = max(config.max_num_seqs, BATCH_SEQUENCES)
    sampling = served_sampling(workspace)
    log = workspace.store_dir / "logs" / f"eval-engine-{workspace.settings.workspace.line}.log"
    wider = config.model_copy(update={"max_num_seqs": wide})
    return InProcessEngine(folder, wider, log=log, sampling=sampling)


class EvalStage:
    """The stage. `engine` makes what answers; tests give it a smaller one."""

    name = "eval"
    config: type[BaseModel] = EvalConfig
    takes: tuple[Kind, ...] = ("checkpoint",)

    def __init__(self, engine: Callable[[Workspace, Path], ChatEngine] = start_engine) -> None:
        self._engine = engine

    def check(self, workspace: Workspace) -> None:
        """Whether there is all that `[eval]` names: asked by `resolve`, and before a cycle begins.

        Raises:
            UsageError: (exit 2) an unknown suite, or a margin for a metric nobody measures.
            InputMissingError: (exit 5) there is no repository, suite of tasks or file of probes of that name.
            DependencyDownError: (exit 13) a task of a suite needs what this machine lacks.
        """
        from stages.eval.known import own_files
        from stages.eval.suites import check

        config = workspace.settings.eval
        own_files(workspace, config)
        check(config, workspace.root)

    def resolve(self, workspace: Workspace, store: Store, refs: Mapping[str, str]) -> dict[str, Artifact]:
        """Candidate (named, or the newest trained from the live one), live, anchor, reports to reuse.

        Raises as `check`, and:
            InputMissingError: (exit 5) nothing is live, or nothing was trained from it.
            GateRejectedError: (exit 3) a monitor has alarmed, and nobody has acknowledged it.
        """
        self.check(workspace)
        line = workspace.settings.workspace.line
        live = require_live(store, workspace.settings)
        if "checkpoint" in refs:
            candidate = store.resolve(refs["checkpoint"], line)
        else:
            newest = store.latest("checkpoint", line, {"parent": live.digest})
            if newest is None:
                raise InputMissingError(
                    f"no checkpoint was trained from {live.ref}, the live one: nothing to evaluate",
                    hint="`rtrl train` first, or name one with --input checkpoint@vN",
                )
            candidate = newest
        if refused := alarmed(workspace, store, candidate, live):
            raise refused
        inputs = {"candidate": candidate, "baseline": live}
        config = workspace.settings.eval
        anchor = store.alias(line, "anchor") if config.drift else None
        if anchor is not None and anchor.digest not in (candidate.digest, live.digest):
            inputs["anchor"] = anchor
        return {**inputs, **_reports(workspace, store, config, inputs)}

    def extra(self, workspace: Workspace, store: Store, config: BaseModel) -> Mapping[str, Any]:
        """The engine's settings and versions, how it samples, own tasks: another one is another result."""
        from stages.eval.known import surroundings

        assert isinstance(config, EvalConfig)
        return surroundings(workspace, config)

    def run(
        self,
        config: BaseModel,
        inputs: Mapping[str, Artifact],
        extra: Mapping[str, Any],
        out_dir: Path,
        ctx: RunContext,
    ) -> Outcome:
        """Try, compare, decide, report."""
        assert isinstance(config, EvalConfig)
        from stages.eval.known import answering, as_recorded, changed_versions, conditions_met
        from stages.eval.report import figures
        from stages.eval.subjects import Engines, seed_of
        from stages.eval.suites import build
        from stages.eval.work import Work, looked
        from stages.target.as_served import otherwise

        ctx = replace(ctx, workspace=as_recorded(ctx.workspace, extra))  # a repeated run's, not today's
        suites = build(config, ctx.workspace.root, extra.get("repositories", {}))

        def start(folder: Path) -> ChatEngine:
            return self._engine(ctx.workspace, folder)

        seed = seed_of(ctx.seed, inputs["candidate"])
        with Engines(start, seed, ctx.store.checkpoint_folder) as engines:
            work = Work(config, inputs, ctx, engines)
            verdict = looked(work, suites)
        meta = work.write(out_dir / "report", verdict)
        meta["conditions"] = conditions_met(ctx.workspace, config, extra)
        line = ctx.workspace.settings.workspace.line
        alarms = alarms_of(ctx.store, line, (inputs["baseline"], inputs["candidate"]))
        meta["alarms"] = [one.to_dict() for one in alarms]
        ctx.log.write("eval.verdict", verdict=verdict.verdict, reasons=list(verdict.reasons))
        versions = changed_versions(extra, ctx.workspace.settings.engine)
        versions += otherwise(ctx.workspace, answering(ctx.workspace))
        return Outcome(
            status=_STATUS[verdict.verdict],
            outputs={"report": Output("report", meta)},
            metrics={"verdict": verdict.verdict, "suites": figures(verdict.suites)},
            warnings=[*verdict.reasons, *work.notes, *work.warnings, *versions],
        )


def _reports(
    workspace: Workspace, store: Store, config: EvalConfig, inputs: Mapping[str, Artifact]
) -> dict[str, Artifact]:
    from stages.eval.known import conditions, report_with, surroundings
    from stages.eval.work import STORED

    if not config.cache:
        return {}
    under = conditions(config, surroundings(workspace, config))
    line = workspace.settings.workspace.line
    found = {}
    for role, name in STORED.items():
        if role in inputs:
            known = report_with(store, line, inputs[role].digest, under, besides=inputs["candidate"].digest)
            if known is not None:
                found[name] = known
    return found


STAGE = EvalStage()
