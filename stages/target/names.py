"""By which name an engine of this machine is asked for a checkpoint: of whoever asks it past the gateway."""

from __future__ import annotations

from pathlib import Path

import msgspec

from stages.engine.adapter import adapter_of
from stages.errors import DependencyDownError
from stages.target.endpoint import EngineAt
from stages.trust import trusted

TIMEOUT_S = 10.0


def named(engine: EngineAt, checkpoint_dir: Path) -> EngineAt:
    """The engine, with the name of the checkpoint's adapter where it holds that beside its weights.

    Raises IntegrityError (12) when the adapter is damaged, DependencyDownError (13) when it does not answer.
    """
    adapter = adapter_of(checkpoint_dir)
    if adapter is None:
        return engine
    import httpx  # 0.15 s, for adapters only

    headers = {"Authorization": f"Bearer {engine.key}"} if engine.key else {}
    try:
        with httpx.Client(
            base_url=engine.url,
            headers=headers,
            trust_env=False,
            timeout=TIMEOUT_S,
            verify=trusted(engine.url),
        ) as client:
            held = {each["id"] for each in client.get("/v1/models").raise_for_status().json()["data"]}
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise DependencyDownError(
            f"the engine at {engine.url} does not say what it holds: {type(error).__name__}",
            hint="its log is in store/logs",
        ) from error
    return msgspec.structs.replace(engine, model=adapter.name) if adapter.name in held else engine
