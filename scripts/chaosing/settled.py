"""Whether all is well: what is served is what the registry says, and nothing is half done."""

from __future__ import annotations

from typing import Any

import httpx

from chaosing.world import World
from stages.errors import RtrlError
from stages.target.canary import canary_of


def served(world: World) -> dict[str, Any] | None:
    """What the gateway says that it serves; None when it does not answer."""
    endpoint = world.endpoint
    if endpoint is None:
        return None
    transport = httpx.HTTPTransport(uds=endpoint.admin_socket) if endpoint.admin_socket else None
    headers = {"Authorization": f"Bearer {endpoint.admin_key}"}
    address = endpoint.admin_url or "http://admin"
    try:
        with httpx.Client(base_url=address, transport=transport, headers=headers, timeout=2) as client:
            answer = client.get("/admin/served")
            return dict(answer.json()) if answer.status_code == 200 else None
    except (httpx.HTTPError, ValueError):
        return None


def unsettled(world: World) -> list[str]:
    """Why it is not; empty when it is."""
    found = served(world)
    if found is None:
        return ["the gateway does not answer"]
    try:
        store = world.store
        live, canary = store.alias("auto", "live"), canary_of(store, "auto")
        unfinished = [each for each in store.deployments.unfinished("auto") if each.state != "canary"]
    except (RtrlError, OSError) as error:
        return [f"the registry cannot be read: {error}"]
    reasons = [f"deployment {each.id} is still {each.state}" for each in unfinished]
    for engine in found.get("engines", [found]):
        if engine["engine"] != "ready":
            reasons.append(f"the engine is {engine['engine']}")
        if live is None or engine["checkpoint"] != live.digest:
            reasons.append("what is served is not what the registry says")
    base = world.checkpoints["base"].digest
    held = found.get("holdback") or {"engine": "", "checkpoint": ""}
    needed = world.holdback > 0 and live is not None and live.digest != base
    if needed and (held["engine"], held["checkpoint"]) != ("ready", base):
        reasons.append(f"the holdback's engine is {held['engine'] or 'not there'}")
    arm = found["canary"]
    if (arm["deployment"] if arm else None) != (canary.id if canary else None):
        reasons.append("the canary that is served is not the registry's")
    elif arm and arm["engine"] != "ready":
        reasons.append(f"the canary's engine is {arm['engine']}")
    return reasons
