"""Shadow replay: a candidate answers recorded recent requests before any user sees it, beside a live engine.

Its engine runs and is verified, and nobody is given to it yet. It passes or fails by the rules of
`compare.py`; the numbers are an event of the deployment either way, so that the verdict can be computed
again. No text is kept, and nothing of it reaches the spool. Not for: starting the engine (`stages/target/`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stages.errors import GateRejectedError
from stages.model_forms import ModelForms, forms_of
from stages.populations import whose
from stages.registry.looks import record_shadow
from stages.registry.store import Store
from stages.shadow.compare import Tolerance, Verdict, compare
from stages.shadow.config import ShadowConfig
from stages.shadow.recorded import Recorded, recent
from stages.shadow.replay import replay
from stages.shadow.tools import KnownTools, decoder
from stages.stage import Progress
from stages.target.endpoint import EngineAt
from stages.who import who
from stages.workspace import Workspace


class ShadowFailedError(GateRejectedError):
    """A candidate answered recorded requests worse than is tolerated; no user has seen it."""

    kind = "shadow_failed"


def shadow(
    workspace: Workspace,
    store: Store,
    *,
    deployment: str,
    checkpoint: Path,
    engine: EngineAt,
    live: EngineAt,
    override: bool,
    progress: Progress,
    wanted: Callable[[], None],
) -> dict[str, Any]:
    """Replay, compare, record. The record; with fewer recorded requests than `least`, what is missing.

    Args:
        checkpoint: folder of the candidate that `engine` serves.
        live: answers the line's users; it is asked the same.
        override: only record a failure.
        wanted: called when an engine is gone, and before anything is made of the answers.

    Raises:
        ShadowFailedError: (exit 3) it failed. RtrlError: as `wanted` does.
    """
    config: ShadowConfig = workspace.settings.deploy
    found = recent(workspace.spool_dir, workspace.keys_dir, whose(workspace.settings), config.shadow_requests)
    told: dict[str, Any] = {"left_out": dict(sorted(found.left_out.items()))}
    if len(found.requests) < config.shadow_least:
        told |= {"passed": None, "requests": len(found.requests), "reason": _too_few(found.requests, config)}
        record_shadow(store, deployment, "skipped", told, by=who())
        return told
    tools = KnownTools(decoder(checkpoint))
    forms = forms_of(checkpoint)
    verdict = _compared(workspace, found.requests, live, engine, tools, forms, progress, wanted)
    wanted()
    told |= verdict.as_dict() | {
        "users": len({each.user for each in found.requests}),
        "generations": [each.id for each in found.requests],
        "tools_known": sum(tools.of(each) is not None for each in found.requests),
        "with_tools": sum(bool(each.tools_digest) for each in found.requests),
    }
    record_shadow(store, deployment, "failed" if verdict.reason else "passed", told, by=who())
    if verdict.reason and not override:
        raise ShadowFailedError(
            f"shadow replay of {verdict.requests} recorded requests: {verdict.reason}",
            hint=f"no user has seen it; `rtrl show {deployment}` has the numbers; "
            'or take the responsibility: --override --reason "..."',
        )
    return told


def _compared(
    workspace: Workspace,
    requests: Sequence[Recorded],
    live: EngineAt,
    candidate: EngineAt,
    tools: KnownTools,
    forms: ModelForms,
    progress: Progress,
    wanted: Callable[[], None],
) -> Verdict:
    """Ask both engines all of them, pair by pair."""
    config: ShadowConfig = workspace.settings.deploy
    progress.start("shadow replay", len(requests))
    pairs = replay(
        requests,
        live=live,
        candidate=candidate,
        model=workspace.settings.engine.served_name,
        context=workspace.settings.engine.max_model_len,
        side_by_side=config.shadow_side_by_side,
        timeout_s=config.shadow_timeout_s,
        tools=tools.of,
        forms=forms,
        asked=progress.advance,
        gone=wanted,
    )
    return compare(
        [each.user for each in requests],
        [ours for ours, _ in pairs],
        [theirs for _, theirs in pairs],
        Tolerance(config.shadow_rate, config.shadow_length, config.shadow_latency),
    )


def _too_few(requests: list[Any], config: ShadowConfig) -> str:
    return f"{len(requests)} recorded requests can be asked again, {config.shadow_least} are wanted"
