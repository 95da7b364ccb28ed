"""`rtrl eval`: a candidate checkpoint against the live one on the same cases, and the gate's verdict.

Publishes a report whatever the verdict. A candidate that regressed is rejected (exit 3), one that
cannot be told is inconclusive (exit 4). Not here: deploying what passed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

from stages.errors import InputMissingError
from stages.eval.config import EvalConfig
from stages.stage import Artifact, Kind, Outcome, Output, RunContext

if TYPE_CHECKING:
    from evals.cases import Attempt, SuiteSpec
    from evals.gate import SuiteResult, Verdict
    from evals.suites.base import Suite
    from stages.eval.arms import Reuse
    from stages.eval.kept import Kept
    from stages.eval.subjects import ChatEngine, Engines
    from stages.registry.store import Store
    from stages.workspace import Workspace

_STATUS: dict[str, Literal["succeeded", "rejected", "inconclusive"]] = {
    "pass": "succeeded",
    "regressed": "rejected",
    "inconclusive": "inconclusive",
}
_ROLES = {"baseline": "baseline_attempts", "anchor": "anchor_attempts"}


def start_engine(workspace: Workspace, folder: Path) -> ChatEngine:
    """The real engine, set up and sampling as the served one, for large batches."""
    from stages.engine.inprocess import InProcessEngine
    from stages.eval.known import served_sampling
    from stages.eval.subjects import BATCH_SEQUENCES

    config = workspace.settings.engine
    wide = max(config.max_num_seqs, BATCH_SEQUENCES)
    sampling = served_sampling(workspace)
    return InProcessEngine(folder, config.model_copy(update={"max_num_seqs": wide}), sampling=sampling)


class EvalStage:
    """The stage. `engine` makes what answers; tests give it a smaller one."""

    name = "eval"
    config: type[BaseModel] = EvalConfig
    takes: tuple[Kind, ...] = ("checkpoint",)

    def __init__(self, engine: Callable[[Workspace, Path], ChatEngine] = start_engine) -> None:
        self._engine = engine

    def resolve(self, workspace: Workspace, store: Store, refs: Mapping[str, str]) -> dict[str, Artifact]:
        """Candidate (named, or the newest trained from the live one), live, anchor, reports to reuse.

        Raises:
            InputMissingError: (exit 5) nothing is live, or nothing was trained from it.
        """
        line = workspace.settings.workspace.line
        live = store.alias(line, "live")
        if live is None:
            raise InputMissingError(f"line {line!r} has no live checkpoint", hint="make one with `rtrl init`")
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
        from evals.gate import Rules, compare, decide
        from stages.eval.known import as_recorded, changed_versions, conditions
        from stages.eval.report import figures
        from stages.eval.subjects import Engines
        from stages.eval.suites import build

        ctx = replace(ctx, workspace=as_recorded(ctx.workspace, extra))  # a repeated run's, not today's
        suites = build(config, ctx.workspace.root)
        rules = Rules(config.alpha, config.infra_limit)

        def start(folder: Path) -> ChatEngine:
            return self._engine(ctx.workspace, folder)

        with Engines(start, ctx.seed, ctx.store.checkpoint_folder) as engines:
            work = _Work(config, inputs, ctx, engines)
            arms = [(spec, work.arms(suite, spec)) for suite, spec in suites]
        verdict = decide(arms, rules)
        drift = [
            compare(spec, (candidate, anchor), rules)
            for spec, (candidate, _) in arms
            if (anchor := work.stored("anchor", spec)) is not None
        ]
        meta = _written(out_dir / "report", arms, verdict, drift, work) | {
            "conditions": conditions(ctx.workspace, config)
        }
        ctx.log.write("eval.verdict", verdict=verdict.verdict, reasons=list(verdict.reasons))
        versions = changed_versions(extra, ctx.workspace.settings.engine)
        return Outcome(
            status=_STATUS[verdict.verdict],
            outputs={"report": Output("report", meta)},
            metrics={"verdict": verdict.verdict, "suites": figures(verdict.suites)},
            warnings=[*verdict.reasons, *work.notes, *work.warnings, *versions],
        )


class _Work:
    """One eval's arms: which attempts are made, which are reused."""

    def __init__(
        self, config: EvalConfig, inputs: Mapping[str, Artifact], ctx: RunContext, engines: Engines
    ) -> None:
        self._config, self.inputs, self.ctx, self._engines = config, inputs, ctx, engines
        self.reuse: dict[str, Reuse] = {}
        self.notes: list[str] = []  # part of the report
        self.warnings: list[str] = []  # of this run, not of its result
        if inputs["candidate"].digest == inputs["baseline"].digest:
            self.notes.append("the candidate is the live checkpoint: this compares it with itself")

    def arms(self, suite: Suite, spec: SuiteSpec) -> tuple[Sequence[Attempt], Sequence[Attempt]]:
        """The candidate's and the live checkpoint's attempts."""
        return self._made("candidate", suite, spec), self._baseline(suite, spec)

    def _made(self, role: str, suite: Suite, spec: SuiteSpec) -> list[Attempt]:
        from stages.eval import arms

        subject = self._engines.subject(self.inputs[role])
        return arms.make(suite, subject, suite.cases(), self._kept(spec, role), self.ctx.progress)

    def _kept(self, spec: SuiteSpec, what: str) -> Kept:
        from stages.eval.kept import Kept, kept_name

        return Kept(self.ctx.scratch / kept_name(spec.name, what), self.warnings.append)

    def _baseline(self, suite: Suite, spec: SuiteSpec) -> list[Attempt]:
        from stages.eval import arms

        stored = self.stored("baseline", spec)
        if stored is None or sorted({one.case for one in stored}) != sorted(suite.cases()):
            return self._made("baseline", suite, spec)
        found, account = arms.reuse(
            suite,
            self._engines.subject(self.inputs["baseline"]),
            spec,
            stored,
            self.inputs[_ROLES["baseline"]].ref,
            share=self._config.rerun_share,
            seed=self.ctx.seed,
            kept=self._kept(spec, "baseline-again"),
            progress=self.ctx.progress,
        )
        self.reuse[spec.name] = account
        if found is None:
            self.notes.append(account.note)
            return self._made("baseline", suite, spec)
        return found

    def stored(self, role: str, spec: SuiteSpec) -> list[Attempt] | None:
        """Attempts of the live or anchor checkpoint in the report that was found for it."""
        from stages.eval import attempts as files

        report = self.inputs.get(_ROLES[role])
        if report is None or role not in self.inputs:
            return None
        for row in report.meta["attempts"]:
            if row["suite"] == spec.name and row["checkpoint"] == self.inputs[role].digest:
                return files.read(report.path / str(row["file"]), spec)
        return None


def _written(
    folder: Path,
    arms: Sequence[tuple[SuiteSpec, tuple[Sequence[Attempt], Sequence[Attempt]]]],
    verdict: Verdict,
    drift: list[SuiteResult],
    work: _Work,
) -> dict[str, Any]:
    """Attempts and report, written into `folder`; the report's meta."""
    from stages.eval import attempts as files
    from stages.eval import report

    folder.mkdir(parents=True)
    for spec, pair in arms:
        for role, tried in zip(("candidate", "baseline"), pair, strict=True):
            files.write(folder / files.file_name(spec.name, role), spec, tried)
    facts = report.Facts(
        line=work.ctx.workspace.settings.workspace.line,
        candidate=work.inputs["candidate"],
        baseline=work.inputs["baseline"],
        anchor=work.inputs.get("anchor"),
        reuse=work.reuse,
        drift=drift,
        notes=work.notes,
    )
    report.write(folder, verdict, facts)
    return {**report.meta(verdict, facts), "attempts": _listed([spec for spec, _ in arms], work.inputs)}


def _reports(
    workspace: Workspace, store: Store, config: EvalConfig, inputs: Mapping[str, Artifact]
) -> dict[str, Artifact]:
    from stages.eval.known import conditions, report_with

    if not config.cache:
        return {}
    under = conditions(workspace, config)
    line = workspace.settings.workspace.line
    found = {}
    for role, name in _ROLES.items():
        if role in inputs:
            known = report_with(store, line, inputs[role].digest, under, besides=inputs["candidate"].digest)
            if known is not None:
                found[name] = known
    return found


def _listed(specs: Sequence[SuiteSpec], inputs: Mapping[str, Artifact]) -> list[dict[str, str]]:
    from stages.eval import attempts as files

    return [
        {
            "suite": spec.name,
            "role": role,
            "checkpoint": inputs[role].digest,
            "file": files.file_name(spec.name, role),
        }
        for spec in specs
        for role in ("candidate", "baseline")
    ]


STAGE = EvalStage()
