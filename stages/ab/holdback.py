"""`rtrl ab --holdback`: what all checkpoints since the anchor have brought, beside those who stayed on it.

The same figures as of a canary, with the held back users as control. Both bounds of each gain hold over all
looks together (two one-sided confidence sequences at half the level each), so that it can be watched for
months; each arm has two users more in them, as where a canary's promotion is decided. Nothing is decided from
it. Every look is a row with its numbers. Not here: who is held back (`stages/serving/holdback.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evals.ab.arms import Users, difference
from evals.ab.decision import sequence_width
from evals.ab.sample_ratio import sample_ratio
from evals.stats.intervals import finite
from stages.ab.config import METRICS, AbConfig
from stages.ab.counted import told
from stages.ab.look import fix_planned, span_of
from stages.ab.observe import ArmSeen, observe_holdback
from stages.ab.past import enough
from stages.errors import InputMissingError
from stages.registry.holdbacks import holdback_of
from stages.registry.looks import looks_of, record_look
from stages.registry.store import Store
from stages.stage import Progress
from stages.wording import percent
from stages.workspace import Workspace


@dataclass(frozen=True)
class Benefit:
    """A look at a holdback for people and scripts. `data` is what is on record."""

    holdback: str
    reason: str
    data: Mapping[str, Any]


def take_look_at_holdback(workspace: Workspace, store: Store, progress: Progress, *, by: str) -> Benefit:
    """Read both arms, compare, record.

    Raises InputMissingError (exit 5) when nobody was ever held back.
    """
    line, config = workspace.settings.workspace.line, workspace.settings.ab
    held = holdback_of(store, line)
    if held is None:
        raise InputMissingError(
            f"nobody of line {line} is held back",
            hint="set ab.holdback, say to 0.01: `rtrl serve` begins when live is no longer the anchor",
        )
    seen = observe_holdback(workspace, store, held, progress)
    data = compare(config, held.share, *seen, looks_of(store, held.id))
    anchor, live = store.artifact(held.checkpoint), store.alias(line, "live")
    data |= {
        "joined": told(workspace.keys_dir, *(arm.joined for arm in seen)),
        "since": held.at,
        "open": held.open,
        "anchor": anchor.ref if anchor else held.checkpoint,
        "live": live.ref if live else None,
    }
    record_look(store, held.id, "hold", data, by=by)
    return Benefit(held.id, data["reason"], data)


def compare(
    config: AbConfig, share: float, held: ArmSeen, live: ArmSeen, earlier: list[Mapping[str, Any]]
) -> dict[str, Any]:
    """The look's numbers; gains are of the live arm, signed so that more is better."""
    arms = {name: enough(held.metrics[name], live.metrics[name], config.min_users) for name in METRICS}
    planned = fix_planned(config, share, {name: of[1] for name, of in arms.items()}, earlier)
    level = config.alpha_harm / 2 / len(METRICS)
    rows = {name: _row(name, *arms[name], config, planned.get(name, 0.0), level) for name in METRICS}
    counts = {"holdback": held.users, "live": live.users}
    ratio = sample_ratio(counts, {"holdback": share, "live": 1 - share})
    return {
        "share": share,
        "planned": planned,
        "at_horizon": False,
        "users": counts,
        "episodes": {"holdback": held.episodes, "live": live.episodes},
        "sample_ratio_p": ratio.p,
        "metrics": rows,
        "reason": _words(rows, config, wrong=ratio.wrong),
    }


def _row(
    name: str, held: Users, live: Users, config: AbConfig, planned: float, level: float
) -> dict[str, Any]:
    found, sign = difference(held, live), 1.0 if METRICS[name][0] == "higher" else -1.0
    row = {
        "holdback": finite(found.control),
        "live": finite(found.treated),
        "gain": finite(sign * found.value + 0.0),
        "at_least": None,
        "at_most": None,
        "standard_error": finite(found.standard_error),
        "bound": None,
        "variance_left": finite(found.variance_left),
        "users": list(found.users),
    }
    if min(found.users) < config.min_users or planned <= 0:
        return row
    span = span_of(name)
    # few are held back: what none or one of them happened to show would be certain of them all
    bound = difference(*(arm if span is None else arm.with_pair(span) for arm in (held, live)))
    centre, width = sign * bound.value + 0.0, sequence_width(bound, planned, level)
    of_bound = {
        "gain": centre,
        "standard_error": finite(bound.standard_error),
        "cautious_error": finite(bound.cautious_error),
        "freedom": finite(bound.freedom),
    }
    return row | {"at_least": finite(centre - width), "at_most": finite(centre + width), "bound": of_bound}


def _words(rows: Mapping[str, Mapping[str, Any]], config: AbConfig, *, wrong: bool) -> str:
    if wrong:
        return "the arms do not have the users they were assigned: find out who is missing first"
    sure = f"with {percent(1 - config.alpha_harm)} confidence over all looks"
    better = [
        f"{name} is better than on the anchor by {row['at_least']:.3g} at least"
        for name, row in rows.items()
        if row["at_least"] is not None and row["at_least"] > 0
    ]
    worse = [
        f"{name} is worse than on the anchor by {-row['at_most']:.3g} at least"
        for name, row in rows.items()
        if row["at_most"] is not None and row["at_most"] < 0
    ]
    if not better + worse:
        return "no difference to the anchor is certain yet"
    return f"{'; '.join(better + worse)}, {sure}"
