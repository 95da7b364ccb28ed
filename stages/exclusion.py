"""The exclusion audit: what left between capture and gradient, by which exit, and whether it was different.

Every exit is listed with the share it took and, beside what stayed, the reward and the behaviours that the
policy controls. Differences are tested without taking one user's habits for the policy's (`evals/stats/
membership.py`), corrected for how many are looked at (Holm), and given with intervals and effect sizes.

An exit the policy can steer stops the run unless the reward spec accepts it by name with a reason, whatever
it took so far. An exit of the infrastructure that takes something else than it leaves is told: it may be a
way out that nobody saw. What users and the clock take may differ; that is in the table and no news.

An exit can take a model call out of an episode that stays. The rows of such parts (`part:REASON`) say how
many episodes lost one; what is tested is the calls, lost against kept (`parts.py`).

Pure but for the error. Not for: which exits there are (`exits.py`), who leaves (each stage).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evals.stats.holm import holm
from evals.stats.membership import Shift, Shuffled
from stages.errors import UsageError
from stages.exits import DROP, PART, SPEC_MADE, exit_of
from stages.parts import Parts
from stages.wording import digits

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ALPHA = 0.01  # family level over all that one audit looks at
LEAST_EFFECT = 0.2  # standard deviations under which a difference is of no account, however sure
_TOLD = 4  # differences in a message
_INSTEAD = ": the calls that stay are punished in place of those that it took"


class ExclusionError(UsageError):
    """What the policy can steer would be left out of training, and nobody has accepted that."""

    kind = "exclusion"


def audit(
    reasons: Sequence[str],
    users: Ints,
    values: Mapping[str, Floats],
    *,
    kept: str,
    accepted: Mapping[str, str] | None = None,
    exits: Sequence[str] = (),
    parts: Parts | None = None,
) -> list[dict[str, Any]]:
    """One row per exit, what was kept last.

    Args:
        reasons: by which exit each episode left, "" where it stayed, [N].
        users: a code for each episode's user, [N].
        values: reward and behaviours by name, [N] each, nan where not known.
        kept: what the last row is called.
        accepted: exits that the reward spec accepts, with its reasons.
        exits: exits that are listed even when nothing left by them.
        parts: the model calls of the episodes that stayed, where any of them lost one.

    Returns:
        Rows of exit, by (whose hand), episodes, share, each value's mean, and, but for the last, `shifts`
        (a `Shift` by value, with p_holm) and verdict: same, differs, accepted or refused. Rows of parts have
        `lost_turns` too, how many calls that were; their episodes are among what was kept as well.
    """
    left = np.array(reasons, dtype=object)
    took = {name: left == name for name in sorted({*exits, *map(str, reasons)} - {""})}
    found = {name: _shifts(took[name], left == "", users, values) for name in took}
    lost: dict[str, int] = {}
    if parts is not None:
        calls = parts.of(left == "")
        for reason in sorted({*calls.reasons} - {""}):
            name, one_each = PART + reason, calls.one_each(reason)
            lost[name] = int((calls.reasons == reason).sum())
            took[name] = np.isin(np.arange(len(left)), calls.episodes[one_each])
            found[name] = _shifts(one_each, calls.reasons == "", users[calls.episodes], calls.values)
    tested = _corrected(found)
    rows = [
        _row(name, took[name], values)
        | ({"lost_turns": lost[name]} if name in lost else {})
        | {"shifts": shifts}
        | _verdict(name, shifts, accepted or {})
        for name, shifts in tested.items()
    ]
    return [*rows, _row(kept, left == "", values) | {"by": ""}]


def refuse(rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise ExclusionError (2) when an audit refuses an exit; the first one is told in full."""
    if bad := [row for row in rows if row.get("verdict") == "refused"]:
        raise _refusal(bad[0], rows[-1])


def warnings(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What an audit warns of: exits of the infrastructure that take something else than they leave."""
    return [
        f"{row['exit']} took {_taken(row)}, and not by chance: {_differences(row)}. If the policy can bring "
        f"that about, it has a way out of being punished{_INSTEAD if 'lost_turns' in row else ''}"
        for row in rows
        if row.get("verdict") == "differs" and row["by"] == "infrastructure"
    ]


def differing(shifts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The values in which an exit differs: surely, and by enough to be of account; the surest first."""
    found = [
        name
        for name, shift in shifts.items()
        if shift["p_holm"] <= ALPHA and abs(shift["effect"] or 0.0) >= LEAST_EFFECT
    ]
    return sorted(found, key=lambda name: -abs(shifts[name]["effect"]))


def _shifts(
    left: NDArray[np.bool_], stayed: NDArray[np.bool_], users: Ints, values: Mapping[str, Floats]
) -> dict[str, Shift]:
    """An exit against what stayed; what left elsewhere is in neither."""
    if not left.any() or not stayed.any():
        return {}
    rows = left | stayed
    shuffled = Shuffled(left[rows], users[rows])
    return {name: shuffled.shift(column[rows]) for name, column in values.items()}


def _corrected(found: Mapping[str, Mapping[str, Shift]]) -> dict[str, dict[str, dict[str, Any]]]:
    """The shifts of each exit as plain fields, with p corrected for all of them."""
    p = holm({f"{name}\0{value}": shift.p for name in found for value, shift in found[name].items()})
    return {
        name: {
            value: {**_rounded(asdict(shift)), "p_holm": p[f"{name}\0{value}"]}
            for value, shift in shifts.items()
        }
        for name, shifts in found.items()
    }


def _row(name: str, of: NDArray[np.bool_], values: Mapping[str, Floats]) -> dict[str, Any]:
    return {
        "exit": name,
        "by": exit_of(name).by,
        "episodes": int(of.sum()),
        "share": round(float(of.sum()) / max(1, len(of)), 6),
        **{value: _mean(column[of]) for value, column in values.items()},
    }


def _verdict(name: str, shifts: Mapping[str, Any], accepted: Mapping[str, str]) -> dict[str, str]:
    if exit_of(name).by == "policy":
        reason = accepted.get(name, "")
        return {"verdict": "accepted", "reason": reason} if reason else {"verdict": "refused"}
    return {"verdict": "differs" if differing(shifts) else "same"}


def _refusal(row: Mapping[str, Any], kept: Mapping[str, Any]) -> ExclusionError:
    name = str(row["exit"])
    signal = next(name.removeprefix(prefix) for prefix in SPEC_MADE if name.startswith(prefix))
    found = exit_of(name)
    took = f"It took {_share(row)}" if row["episodes"] else "It took nothing yet"
    text = f"the reward spec lets the policy choose what it is punished for: {name} ({found.what}). {took}"
    if told := _differences(row, besides="reward"):
        text += f"; what left, against the {kept['episodes']} that stayed: {told}"
    if (gone := row.get("reward")) is not None and (stays := kept.get("reward")) is not None:
        text += f". Reward of what left {gone:+.2f}, of what stayed {stays:+.2f}"
    text += (
        f". It is the policy's: {found.why}. An episode that leaves is never punished, so a policy that "
        "expects to fail gains by leaving, and learns to"
    )
    instead = (
        f"take [drop.{signal}] out of the spec and give the signal a weight, so that it costs something"
        if name.startswith(DROP)
        else f'say what {signal} is worth while it is not known (a number, or "mean") instead of "exclude"'
    )
    return ExclusionError(
        text, hint=f'{instead}; or accept it: [accepted_exits] "{name}" = "the reason" (docs/hacks.md)'
    )


def _differences(row: Mapping[str, Any], besides: str = "") -> str:
    shifts = row["shifts"]
    named = [name for name in differing(shifts) if name != besides]
    return ", ".join(_told(name, shifts[name]) for name in named[:_TOLD])


def _told(name: str, shift: Mapping[str, Any]) -> str:
    """E.g. "edited 0.04 against 0.61 (difference -0.66 to -0.48, p 0.001)"."""
    sides = f"{name} {digits(shift['removed'])} against {digits(shift['kept'])}"
    if shift["low"] is None:
        return f"{sides} (p {shift['p_holm']:.2g})"
    return f"{sides} (difference {digits(shift['low'])} to {digits(shift['high'])}, p {shift['p_holm']:.2g})"


def _share(row: Mapping[str, Any]) -> str:
    return f"{row['episodes']} {'episode' if row['episodes'] == 1 else 'episodes'} ({row['share']:.1%})"


def _taken(row: Mapping[str, Any]) -> str:
    if (calls := row.get("lost_turns")) is None:
        return _share(row)
    return f"{calls} model {'call' if calls == 1 else 'calls'} out of {_share(row)} that stay"


def _rounded(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in fields.items()}


def _mean(column: Floats) -> float | None:
    known = column[~np.isnan(column)]
    return round(float(known.mean()), 6) if len(known) else None
