"""`rtrl ab`: one look at an open canary, on record with all its numbers, and what follows from it.

    roll back   harm is certain, at any look: users first, then the record
    promote     once, at the horizon, when nothing is worse by its margin
    hold        otherwise
    end         it was held at its horizon, and nobody promoted it within `hold_s`: not promoted

Promotion is decided at the first look after the horizon that is taken to decide, and that one is kept:
a look that is only shown is recorded too, and decides nothing. What could not be promoted then (an alarm,
the gateway down, a kill) is promoted by a later look, unless that one finds harm, or not the users who were
assigned. Not here: the statistics (`evals/ab/`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from evals.ab.arms import Difference, Users, difference
from evals.ab.decision import AbMetric, AbMetricLook, AbRules, Action, Look, look, planned_information
from evals.stats.intervals import finite
from stages.ab.config import GUARDS, METRICS, AbConfig
from stages.ab.counted import told
from stages.ab.ended import no_canary
from stages.ab.observe import ArmSeen, observe
from stages.ab.past import enough, known_before
from stages.registry.deployments import Deployment
from stages.registry.looks import looks_of, record_look
from stages.registry.store import Store
from stages.stage import Progress
from stages.target.canary import canary_of
from stages.workspace import Workspace


@dataclass(frozen=True)
class Seen:
    """A look for people and scripts. `data` is what is on record."""

    deployment: str
    action: Action | Literal["end"]
    reason: str
    data: Mapping[str, Any]


def take_look(workspace: Workspace, store: Store, progress: Progress, *, by: str, deciding: bool) -> Seen:
    """Read both arms, decide, record. Changes nothing of what is served.

    `deciding` is whether somebody will act on it: only then may it be the look at the horizon.

    Raises InputMissingError (exit 5) when no canary is open.
    """
    line = workspace.settings.workspace.line
    canary = canary_of(store, line)
    if canary is None:
        raise no_canary(store, line)
    config = workspace.settings.ab
    live, treated = observe(workspace, store, canary, progress)
    earlier = looks_of(store, canary.id)
    age = (datetime.now(UTC) - datetime.fromisoformat(canary.updated_at)).total_seconds()
    decided = next((each for each in earlier if each["at_horizon"]), None)
    due = deciding and age >= config.horizon_s and decided is None
    data, found = judge(config, canary, live, treated, earlier, at_horizon=due)
    data["joined"] = told(workspace.keys_dir, live.joined, treated.joined)
    data["age_s"] = round(age, 1)
    data["rules_changed"] = _changed(earlier[0], data) if earlier else []
    seen = Seen(canary.id, found.action, found.reason, data)
    if decided is not None and _promised(decided, found):
        if deciding:
            seen = replace(seen, action="promote", reason=f"at its horizon {decided['reason']}")
    elif decided is not None:
        data["ends_in_s"] = round(max(0.0, config.horizon_s + config.hold_s - age), 1)
        if deciding and found.action == "hold" and not data["ends_in_s"]:
            seen = replace(seen, action="end", reason=_not_promoted(config, decided, found))
    data["reason"] = seen.reason
    record_look(store, canary.id, seen.action, data, by=by)
    return seen


def judge(
    config: AbConfig,
    canary: Deployment,
    live: ArmSeen,
    treated: ArmSeen,
    earlier: list[Mapping[str, Any]],
    *,
    at_horizon: bool,
) -> tuple[dict[str, Any], Look]:
    """The look's numbers, and the decision. `earlier` are the records of looks before, oldest first."""
    share = float(canary.data["canary"]["share"])
    arms = {
        name: enough(live.metrics[name], treated.metrics[name], config.min_users)
        for name in (*METRICS, *GUARDS)
    }
    planned = fix_planned(config, share, {name: of[0] for name, of in arms.items()}, earlier)
    rules = AbRules(config.alpha_harm, config.alpha_promote, config.min_users)
    found = look(
        _metrics(config),
        {name: arms[name] for name in METRICS},
        (live.users, treated.users),
        (1 - share, share),
        rules,
        planned=planned,
        at_horizon=at_horizon,
    )
    data: dict[str, Any] = {
        "line": canary.line,
        "horizon_s": config.horizon_s,
        "at_horizon": found.at_horizon,
        "share": share,
        "planned": planned,
        "rules": {**asdict(rules), "cuped": config.cuped},
        "users": {"live": live.users, "canary": treated.users},
        "episodes": {"live": live.episodes, "canary": treated.episodes},
        "sample_ratio_p": found.ratio.p,
        "reason": found.reason,
        "not_measured": [each.metric.name for each in found.metrics if not each.measured],
        "metrics": {each.metric.name: _row(each.difference, each) for each in found.metrics},
        "past": {name: [known_before(arm) for arm in arms[name]] for name in METRICS},
        "guards": {name: _plain(difference(*arms[name])) for name in GUARDS},
    }
    return data, found


def _metrics(config: AbConfig) -> list[AbMetric]:
    """What is decided by, with what may be lost of it."""
    return [
        AbMetric(
            name,
            _direction(name),
            config.harm.get(name, 0.0),
            config.margins.get(name, margin),
            span=span_of(name),
        )
        for name, (_, margin) in METRICS.items()
    ]


def _changed(first: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The rules that are not those of the first look: no bound holds over looks that chose their own."""
    names = [key for key, was in first["rules"].items() if now["rules"].get(key) != was]
    names += ["horizon_s"] if first["horizon_s"] != now["horizon_s"] else []
    for name, each in now["metrics"].items():
        was = first["metrics"].get(name, {})
        names += [f"{key}.{name}" for key in ("harm", "margin") if was.get(key) != each[key]]
    return names


def _promised(decided: Mapping[str, Any], found: Look) -> bool:
    """Whether it was to be promoted at its horizon, could not be then, and nothing speaks against it now."""
    return bool(decided["action"] == "promote" and found.action == "hold" and not found.ratio.wrong)


def _not_promoted(config: AbConfig, decided: Mapping[str, Any], found: Look) -> str:
    why = f"at its horizon {decided['reason']}"
    if decided["action"] == "promote":
        why = f"it was to be promoted at its horizon, and now {found.reason}"
    return f"not promoted: no harm is certain, but {why}; held for {config.hold_s:g} s"


def fix_planned(
    config: AbConfig, share: float, live: Mapping[str, Users], earlier: list[Mapping[str, Any]]
) -> dict[str, float]:
    """Fixed at the first look that has enough of the live arm's users, and kept from then on."""
    planned: dict[str, float] = dict(earlier[-1]["planned"]) if earlier else {}
    for name in METRICS:
        users = live[name]
        if name not in planned and users.users >= config.min_users:
            try:
                planned[name] = planned_information(users, config.planned_users, share, span_of(name))
            except ValueError:
                continue  # all alike so far: nothing to plan with
    return planned


def span_of(name: str) -> float | None:
    """The largest difference one user can show."""
    return None if name == "latency" else 1.0


def _direction(name: str) -> Any:
    return METRICS[name][0]


def _row(found: Difference, each: AbMetricLook) -> dict[str, Any]:
    return _plain(found) | {
        "harm": each.metric.harm,
        "margin": each.metric.margin,
        "gain": finite(each.gain),
        "cautious_error": finite(found.cautious_error),
        "freedom": finite(found.freedom),
        "harm_bound": finite(each.harm_bound),
        "promote_bound": finite(each.promote_bound),
        "alike": each.alike,
        "promote": None if each.promoted is None else _once(each),
    }


def _once(each: AbMetricLook) -> dict[str, Any]:
    """What `promote_bound` is made of."""
    once = each.promoted
    assert once is not None
    return {
        "gain": finite(each.metric.sign * once.value),
        "standard_error": finite(once.cautious_error),
        "freedom": finite(once.freedom),
    }


def _plain(found: Difference) -> dict[str, Any]:
    return {
        "live": finite(found.control),
        "canary": finite(found.treated),
        "difference": finite(found.value),
        "standard_error": finite(found.standard_error),
        "variance_left": finite(found.variance_left),
        "users": list(found.users),
    }
