"""A canary of a line: opened for a share of its users, promoted to all, or taken away.

The same order as in `switch.py`: traffic and proof first, then the registry; what was killed in between,
the running gateway brings to its end (`stages/serving/canary.py`). The caller holds the target's lock.
Not here: what the arms are worth (`stages/ab/`).
"""

from __future__ import annotations

import contextlib
import time
from functools import partial
from pathlib import Path
from typing import Any

from stages import faults
from stages.config import Settings
from stages.errors import DependencyDownError, InputMissingError, LockedError, RtrlError
from stages.registry.deployments import Deployment
from stages.registry.states import StateError
from stages.registry.store import Store
from stages.stage import Progress
from stages.target.admin import Admin
from stages.target.as_served import as_served
from stages.target.endpoint import require_endpoint
from stages.target.names import named
from stages.target.switch import Switch, bring_back, record, verifying
from stages.who import who
from stages.wording import percent
from stages.workspace import Workspace


def canary_of(store: Store, line: str) -> Deployment | None:
    """The line's open canary."""
    return next((each for each in store.deployments.unfinished(line) if each.state == "canary"), None)


def require_none(store: Store, line: str) -> None:
    """Raise LockedError (exit 11) while a canary is open: candidates queue, they do not stack."""
    if (open_ := canary_of(store, line)) is not None:
        raise LockedError(
            f"a canary of line {line} is open ({open_.id})",
            hint="`rtrl ab` says how it does; `rtrl deploy --promote` or `rtrl rollback` ends it",
        )


def require_open(store: Store, line: str, only: str) -> None:
    """Raise InputMissingError (exit 5) when `only` is not the open canary's id; "" asks for none."""
    open_ = canary_of(store, line) if only else None
    if only and (open_ is None or open_.id != only):
        raise InputMissingError(
            f"{only} is no open canary of line {line} any more", hint=f"`rtrl show {only}` says how it ended"
        )


def undecided(settings: Settings) -> list[str]:
    """A warning where a canary's promotion is decided before any episode of it can be mature."""
    collect, ab = settings.collect, settings.ab.horizon_s
    ripe = collect.horizon_s + collect.grace_s
    if ab > ripe or collect.clock == "events":
        return []
    return [
        f"`rtrl ab` decides {ab:g} s after the opening (ab.horizon_s), and episodes count {ripe:g} s after "
        "their end (collect.horizon_s and grace_s): nothing will be known by then, and the canary is held"
    ]


def open_canary(
    workspace: Workspace,
    store: Store,
    switch: Switch,
    share: float,
    progress: Progress,
) -> dict[str, Any]:
    """Serve the target to `share` (0 to 1) of the users from an engine of its own. Facts for people.

    With `deploy.shadow_requests` the engine first answers recorded requests, and has no users meanwhile.

    Raises:
        IntegrityError (12): the engine does not serve the target. DependencyDownError (13): it does
            not start, or the gateway does not answer. GateRejectedError (3): it fails the shadow replay.
            Nobody was given to it then.
    """
    shadowed = workspace.settings.deploy.shadow_requests > 0
    deployment = verifying(store, switch, canary={"share": share})
    begun = time.monotonic()
    progress.message(f"starting an engine on {switch.target.ref} for {percent(share)} of the users")
    facts: dict[str, Any] = {"deployment": deployment.id, "share": share}
    try:
        admin = Admin(require_endpoint(workspace.run_dir))
        answer = _start(workspace, store, switch, deployment, 0.0 if shadowed else share, admin)
        if shadowed:
            facts["shadow"] = _shadow(workspace, store, switch, deployment, admin, progress)
            admin.share_canary(line=switch.line, deployment=deployment.id, share=share)
        opened = admin.flush_spool()  # what comes later may be the canary's
        faults.point("canary.open.after")
        store.deployments.transition(
            deployment.id, "verifying", "canary", canary={"share": share, "opened_seq": opened}
        )
    except RtrlError as error:
        store.deployments.transition(deployment.id, "verifying", "failed", error=error.message)
        raise
    facts["verification"] = answer["verification"]
    facts["switch_s"] = round(time.monotonic() - begun, 3)
    return facts


def rehearse(
    workspace: Workspace, store: Store, switch: Switch, deployment: Deployment, progress: Progress
) -> dict[str, Any]:
    """Shadow replay alone: in an engine that is started for it, has no users, and is stopped again.

    What it found, for people. Raises as `open_canary`.
    """
    progress.message(f"starting an engine on {switch.target.ref} that answers no user")
    admin = Admin(require_endpoint(workspace.run_dir))
    _start(workspace, store, switch, deployment, 0.0, admin)
    found = _shadow(workspace, store, switch, deployment, admin, progress)
    admin.close_canary(line=switch.line, drain_s=1.0)
    return found


def _start(
    workspace: Workspace, store: Store, switch: Switch, deployment: Deployment, share: float, admin: Admin
) -> dict[str, Any]:
    try:
        return admin.open_canary(
            line=switch.line,
            checkpoint=switch.target.digest,
            path=store.checkpoint_folder(switch.target),
            deployment=deployment.id,
            salt=deployment.salt,
            share=share,
            # the engine of a population's line may have to start too
            timeout_s=2 * workspace.settings.engine.startup_timeout_s + switch.timeout_s,
        )
    except (KeyboardInterrupt, SystemExit):  # a signal: the engine would start on, in the next one's way
        with contextlib.suppress(RtrlError):
            admin.close_canary(line=switch.line, drain_s=1.0)
        raise


def _shadow(
    workspace: Workspace,
    store: Store,
    switch: Switch,
    deployment: Deployment,
    admin: Admin,
    progress: Progress,
) -> dict[str, Any]:
    """Ask the engine that has no users yet; it is stopped when it fails."""
    from stages.shadow.run import shadow  # statistics: longer to import than a deploy without it takes

    faults.point("canary.shadow.before")
    wanted = partial(_require_wanted, admin, switch.line, deployment.id)
    try:
        endpoint = require_endpoint(workspace.run_dir)
        engine = endpoint.canary_of(switch.line)
        if engine is None:
            wanted()
            raise DependencyDownError("the candidate's engine ended before it was asked anything")
        checkpoint = store.checkpoint_folder(switch.target)
        return shadow(
            as_served(workspace, endpoint),
            store,
            deployment=deployment.id,
            checkpoint=checkpoint,
            engine=named(engine, checkpoint),
            live=named(endpoint.live_of(switch.line), Path(admin.served(switch.line).path)),
            override=switch.override_shadow,
            progress=progress,
            wanted=wanted,
        )
    except BaseException:
        with contextlib.suppress(RtrlError):  # else the gateway sees that the registry knows of no canary
            admin.close_canary(line=switch.line, drain_s=1.0)
        raise


def _require_wanted(admin: Admin, line: str, deployment: str) -> None:
    """Raise LockedError when a rollback came, and the gateway gave up the candidate that nobody uses yet."""
    try:
        admin.share_canary(line=line, deployment=deployment, share=0.0)
    except LockedError:
        raise
    except RtrlError:  # its engine died: that is what the replay tells
        return


def promote(
    workspace: Workspace, store: Store, switch: Switch, canary: Deployment, progress: Progress
) -> dict[str, Any]:
    """The canary's checkpoint for everybody: into the live engine, then the registry, then its own away.

    Raises as `switch.perform`; the live engine has what it had then, and a canary that was open is.
    """
    begun = time.monotonic()
    progress.message(f"loading {switch.target.ref} into the live engine")
    admin = Admin(require_endpoint(workspace.run_dir))
    answer = admin.swap(
        line=switch.line,
        checkpoint=switch.target.digest,
        path=store.checkpoint_folder(switch.target),
        deployment=canary.id,
        drain_s=switch.drain_s,
        timeout_s=switch.timeout_s,
        cut=switch.cut,
    )
    faults.point("canary.promote.swap.after")
    try:
        record(store, switch.line, switch.target, canary, switch.reason, who(), None)
    except RtrlError:  # it has ended meanwhile, or the registry stayed busy
        bring_back(workspace, store, switch)
        raise
    faults.point("canary.promote.alias.after")
    admin.close_canary(line=switch.line, drain_s=switch.drain_s)
    return {
        "deployment": canary.id,
        "verification": answer.get("verification", {}),
        "switch_s": round(time.monotonic() - begun, 3),
    }


def end(
    workspace: Workspace,
    store: Store,
    canary: Deployment,
    reason: str,
    *,
    drain_s: float,
    offline: bool = False,
) -> dict[str, Any]:
    """Everybody back to the live arm at once, then the record. Raises DependencyDownError (13)."""
    begun = time.monotonic()
    if not offline:
        admin = Admin(require_endpoint(workspace.run_dir))
        admin.close_canary(line=canary.line, drain_s=drain_s)
    faults.point("canary.closed.after")
    try:
        store.deployments.end_canary(canary.id, reason, by=who())
    except StateError:  # the gateway was faster: its engine had failed
        if store.deployments.get(canary.id).state != "rolled_back":
            raise
    return {"deployment": canary.id, "switch_s": round(time.monotonic() - begun, 3)}
