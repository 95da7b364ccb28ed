"""One eval at work: whose attempts are made and whose are reused, look by look, and what is written.

Not here: resolving inputs and exit codes (`run.py`), how attempts are made (`arms.py`), the decision
(`evals/gate.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cursorbench.harness.budget import StopReason
from evals.cases import Attempt, SuiteSpec
from evals.gate import Compared, Rules, Verdict, decide
from evals.stats.sequential import Look
from evals.suites.base import Suite
from stages.eval import arms, report
from stages.eval import attempts as files
from stages.eval.config import EvalConfig
from stages.eval.kept import Kept, kept_name
from stages.eval.known import stands_in
from stages.eval.subjects import Engines, seed_of
from stages.eval.suites import with_margins
from stages.stage import Artifact, RunContext

STORED = {"baseline": "baseline_attempts", "anchor": "anchor_attempts"}  # role to the report's input name


def looked(work: Work, suites: Sequence[tuple[Suite, SuiteSpec]]) -> Verdict:
    """Try and decide; while it is inconclusive, add attempts and decide again, as often as planned."""
    planned = work.config.looks if any(spec.sampled for _, spec in suites) else 1
    for number in range(1, planned + 1):
        for suite, spec in suites:
            if number == 1 or spec.sampled:
                work.add(suite, spec, number)
        rules = Rules(work.config.alpha, work.config.infra_limit, Look(number, planned))
        verdict = decide(work.compared("baseline"), rules, work.compared("anchor"))
        work.ctx.log.write("eval.look", number=number, planned=planned, verdict=verdict.verdict)
        if verdict.verdict != "inconclusive":
            break
    return verdict


class Work:
    """The attempts of candidate, live checkpoint and anchor.

    Attributes:
        inputs: artifacts by role; reports whose attempts may be reused by the names in STORED.
        notes: part of the report.
        warnings: of this run, not of its result.
    """

    def __init__(
        self, config: EvalConfig, inputs: Mapping[str, Artifact], ctx: RunContext, engines: Engines
    ) -> None:
        self.config, self.inputs, self.ctx, self._engines = config, inputs, ctx, engines
        self._specs: dict[str, SuiteSpec] = {}
        self._tried: dict[tuple[str, str], list[Attempt]] = {}
        self._reuse: dict[str, arms.Reuse] = {}
        self.notes: list[str] = []
        self.warnings: list[str] = []
        if inputs["candidate"].digest == inputs["baseline"].digest:
            self.notes.append("the candidate is the live checkpoint: this compares it with itself")

    def add(self, suite: Suite, spec: SuiteSpec, look: int) -> None:
        """The attempts of one suite that a look adds. The anchor's are made once."""
        self._specs[spec.name] = spec
        self._extend("candidate", spec, self._made("candidate", suite, spec, look))
        self._extend("baseline", spec, self._baseline(suite, spec, look))
        if "anchor" in self.inputs and look == 1:
            self._extend("anchor", spec, self._anchor(suite, spec))

    def compared(self, role: str) -> Compared:
        """Per suite the candidate's attempts and those of another checkpoint, which may not be there."""
        margins = self.config.drift_margins if role == "anchor" else {}
        return [
            (with_margins(spec, margins), (self._tried["candidate", name], self._tried[role, name]))
            for name, spec in self._specs.items()
            if (role, name) in self._tried
        ]

    def write(self, folder: Path, verdict: Verdict) -> dict[str, Any]:
        """Attempts and report, written into `folder`; the report's meta."""
        folder.mkdir(parents=True)
        self.notes += self._cut()
        listed = []
        for (role, name), tried in self._tried.items():
            file = files.file_name(name, role)
            files.write(folder / file, self._specs[name], tried)
            checkpoint = self.inputs[role].digest
            listed.append({"suite": name, "role": role, "checkpoint": checkpoint, "file": file})
        facts = report.Facts(
            line=self.ctx.workspace.settings.workspace.line,
            candidate=self.inputs["candidate"],
            baseline=self.inputs["baseline"],
            anchor=self.inputs.get("anchor"),
            reuse=self._reuse,
            notes=self.notes,
        )
        report.write(folder, verdict, facts)
        return {**report.meta(verdict, facts), "attempts": listed}

    def _cut(self) -> list[str]:
        """What is to be said of suites in which most answers ended before they said or did anything."""
        told = []
        for name in self._specs:
            tried = self._tried["baseline", name]
            cut = sum(one.detail.get("stop") == StopReason.TRUNCATED for one in tried)
            if 2 * cut > len(tried):
                told.append(
                    f"{name}: {cut} of {len(tried)} answers of the live checkpoint were cut by their length: "
                    "this suite says little then. A model that thinks needs more (eval.max_tokens)"
                )
        return told

    def _extend(self, role: str, spec: SuiteSpec, made: Sequence[Attempt]) -> None:
        self._tried.setdefault((role, spec.name), []).extend(made)

    def _made(self, role: str, suite: Suite, spec: SuiteSpec, look: int) -> list[Attempt]:
        subject = self._engines.subject(self.inputs[role], look)
        kept = self._kept(spec, role if look == 1 else f"{role}-{look}")
        first = (look - 1) * spec.attempts
        return arms.make(suite, subject, suite.cases(), kept, self.ctx.progress, first=first)

    def _kept(self, spec: SuiteSpec, what: str) -> Kept:
        return Kept(self.ctx.scratch / kept_name(spec.name, what), self.warnings.append)

    def _baseline(self, suite: Suite, spec: SuiteSpec, look: int) -> list[Attempt]:
        stored = self._stored("baseline", suite, spec, look)
        known = self._reuse.get(spec.name)
        if stored is None or (known is not None and not known.reused):
            return self._made("baseline", suite, spec, look)
        if look > 1:
            return stored  # checked at the first look
        found, self._reuse[spec.name] = self._checked("baseline", suite, spec, stored)
        return found or self._made("baseline", suite, spec, look)

    def _anchor(self, suite: Suite, spec: SuiteSpec) -> list[Attempt]:
        """Stored attempts, unless the live checkpoint's showed that answers are others now; where none of
        these were held against new ones, the anchor's are."""
        stored = self._stored("anchor", suite, spec, 1)
        known = self._reuse.get(spec.name)
        if stored is None or (known is not None and not known.reused):
            return self._made("anchor", suite, spec, 1)
        if known is not None:
            return stored
        return self._checked("anchor", suite, spec, stored)[0] or self._made("anchor", suite, spec, 1)

    def _checked(
        self, role: str, suite: Suite, spec: SuiteSpec, stored: list[Attempt]
    ) -> tuple[list[Attempt] | None, arms.Reuse]:
        """Stored attempts after a share of them was made again; None, and a note, where these disagree."""
        found, account = arms.reuse(
            suite,
            self._engines.subject(self.inputs[role]),
            spec,
            stored,
            self.inputs[STORED[role]].ref,
            share=self.config.rerun_share,
            seed=seed_of(self.ctx.seed, self.inputs["candidate"]),
            kept=self._kept(spec, f"{role}-again"),
            progress=self.ctx.progress,
        )
        if found is None:
            self.notes.append(account.note)
        return found, account

    def _stored(self, role: str, suite: Suite, spec: SuiteSpec, look: int) -> list[Attempt] | None:
        """A look's attempts of a checkpoint in the report found for it; None unless there for all cases."""
        kept_in = self.inputs.get(STORED[role])
        if kept_in is None:
            return None
        numbers = range((look - 1) * spec.attempts, look * spec.attempts)
        for row in kept_in.meta["attempts"]:
            if row["suite"] == spec.name and stands_in(row, self.inputs[role].digest):
                every = files.read(kept_in.path / str(row["file"]), spec)
                found = [one for one in every if one.attempt in numbers]
                return found if {one.case for one in found} == set(suite.cases()) else None
        return None
