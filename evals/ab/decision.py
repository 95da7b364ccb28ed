"""What an A/B says at a look: roll back, promote, or hold; and in words why.

    roll back   some metric's confidence sequence says that the treated arm is worse by more than its
                margin of harm. At any look; alpha_harm is shared by the metrics (Bonferroni). The boundary
                is one of a normal z: it is taken at Student's t of the same chance, and the error is CR2's,
                or one user of 100 with most of the episodes is a harm that is certain.
    promote     once, at the horizon fixed beforehand, when every metric is non-inferior: the one-sided
                1 - alpha bound of the loss is under the margin (an intersection-union test). With two
                users more in either arm, CR2 and Student's t, as a canary is often of few users, of whom
                some are heavy: by a normal quantile a loss of the margin was promoted 9 to 15 times in
                100 at a level of 5, now 8 at most.
    hold        otherwise; also when the arms are not what was assigned, or have too few users.

Every number that went in is in the result, so that the decision can be computed again.
Not here: who is in which arm, and what is done about it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import scipy

from evals.ab.arms import Difference, Users, difference, unexplained
from evals.ab.confidence_sequence import MIN_USERS, boundary
from evals.ab.sample_ratio import SampleRatio, sample_ratio

Action = Literal["roll_back", "promote", "hold"]


@dataclass(frozen=True)
class AbMetric:
    """One figure of an A/B.

    Attributes:
        direction: which way is better.
        harm: loss beyond which a sure look rolls back; 0 is any loss at all.
        margin: loss that promotion tolerates.
        span: the largest difference one user can show, 1 for a share; None where there is no bound.
    """

    name: str
    direction: Literal["higher", "lower"]
    harm: float
    margin: float
    span: float | None = None

    @property
    def sign(self) -> float:
        """1 where more is better, else -1."""
        return 1.0 if self.direction == "higher" else -1.0


@dataclass(frozen=True)
class AbRules:
    """The numbers of the decision.

    Attributes:
        alpha_harm: chance of ever rolling back a checkpoint that does no harm, over all looks and metrics.
        alpha_promote: level of each non-inferiority test.
        min_users: of each arm, before anything is said.
    """

    alpha_harm: float = 0.01
    alpha_promote: float = 0.05
    min_users: int = MIN_USERS


@dataclass(frozen=True)
class AbMetricLook:
    """One metric at one look. Gains are signed so that more is better.

    Attributes:
        gain: of the treated arm.
        harm_bound: the gain is under this, over all looks with 1 - alpha_harm / metrics.
        promote_bound: the gain is over this, at this look with 1 - alpha_promote.
        alike: in either arm no two users differ, so that `promote_bound` is that of what none showed.
        promoted: what `promote_bound` is made of where not `alike`; None where an arm has too few users.
    """

    metric: AbMetric
    difference: Difference
    gain: float
    harm_bound: float
    promote_bound: float
    alike: bool = False
    promoted: Difference | None = None

    @property
    def measured(self) -> bool:
        """Whether any user's client told anything of it; else it neither helps nor hinders."""
        return any(self.difference.users)

    @property
    def harmful(self) -> bool:
        """Whether it is certain that the loss is over the metric's `harm`."""
        return self.harm_bound < -self.metric.harm

    @property
    def non_inferior(self) -> bool:
        """Whether the loss is under the metric's margin."""
        return self.promote_bound > -self.metric.margin


@dataclass(frozen=True)
class Look:
    """A decision with all it was made of."""

    action: Action
    reason: str
    metrics: tuple[AbMetricLook, ...]
    ratio: SampleRatio
    at_horizon: bool


def look(
    metrics: Sequence[AbMetric],
    arms: Mapping[str, tuple[Users, Users]],
    assigned: tuple[int, int],
    shares: tuple[float, float],
    rules: AbRules,
    *,
    planned: Mapping[str, float],
    at_horizon: bool,
) -> Look:
    """Decide from (control, treated) users of each metric, by name.

    Args:
        assigned: users seen in control and treated, whether or not they have anything to count.
        shares: of users, as they were assigned; sum 1.
        planned: information of each metric at the horizon, fixed before the first look; a metric without
            is not judged yet.
        at_horizon: the one look at which promotion is decided.
    """
    names = ("control", "treated")
    ratio = sample_ratio(dict(zip(names, assigned, strict=True)), dict(zip(names, shares, strict=True)))
    share = rules.alpha_harm / len(metrics)
    found = tuple(
        _metric(each, *arms[each.name], rules, share, planned.get(each.name, 0.0)) for each in metrics
    )
    action, reason = _decide(found, ratio, rules, at_horizon)
    return Look(action, reason, found, ratio, at_horizon)


def planned_information(past: Users, users: int, treated_share: float, span: float | None = None) -> float:
    """Information on a difference that `users` of both arms will bring, if they are like `past`.

    Computed once, before the first look, and kept: a confidence sequence whose planned information
    follows the data is none. Where `past` knows what was before it, that is taken away as CUPED will.
    Raises ValueError when the past has fewer than two users, or, without a `span`, all alike.
    """
    if past.users < 2:
        raise ValueError("the past has too few users to plan with")
    e = unexplained(past)
    per_user = float(e @ e) / float(past.counts.sum()) ** 2 * past.users
    if span is not None:
        per_user = past.unseen_variance(span) or per_user
    if per_user <= 0:
        raise ValueError("all users of the past are alike: nothing can be planned")
    return users * treated_share * (1 - treated_share) / per_user


def _metric(
    metric: AbMetric, control: Users, treated: Users, rules: AbRules, alpha: float, planned: float
) -> AbMetricLook:
    found = _with_unseen(metric, control, treated)
    gain = metric.sign * found.value
    span = metric.span
    alike = span is not None and all(arm.unseen_variance(span) for arm in (control, treated))
    if min(found.users) < rules.min_users or found.information <= 0 or not (planned > 0 or alike):
        return AbMetricLook(metric, found, gain, float("inf"), float("-inf"), alike)
    harm = gain + sequence_width(found, planned, alpha) if planned > 0 else float("inf")
    if span is not None and alike:  # as many as 1 - alpha^(1/n) of them may still differ unseen
        width = span * (1 - rules.alpha_promote ** (1 / min(found.users)))
        return AbMetricLook(metric, found, gain, harm, gain - width, alike)
    once = difference(*(arm if span is None else arm.with_pair(span) for arm in (control, treated)))
    width = float(scipy.special.stdtrit(once.freedom, 1 - rules.alpha_promote)) * once.cautious_error
    return AbMetricLook(metric, found, gain, harm, metric.sign * once.value - width, alike, once)


def sequence_width(found: Difference, planned: float, alpha: float) -> float:
    """How far from the value the bound is that holds over all looks, on one side; inf without information.

    `planned` is the information the sequence is tightest at, above 0.
    """
    if found.information <= 0:
        return math.inf
    z = boundary(found.information, planned, alpha)
    return -float(scipy.special.stdtrit(found.freedom, scipy.special.ndtr(-z))) * found.cautious_error


def _with_unseen(metric: AbMetric, control: Users, treated: Users) -> Difference:
    """The difference; an arm whose users are all alike is not known without error for that."""
    found = difference(control, treated)
    if metric.span is None or not min(found.users):
        return found
    unseen = sum(arm.unseen_variance(metric.span) / arm.users for arm in (control, treated))
    plain, cautious = (
        math.hypot(each, math.sqrt(unseen)) for each in (found.standard_error, found.cautious_error)
    )
    return replace(found, standard_error=plain, cautious_error=cautious)


def _decide(
    found: Sequence[AbMetricLook], ratio: SampleRatio, rules: AbRules, at_horizon: bool
) -> tuple[Action, str]:
    if ratio.wrong:
        return "hold", (
            f"the arms have {_users(ratio)} users, and the shares make that {ratio.p:.1g} likely: find out "
            "who is missing before anything is concluded"
        )
    if harmful := [each for each in found if each.harmful]:
        worst = harmful[0]
        return "roll_back", (
            f"{worst.metric.name} is worse by {-worst.gain:.3g}, at least {-worst.harm_bound:.3g} with "
            f"{100 * (1 - rules.alpha_harm):.4g}% confidence over all looks"
        )
    if not any(each.measured for each in found):
        return "hold", "nobody has used it, or their clients tell nothing"
    if not at_horizon:
        return "hold", "no harm is certain; promotion is decided at the horizon"
    if open_ := [each for each in found if each.measured and not each.non_inferior]:
        return "hold", f"{open_[0].metric.name}: {_why_open(open_[0], rules)}"
    return "promote", "no metric is worse by its margin or more"


def _why_open(one: AbMetricLook, rules: AbRules) -> str:
    """Why a loss of the margin is not excluded."""
    if math.isfinite(one.promote_bound):
        return f"a loss of {-one.promote_bound:.3g} cannot be excluded, tolerated are {one.metric.margin:.3g}"
    control, treated = one.difference.users
    if min(control, treated) < rules.min_users:
        seen = f"{control} (control) and {treated} (treated) users"
        return f"known of {seen}, of each {rules.min_users} are needed"
    return "how much its users differ cannot be told, as they are all alike"


def _users(ratio: SampleRatio) -> str:
    return " and ".join(f"{count} ({arm})" for arm, count in ratio.observed.items())
