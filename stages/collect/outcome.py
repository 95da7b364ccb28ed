"""What a collect of the spool has to tell: the artifact's facts, the run's figures, its warnings.

Pure. Not for: counting what is left behind (`counted.py`), session logs (`logs/run.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from stages import schemas
from stages.collect import counted as counting
from stages.collect import plan as planning
from stages.collect.config import CollectConfig
from stages.collect.scan import Scan
from stages.collect.seal import Sealer
from stages.spool import Damage
from stages.stage import Artifact, Outcome, Output
from stages.wording import count

if TYPE_CHECKING:
    from stages.collect.followed import Followed


def outcome(
    config: CollectConfig,
    found: Scan,
    decided: planning.Plan,
    sealer: Sealer,
    extra: Mapping[str, Any],
    live: Artifact,
    damages: Iterable[Damage],
    followed: Followed | None,
) -> Outcome:
    """Of a collect that sealed `decided`; `followed` is None where no repository was asked."""
    lost_events = sum(damage.events for damage in damages)
    read_to = int(extra["resume"].get("read_to", 0))
    counts, counted = _counts(found, decided, sealer, int(1000 * config.horizon_s), read_to)
    if followed is not None:
        counted["persistence"] = dict(followed.figures)
    meta = {
        "schema": schemas.INTERACTIONS_SCHEMA,
        "checkpoint": live.digest,
        "arm": config.arm,
        "max_lag": config.max_lag,
        "horizon_s": config.horizon_s,
        "metrics": config.metrics,
        **({"whose": extra["whose"]} if "whose" in extra else {}),
        "window": {
            **extra["spool"],
            "resume_seq": decided.resume_seq,
            "now": extra["now"],
            "damaged": extra.get("damaged", {}),
        },
        "counts": counts,
        "samplers": counting.samplers(found, decided),
        "lost_events": lost_events,
        "other_lines": found.other_lines,
        **counted,
    }
    return Outcome(
        outputs={"interactions": Output("interactions", meta)},
        metrics={**counts, **counted},
        warnings=_warnings(counted, lost_events, followed),
    )


def _warnings(counted: Mapping[str, Any], lost_events: int, followed: Followed | None) -> list[str]:
    told = [f"{count(n, 'record')} quarantined: {reason}" for reason, n in counted["quarantined"].items()]
    if lost_events:
        told.append(f"{count(lost_events, 'event')} lost to damage of the spool")
    if early := counted["events_early"]:
        told.append(
            f"{count(early, 'event')} dated more than a minute before the request that they are about: a "
            "clock is wrong, or a client sends local times without their offset; their order is wrong"
        )
    return [*told, *(followed.warnings if followed is not None else ())]


def _counts(
    found: Scan, decided: planning.Plan, sealer: Sealer, horizon_ms: int, read_to: int
) -> tuple[dict[str, int], dict[str, Any]]:
    """What was sealed, and what was not, by reason."""
    counts = {name: sealer.counts[name] for name in ("episodes", "generations", "events", "derived_messages")}
    return counts, {
        "left_behind": counting.left_behind(decided),
        "events_left_behind": counting.events_left_behind(found, decided),
        "left_again": counting.left_again(found, decided, read_to),
        "events_after_horizon": counting.events_after_horizon(found, decided, horizon_ms),
        "events_early": counting.events_early(found, decided),
        "events_too_late": counting.events_too_late(found, decided, read_to),
        "quarantined": {
            name.removeprefix("quarantined:"): n
            for name, n in sorted(sealer.counts.items())
            if name.startswith("quarantined:")
        },
        "audit": planning.audit(found, decided),
    }
