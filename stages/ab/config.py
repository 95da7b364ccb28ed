"""Settings of `rtrl ab`, section `[ab]`: how a canary is judged. Import-light."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator

from stages.durations import LONGEST_S

# what a canary is judged by: direction, and the loss that promotion tolerates
METRICS: dict[str, tuple[str, float]] = {
    "edit_persistence": ("higher", 0.03),
    "dissatisfied_followup": ("lower", 0.03),
    "latency": ("lower", 0.1),
    "invalid_calls": ("lower", 0.02),
    "completion_accepted": ("higher", 0.03),
}
GUARDS = ("ask_rate", "edit_rate")  # shown, not judged


class AbConfig(BaseModel):
    """When a canary is taken away, and when it is given to everybody. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    horizon_s: float = Field(
        3 * 3600.0,
        gt=0,
        le=LONGEST_S,
        description="seconds after its opening at which promotion is decided, once",
    )
    hold_s: float = Field(
        2 * 3600.0,
        ge=0,
        le=LONGEST_S,
        description="seconds after the horizon that somebody has to promote what is held; then it is ended",
    )
    collapse: float = Field(
        5.0,
        ge=0,
        description="a canary whose median token takes this many times as long as the live one's is taken "
        "away at once; 0 is never",
    )
    cuped: bool = Field(
        True, description="take away what users' figures from before the canary explain of the difference"
    )
    holdback: float = Field(
        0.0,
        ge=0,
        le=0.2,
        description="share of the users who stay on the line's anchor for good: what was gained since",
    )
    planned_users: int = Field(
        2000, ge=100, description="users of both arms expected by then: bounds are tightest there"
    )
    min_users: int = Field(50, ge=10, description="users of each arm before anything is said of it")
    alpha_harm: float = Field(
        0.01, ge=1e-9, lt=0.5, description="chance of ever rolling back what does no harm, over all looks"
    )
    alpha_promote: float = Field(0.05, ge=1e-9, lt=0.5, description="level of each non-inferiority test")
    harm: dict[str, float] = Field(
        default_factory=dict, description="loss of a metric that is no harm yet, in its unit; 0 by default"
    )
    margins: dict[str, float] = Field(
        default_factory=dict, description="loss of a metric that promotion tolerates, in its unit"
    )

    @model_validator(mode="after")
    def _known_metrics(self) -> AbConfig:
        for name, value in [*self.harm.items(), *self.margins.items()]:
            if name not in METRICS:
                raise ValueError(f"no A/B metric is called {name!r}; there are {', '.join(METRICS)}")
            if not value >= 0:  # nor nan
                raise ValueError(f"{name}: a loss is at least 0")
        return self
