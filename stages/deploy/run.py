"""`deploy`: serve a checkpoint that passed the gate.

Compares with what is really served, never with what was done before: the same command again is a
no-op only when gateway and registry both have the checkpoint. How traffic, proof and alias move is in
`stages/target/switch.py`; which checkpoint may pass is in `choose.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from stages.deploy.choose import default_candidate, objection, other_rules, report_for, tried_before
from stages.deploy.config import DeployConfig
from stages.errors import InputMissingError, UsageError
from stages.monitor.gate import alarmed
from stages.populations import require_line
from stages.registry.store import Store
from stages.stage import Artifact, Kind, Outcome, RunContext
from stages.target.canary import (
    canary_of,
    open_canary,
    promote,
    rehearse,
    require_none,
    require_open,
    undecided,
)
from stages.target.completed import complete
from stages.target.switch import Before, Switch, is_served, perform, require_reachable
from stages.target.taken_back import refuse_taken_back, warn_taken_back
from stages.workspace import Workspace


@dataclass
class DeployStage:
    """The stage. Its attributes are flags of one run, not settings.

    Attributes:
        override: deploy without a passing report; recorded, wants a reason.
        reason: why, for the record.
        offline: nothing is running: only say what the next `rtrl serve` serves.
        canary: share of the users to serve it to first, from an engine of its own; 0 is everybody at once,
            None is `deploy.canary_share`.
        promote: serve the open canary's checkpoint to everybody.
        only: with `promote`, the id of the canary that it has to be.
    """

    name: str = "deploy"
    config: type[BaseModel] = DeployConfig
    takes: tuple[Kind, ...] = ("checkpoint",)
    override: bool = False
    reason: str = ""
    offline: bool = False
    canary: float | None = None
    promote: bool = False
    only: str = ""

    def check(self, workspace: Workspace) -> None:
        """Whether `deploy.store` is a kind of store that there is, which a cycle asks before it begins.

        What is in it is not looked at. Raises as `Depot` (5, 13).
        """
        if url := workspace.settings.deploy.store:
            from stages.delivery.depot import Depot

            Depot(url)

    def resolve(self, workspace: Workspace, store: Store, refs: Mapping[str, str]) -> dict[str, Artifact]:
        """`checkpoint`: the candidate; `report`: what lets it pass, when there is one.

        Raises:
            UsageError (2): --override without --reason, or flags that exclude each other.
            GateRejectedError (3), InconclusiveError (4): the gate does not let it through; or nobody named
                it, and it was taken back as a canary when it was last served, or trained from such a one.
            InputMissingError (5): no such checkpoint, or no such line.
        """
        if self.override and not self.reason.strip():
            raise UsageError("--override wants --reason", hint='say why: --reason "..."')
        if self.canary and (self.offline or self.promote):
            raise UsageError("--canary goes with neither --offline nor --promote", hint="leave one away")
        if self.promote and self.offline:  # its engine is the one that is promoted
            raise UsageError("--promote does not go with --offline", hint="start `rtrl serve`")
        require_line(store, workspace.settings)
        line = workspace.settings.workspace.line
        live = store.alias(line, "live")
        if self.promote:
            return self._promoted(workspace, store, line, refs)
        require_none(store, line)
        named = refs.get("checkpoint")
        candidate = store.resolve(named, line) if named else default_candidate(store, line, live)
        report = report_for(store, line, candidate, live)
        objected = objection(candidate, live, report) or alarmed(workspace, store, candidate, live)
        if objected and not self.override:
            raise objected
        if named is None and not self.override and not (live and live.digest == candidate.digest):
            refuse_taken_back(store, line, candidate, asked=True)
        require_reachable(workspace, offline=self.offline)
        return {"checkpoint": candidate} | ({"report": report} if report else {})

    def _promoted(
        self, workspace: Workspace, store: Store, line: str, refs: Mapping[str, str]
    ) -> dict[str, Artifact]:
        """The open canary's checkpoint, and the report that let it be one."""
        require_open(store, line, self.only)
        open_ = canary_of(store, line)
        if open_ is None:
            raise InputMissingError(
                f"no canary of line {line} is open", hint="`rtrl deploy --canary 0.1` opens one"
            )
        candidate = store.resolve(open_.checkpoint, line)
        if "checkpoint" in refs and store.resolve(refs["checkpoint"], line).digest != candidate.digest:
            raise UsageError(f"the canary is {candidate.ref}", hint="leave --input away with --promote")
        live = store.alias(line, "live")
        report = store.resolve(open_.report) if open_.report else None
        newest, objected = report_for(store, line, candidate, live), None
        if newest is not None and newest.meta.get("verdict") == "regressed" and newest.digest != open_.report:
            report, objected = newest, objection(candidate, live, newest)
        objected = objected or alarmed(workspace, store, candidate, live)  # both since it was opened
        if objected and not self.override:
            raise objected
        require_reachable(workspace, offline=self.offline)
        return {"checkpoint": candidate} | ({"report": report} if report else {})

    def settle(self, workspace: Workspace, store: Store) -> None:
        """A rollback that is not on record yet comes first. Under the lock, before `resolve`."""
        complete(store, workspace.run_dir, workspace.settings.workspace.line)

    def extra(self, workspace: Workspace, store: Store, config: BaseModel) -> Mapping[str, Any]:
        """The flags, on record with the run, so that it can be repeated."""
        return {
            "override": self.override,
            "reason": self.reason,
            "offline": self.offline,
            "canary": self.canary,
            "promote": self.promote,
        }

    def run(
        self,
        config: BaseModel,
        inputs: Mapping[str, Artifact],
        extra: Mapping[str, Any],
        out_dir: Path,
        ctx: RunContext,
    ) -> Outcome:
        """Serve the checkpoint; no outputs. Raises IntegrityError (12), DependencyDownError (13)."""
        store, live = ctx.store, ctx.store.alias(ctx.workspace.settings.workspace.line, "live")
        switch, facts = _decided(config, inputs, extra, ctx, live)
        if is_served(ctx.workspace, store, switch, live):
            return Outcome(metrics={**facts, "changed": False}, noop=True)
        warnings = [f"deployed without a passing report: {extra['reason']}"] if switch.override else []
        if (report := inputs.get("report")) is not None and not switch.override:
            warnings += other_rules(store, ctx.workspace.settings.eval, report)
            warnings += tried_before(store, switch.line, report)
        warnings += warn_taken_back(store, switch.line, switch.target) + _to_all(config, extra, live)
        facts |= _offered(config, ctx, switch)
        canary = canary_of(store, switch.line) if extra.get("promote") else None
        if (share := _share(config, extra, live)) and not store.is_scratch:
            warnings += undecided(ctx.workspace.settings)
            facts |= open_canary(ctx.workspace, store, switch, share, ctx.progress)
            ctx.log.write("deploy.canary", **facts)
        elif canary is not None and not store.is_scratch:
            facts |= promote(ctx.workspace, store, switch, canary, ctx.progress)
            ctx.log.write("deploy.live", **facts)
        else:
            facts |= perform(ctx.workspace, store, switch, ctx.progress, _before(config, ctx, switch))
            ctx.log.write("deploy.live", **facts)
        if (tried := facts.get("shadow", {})).get("passed") is False:
            warnings.append(f"deployed although shadow replay failed ({tried['reason']}): {extra['reason']}")
        return Outcome(metrics={**facts, "changed": True}, warnings=warnings)

    def plan(
        self, config: BaseModel, inputs: Mapping[str, Artifact], extra: Mapping[str, Any], ctx: RunContext
    ) -> Mapping[str, Any]:
        """What `--dry-run` says: what would be served in place of what, to whom (`share` where not to all,
        `promotes` where a canary becomes it), and what for."""
        line = ctx.workspace.settings.workspace.line
        live = ctx.store.alias(line, "live")
        switch, facts = _decided(config, inputs, extra, ctx, live)
        if share := _share(config, extra, live):
            facts["share"] = share
        elif extra.get("promote") and (canary := canary_of(ctx.store, line)) is not None:
            facts["promotes"] = canary.id
        return {**facts, "changed": not is_served(ctx.workspace, ctx.store, switch, live)}


def _share(config: BaseModel, extra: Mapping[str, Any], live: Artifact | None) -> float:
    """Of the users who get it first; 0 is everybody at once."""
    assert isinstance(config, DeployConfig)
    if extra.get("promote") or extra["offline"] or live is None:
        return 0.0
    asked = extra.get("canary")
    return config.canary_share if asked is None else float(asked)


def _to_all(config: BaseModel, extra: Mapping[str, Any], live: Artifact | None) -> list[str]:
    """A warning where the settings want a canary, and nothing runs that could serve one."""
    assert isinstance(config, DeployConfig)
    if not (extra["offline"] and live and config.canary_share) or extra.get("canary") is not None:
        return []
    share = f"deploy.canary_share is {config.canary_share:g}"
    return [f"{share}, and --offline serves it to everybody: nothing runs that could serve a canary"]


def _offered(config: BaseModel, ctx: RunContext, switch: Switch) -> dict[str, Any]:
    """The checkpoint in the store that engines of other machines fetch from, before anything is held up."""
    assert isinstance(config, DeployConfig)
    if not config.store or switch.offline or ctx.store.is_scratch:
        return {}
    from stages.delivery.depot import Depot
    from stages.delivery.push import push

    ctx.progress.message(f"copying what {config.store} lacks of {switch.target.ref}")
    return {"store_bytes": push(ctx.store, switch.target, Depot(config.store))}


def _before(config: BaseModel, ctx: RunContext, switch: Switch) -> Before | None:
    """Shadow replay, where it is wanted also before a deploy to everybody."""
    assert isinstance(config, DeployConfig)
    if not (config.shadow_always and config.shadow_requests):
        return None
    return lambda made: {"shadow": rehearse(ctx.workspace, ctx.store, switch, made, ctx.progress)}


def _decided(
    config: BaseModel,
    inputs: Mapping[str, Artifact],
    extra: Mapping[str, Any],
    ctx: RunContext,
    live: Artifact | None,
) -> tuple[Switch, dict[str, Any]]:
    """What is to be done, and that in facts for people."""
    assert isinstance(config, DeployConfig)
    store, line = ctx.store, ctx.workspace.settings.workspace.line
    candidate, report = inputs["checkpoint"], inputs.get("report")
    objected = objection(candidate, live, report) or alarmed(ctx.workspace, store, candidate, live)
    overridden = extra["override"] and objected is not None
    same = live is not None and live.digest == candidate.digest
    current = store.deployments.current(line)
    switch = Switch(
        line=line,
        target=candidate,
        previous=(current.previous if current else None) if same else (live.digest if live else None),
        reason=extra["reason"] or (f"{report.ref} passed" if report else "asked for"),
        run_id=ctx.run_id,
        offline=extra["offline"],
        drain_s=config.drain_timeout_s,
        timeout_s=config.swap_timeout_s,
        report=report.digest if report else None,
        override=overridden,
        override_shadow=extra["override"],
        data={"from": live.digest if live else None},
    )
    facts: dict[str, Any] = {
        "checkpoint": candidate.ref,
        "from": live.ref if live else None,
        "report": report.ref if report else None,
        "override": overridden,
        "reason": switch.reason,
    }
    return switch, facts


STAGE = DeployStage()
