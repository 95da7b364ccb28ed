"""`rollback`: the previous checkpoint and its line state back, now. Needs no report and no statistics.

While a canary is open, it is what is taken away: its users get the live checkpoint again.

Traffic first (`stages/target/switch.py`): an answer that takes longer than the drain time is cut short,
and no longer kept waiting for. Then the registry. The line state follows from the checkpoint:
the next distill and train read the one that was made with it, so nothing of the rolled-back
checkpoint's memory is used. The record of who, why, from and to is the new deployment and the run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from stages.errors import InputMissingError, UsageError
from stages.populations import require_line
from stages.registry.aliases import was_live
from stages.registry.deployments import Deployment
from stages.registry.store import Store
from stages.rollback.config import RollbackConfig
from stages.rollback.traffic import Moved
from stages.stage import Artifact, Kind, Outcome, RunContext
from stages.target.canary import canary_of, end, require_open
from stages.target.completed import complete
from stages.target.intent import remove_intent
from stages.target.switch import (
    Switch,
    bring_back,
    is_served,
    perform,
    previous_of,
    require_reachable,
)
from stages.workspace import Workspace


def leaving(store: Store, line: str) -> Deployment | None:
    """The deployment that a rollback ends: the live one, or the one an interrupted rollback left."""
    current = store.deployments.current(line)
    if current is not None:
        return current
    return next((d for d in store.deployments.unfinished(line) if d.state == "rolling_back"), None)


@dataclass
class RollbackStage:
    """The stage. Its attributes are flags of one run, not settings.

    Attributes:
        reason: why, for the record.
        offline: nothing is running: only say what the next `rtrl serve` serves.
        moved: the traffic has been moved already (`first.py`).
        only: id of the canary that is to be taken away; when it is not open any more, nothing is done.
        asked: id of the deployment that was to be taken back when this was asked for; when another rollback
            has done so since, nothing is done.
    """

    name: str = "rollback"
    config: type[BaseModel] = RollbackConfig
    takes: tuple[Kind, ...] = ("checkpoint",)
    reason: str = ""
    offline: bool = False
    moved: Moved | None = None
    only: str = ""
    asked: str = ""

    def settle(self, workspace: Workspace, store: Store) -> None:
        """Another one that is not on record yet comes first. Under the lock, before `resolve`."""
        if self.moved is None:
            complete(store, workspace.run_dir, workspace.settings.workspace.line)

    def resolve(self, workspace: Workspace, store: Store, refs: Mapping[str, str]) -> dict[str, Artifact]:
        """`checkpoint`: where to go back to (named, or what was live before); `line_state`: its memory.

        Raises:
            InputMissingError (5): nothing was live before, or it is gone; or `only` is; or no such line.
            UsageError (2): what is named was never live, and no reason is given.
        """
        require_line(store, workspace.settings)
        line = workspace.settings.workspace.line
        require_open(store, line, self.only)
        live = store.alias(line, "live")
        if named := refs.get("checkpoint"):
            target = store.resolve(named, line)
            if _never_live(store, line, target, live) and not self.reason.strip():
                raise UsageError(
                    f"{target.ref} was never live on line {line}, and no report is asked for here",
                    hint=f"`rtrl deploy --input {target.ref}` asks the gate; or take the responsibility: "
                    '--reason "..."',
                )
        elif live is not None and self._taken_back(store):
            target = live
        else:
            ended = canary_of(store, line) or leaving(store, line)
            if ended is None or ended.previous is None:
                raise InputMissingError(
                    f"nothing was live on line {line} before what is live now",
                    hint="name a checkpoint with --to; `rtrl status` lists them",
                )
            target = store.resolve(ended.previous, line)
        require_reachable(workspace, offline=self.offline)
        return {"checkpoint": target, "line_state": store.line_state_of(target.digest)}

    def extra(self, workspace: Workspace, store: Store, config: BaseModel) -> Mapping[str, Any]:
        """The flags, on record with the run, so that it can be repeated."""
        return {"reason": self.reason, "offline": self.offline}

    def run(
        self,
        config: BaseModel,
        inputs: Mapping[str, Artifact],
        extra: Mapping[str, Any],
        out_dir: Path,
        ctx: RunContext,
    ) -> Outcome:
        """Serve the earlier checkpoint; no outputs. Raises IntegrityError (12), DependencyDownError (13)."""
        store, live = ctx.store, ctx.store.alias(ctx.workspace.settings.workspace.line, "live")
        require_open(store, ctx.workspace.settings.workspace.line, self.only)
        switch, facts = _decided(config, inputs, extra, ctx, live)
        if self._taken_back(store) and live is not None and live.digest == switch.target.digest:
            return Outcome(metrics={**facts, "changed": False, "taken_back": self.asked}, noop=True)
        if self.moved is not None and self.moved.intent.checkpoint == switch.target.digest:
            moved = self.moved
            switch = replace(switch, moved=moved.intent, proof=moved.answer, begun=moved.began)
            facts["traffic_s"] = moved.seconds
        if (canary := canary_of(store, switch.line)) is not None and not store.is_scratch:
            facts |= _end_canary(ctx, switch, canary)
            ctx.log.write("rollback.canary", **facts)
            if live is not None and live.digest == switch.target.digest:
                bring_back(ctx.workspace, store, switch)  # a promotion that was killed may have gone on
                if self.moved is not None:
                    remove_intent(ctx.workspace.run_dir, switch.line)
                return Outcome(metrics={**facts, "changed": True})
        if is_served(ctx.workspace, store, switch, live):
            return Outcome(metrics={**facts, "changed": False}, noop=True)
        facts |= perform(ctx.workspace, store, switch, ctx.progress)
        ctx.log.write("rollback.live", **facts)
        never = f"{switch.target.ref} was never live before, and no report was asked for: {switch.reason}"
        warnings = [never] if switch.override else []
        if live is not None:
            warnings += _elsewhere(ctx.workspace, store, live, switch.target)
        return Outcome(metrics={**facts, "changed": True}, warnings=warnings)

    def _taken_back(self, store: Store) -> bool:
        with contextlib.suppress(InputMissingError):  # of a rollback that is not on record yet
            return bool(self.asked) and store.deployments.get(self.asked).state == "rolled_back"
        return False

    def plan(
        self, config: BaseModel, inputs: Mapping[str, Artifact], extra: Mapping[str, Any], ctx: RunContext
    ) -> Mapping[str, Any]:
        """What `--dry-run` says: what would be served in place of what, and why."""
        live = ctx.store.alias(ctx.workspace.settings.workspace.line, "live")
        switch, facts = _decided(config, inputs, extra, ctx, live)
        canary = canary_of(ctx.store, switch.line)
        if canary is not None:
            facts["canary"] = canary.id
        changed = canary is not None or not is_served(ctx.workspace, ctx.store, switch, live)
        return {**facts, "changed": changed}


def _never_live(store: Store, line: str, target: Artifact, live: Artifact | None) -> bool:
    """Whether going to `target` is no way back: nothing that passed a gate, or began the line."""
    same = live is not None and live.digest == target.digest
    return not same and not was_live(store, line, target.digest)


def _elsewhere(workspace: Workspace, store: Store, left: Artifact, back: Artifact) -> list[str]:
    """A warning for each other line whose users have what was taken back here, or what came of it: a
    population's line begins with a checkpoint of the main line's, and does not follow it back."""
    settings, found = workspace.settings, []
    for line in sorted({*settings.populations, settings.workspace.serves} - {settings.workspace.line}):
        live = store.alias(line, "live")
        if live is None or left.digest not in (live.digest, *store.ancestors(live.digest)):
            continue
        what = "is live" if live.digest == left.digest else f"was trained on to {live.ref}, which is live"
        way = f"`rtrl rollback --line {line} --to {back.ref} --reason ...`"
        found.append(f"{left.ref} {what} on line {line}: {way} takes it back there, too")
    return found


def _end_canary(ctx: RunContext, switch: Switch, canary: Deployment) -> dict[str, Any]:
    done = end(
        ctx.workspace,
        ctx.store,
        canary,
        switch.reason,
        drain_s=switch.drain_s,
        offline=switch.offline,
    )
    checkpoint = ctx.store.artifact(canary.checkpoint)
    return {"canary": checkpoint.ref if checkpoint else canary.checkpoint, "canary_ended": canary.id, **done}


def _decided(
    config: BaseModel,
    inputs: Mapping[str, Artifact],
    extra: Mapping[str, Any],
    ctx: RunContext,
    live: Artifact | None,
) -> tuple[Switch, dict[str, Any]]:
    """What is to be done, and that in facts for people."""
    assert isinstance(config, RollbackConfig)
    store, line = ctx.store, ctx.workspace.settings.workspace.line
    target = inputs["checkpoint"]
    ended = leaving(store, line)
    before = ended.previous if ended else None
    same = live is not None and live.digest == target.digest
    switch = Switch(
        line=line,
        target=target,
        previous=before if same else previous_of(store, line, target.digest, before),
        reason=extra["reason"] or "rollback",
        run_id=ctx.run_id,
        offline=extra["offline"],
        drain_s=config.drain_timeout_s,
        timeout_s=config.swap_timeout_s,
        override=_never_live(store, line, target, live),
        cut=True,
        limit_s=config.engine_timeout_s,
        leaving=None if same else ended,
        data={"from": live.digest if live else None, "rollback_of": ended.id if ended else None},
    )
    facts: dict[str, Any] = {
        "checkpoint": target.ref,
        "from": live.ref if live else None,
        "line_state": inputs["line_state"].ref,
        "reason": switch.reason,
    }
    return switch, facts


STAGE = RollbackStage()
