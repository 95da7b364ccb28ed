"""The one way to change what a line serves: traffic, proof, then registry, with a deployment to show for it.

Used by deploy and rollback, which decide *what* to serve. The caller holds the target's lock, so no two
switches cross. Killed anywhere, what is served and the alias may differ for a moment; the next
deploy, rollback or `rtrl serve` (also the running one, see `stages/serve.py`) brings them together
again: the alias is the truth.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stages import faults
from stages.errors import RtrlError, UsageError
from stages.registry.deployments import Deployment
from stages.registry.store import Store
from stages.stage import Artifact, Progress
from stages.target.admin import Admin
from stages.target.endpoint import require_endpoint, running_endpoint
from stages.target.intent import Intent, remove_intent
from stages.who import who
from stages.workspace import Workspace


@dataclass(frozen=True)
class Switch:
    """What to serve from now on, and why.

    Attributes:
        line: the checkpoint line.
        target: the checkpoint to serve.
        previous: digest of what `rtrl rollback` goes back to afterwards; None when there is nothing.
        offline: only move the alias, for the next `rtrl serve`.
        drain_s, timeout_s: patience with requests in flight, and with the whole swap.
        cut: end those in flight when the patience is over, in place of giving up.
        override_shadow: go on also when shadow replay fails.
    """

    line: str
    target: Artifact
    previous: str | None
    reason: str
    run_id: str
    offline: bool
    drain_s: float
    timeout_s: float
    report: str | None = None
    override: bool = False
    cut: bool = False
    override_shadow: bool = False
    limit_s: float | None = None  # an engine that takes longer is started anew on the target
    moved: Intent | None = None  # the traffic is on the target already; `proof` is the gateway's answer
    proof: dict[str, Any] = field(default_factory=dict)
    begun: float = 0.0  # and when that began, by `time.monotonic`
    leaving: Deployment | None = None  # a live deployment that is being rolled back, not retired
    data: dict[str, Any] = field(default_factory=dict)


def require_reachable(workspace: Workspace, *, offline: bool) -> None:
    """Raise DependencyDownError (13) without a running gateway, UsageError (2) for --offline with one, or
    when it was started for another line."""
    settings = workspace.settings
    line = settings.workspace.line
    if not offline:
        served = require_endpoint(workspace.run_dir).line
        if line != served and line not in settings.populations:
            raise UsageError(
                f"`rtrl serve` was started for line {served}, not {line}",
                hint=f"name it with --line {served}, or correct workspace.line and start `rtrl serve` anew",
            )
    elif running_endpoint(workspace.run_dir) is not None:
        raise UsageError("--offline while `rtrl serve` is running", hint="leave --offline away")


def is_served(workspace: Workspace, store: Store, switch: Switch, live: Artifact | None) -> bool:
    """Whether registry and gateway both have the target already (of a scratch store: the registry)."""
    if live is None or live.digest != switch.target.digest:
        return False
    if switch.offline or store.is_scratch:
        return True
    admin = Admin(require_endpoint(workspace.run_dir))
    return admin.served(switch.line).is_all(switch.target.digest)


Before = Callable[[Deployment], dict[str, Any]]


def perform(
    workspace: Workspace, store: Store, switch: Switch, progress: Progress, before: Before | None = None
) -> dict[str, Any]:
    """Serve the target. Returns facts for people: deployment, seconds, verification.

    In a scratch store nothing that is served is touched: the weights are loaded into an engine of its own.
    `before` is called with the deployment before anything is changed: what it raises ends the deployment,
    what it gives is among the facts.

    Raises:
        IntegrityError (12): not what is served after loading; the old weights are back.
        DependencyDownError (13): gateway or engine do not answer.
    """
    deployment = verifying(store, switch, offline=switch.offline)
    begun = switch.begun or time.monotonic()
    facts: dict[str, Any] = {"deployment": deployment.id}
    try:
        if store.is_scratch and not switch.offline:
            progress.message(f"loading {switch.target.ref} into an engine started for it")
            facts |= _rehearse(workspace, store, switch)
        elif switch.moved is not None:
            facts |= _proof(switch.proof)
        elif not switch.offline:
            facts |= before(deployment) if before else {}
            progress.message(f"loading {switch.target.ref} into the running engine")
            facts |= _swap(workspace, store, switch, deployment.id)
        faults.point("switch.swap.after")
        _move(store, switch, deployment)
    except RtrlError as error:
        store.deployments.transition(deployment.id, "verifying", "failed", error=error.message)
        if not store.is_scratch and switch.moved is None:
            bring_back(workspace, store, switch)
        raise
    faults.point("switch.alias.after")
    if switch.moved is not None:
        remove_intent(workspace.run_dir, switch.line)
    facts["switch_s"] = round(time.monotonic() - begun, 3)
    return facts


def verifying(store: Store, switch: Switch, **data: Any) -> Deployment:
    """A deployment of the switch's target, on record and about to be verified; `data` goes with it."""
    end_interrupted(store, switch.line)
    deployment = store.deployments.create(
        switch.line,
        switch.target.digest,
        by=who(),
        reason=switch.reason,
        report=switch.report,
        previous=switch.previous,
        override=switch.override,
        run_id=switch.run_id,
        data={**switch.data, **data},
        deployment_id=switch.moved.deployment if switch.moved is not None else "",
    )
    faults.point("switch.staged.after")
    return store.deployments.transition(deployment.id, "staged", "verifying")


def _swap(workspace: Workspace, store: Store, switch: Switch, deployment: str) -> dict[str, Any]:
    folder = store.checkpoint_folder(switch.target)
    endpoint = require_endpoint(workspace.run_dir)
    starts = workspace.settings.engine.startup_timeout_s if switch.line != endpoint.line else 0.0
    admin = Admin(endpoint)
    answer = admin.swap(
        line=switch.line,
        checkpoint=switch.target.digest,
        path=folder,
        deployment=deployment,
        drain_s=switch.drain_s,
        timeout_s=switch.timeout_s + starts,  # a population's line may have no engine yet
        cut=switch.cut,
        limit_s=switch.limit_s,
    )
    return _proof(answer)


def _proof(answer: Mapping[str, Any]) -> dict[str, Any]:
    """What the gateway says of a swap, for people; `restarting` when the engine has to start anew."""
    restarting = {"restarting": True} if answer.get("restarting") else {}
    engines = {"engines": answer["engines"]} if answer.get("engines") else {}
    return {"verification": answer.get("verification", {}), **restarting, **engines}


def _rehearse(workspace: Workspace, store: Store, switch: Switch) -> dict[str, Any]:
    """The same weights over the same weights, and the same proof, in an engine that nobody uses."""
    from stages.engine.inprocess import InProcessEngine

    before = store.alias(switch.line, "live") or switch.target
    folder = store.checkpoint_folder(switch.target)
    log = workspace.store_dir / "logs" / f"rehearsal-engine-{switch.line}.log"
    with InProcessEngine(store.checkpoint_folder(before), workspace.settings.engine, log=log) as engine:
        return {"verification": engine.load_weights(folder).as_dict(), "rehearsed": True}


def bring_back(workspace: Workspace, store: Store, switch: Switch) -> None:
    """Traffic goes to the alias where it is not there: the alias could not follow it, or a command that has
    died still changes what is served."""
    live, current = store.alias(switch.line, "live"), store.deployments.current(switch.line)
    endpoint = running_endpoint(workspace.run_dir)
    if live is None or endpoint is None:
        return
    with contextlib.suppress(RtrlError):  # else `rtrl serve` does it
        admin = Admin(endpoint)
        served = admin.served(switch.line)
        own = served.line == switch.line  # a population's may have no engine
        if own and (not served.is_all(live.digest) or served.is_changing):
            admin.swap(
                line=switch.line,
                checkpoint=live.digest,
                path=store.checkpoint_folder(live),
                deployment=current.id if current else "",
                drain_s=switch.drain_s,
                timeout_s=switch.timeout_s,
                cut=switch.cut,
                limit_s=switch.limit_s,
            )


def _move(store: Store, switch: Switch, deployment: Deployment) -> None:
    user = who()
    record(store, switch.line, switch.target, deployment, switch.reason, user, switch.leaving)


def record(
    store: Store,
    line: str,
    target: Artifact,
    deployment: Deployment,
    reason: str,
    by: str,
    leaving: Deployment | None,
) -> None:
    """The deployment is live, and `leaving` (if it was) rolled back."""
    if leaving is not None and leaving.state == "live":
        store.deployments.transition(leaving.id, "live", "rolling_back", rollback_reason=reason, by=by)
        faults.point("switch.rolling_back.after")
    store.move_alias(line, "live", target.digest, reason=reason, by=by, deployment_id=deployment.id)


def interrupted(store: Store, line: str) -> list[Deployment]:
    """Deployments on their way live. When nobody holds the target's lock, their commands have died."""
    return [each for each in store.deployments.unfinished(line) if each.state in ("staged", "verifying")]


def end_interrupted(store: Store, line: str) -> list[str]:
    """Mark deployments whose command died before they went live as failed; their ids."""
    ended = []
    for deployment in interrupted(store, line):
        store.deployments.transition(
            deployment.id, deployment.state, "failed", error="the command that made it was interrupted"
        )
        ended.append(deployment.id)
    return ended


def previous_of(store: Store, line: str, checkpoint: str, never: str | None = None) -> str | None:
    """What was served before `checkpoint` the first time it went live: where a second rollback leads.

    None for what a line began with, `never` for what was not live before. All are digests.
    """
    for deployment in reversed(store.deployments.history(line, limit=None)):
        was_live = deployment.state != "failed" and deployment.data.get("ended_as") != "canary"
        if deployment.checkpoint == checkpoint and was_live:
            return deployment.previous
        if deployment.previous == checkpoint:  # live by `rtrl init`, without a deployment
            return None
    return never
