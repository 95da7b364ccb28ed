"""Settings of `collect`. Import-light: read by every command that loads the workspace."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from stages.durations import LONGEST_S
from stages.verdicts import rule_of


class CollectConfig(BaseModel):
    """Which episodes of the spool become `interactions`. Durations in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    clock: Literal["wall", "events"] = Field(
        "wall",
        description="what 'now' is: the wall clock, or the newest event time in the spool (simulated users)",
    )
    horizon_s: float = Field(
        3600.0,
        gt=0,
        le=LONGEST_S,
        description="training horizon: an episode is mature this long after its last edit or model call, "
        "whose time is when its request came",
    )
    grace_s: float = Field(
        60.0,
        ge=0,
        le=LONGEST_S,
        description="wall clock only: how much longer an event may be on its way after the horizon",
    )
    max_lag: int = Field(
        1, ge=0, description="largest distance in the checkpoint tree between sampler and live checkpoint"
    )
    arm: Literal["live", "canary", "holdback"] = Field(
        "live", description="the arm whose episodes are taken: that of the parent to be trained"
    )
    holdback: bool = Field(
        True,
        description="take the holdback's episodes too, where `max_lag` permits their checkpoint",
    )
    repos: tuple[str, ...] = Field(
        (),
        description="git repositories that took edits which the gateway recorded: what of them stands 1 h, "
        "24 h and 7 d of commit time later, where clients do not tell it (docs/persistence.md)",
    )
    metrics: dict[str, str] = Field(
        default_factory=dict,
        description="what a metric of logged feedback is, by its name: thumbs, outcome, outcome WORST..BEST "
        "(numbers, or words from the worst to the best)",
    )
    min_episodes: int = Field(
        1, ge=1, description="with fewer mature episodes than this: inconclusive, keep waiting"
    )

    max_episodes: int = Field(
        0,
        ge=0,
        description="of more mature episodes of the spool than this the newest are taken, the others wait: "
        "without a promotion each cycle would take longer than the one before; 0 takes all",
    )

    @field_validator("metrics")
    @classmethod
    def _metrics_are_rules(cls, metrics: dict[str, str]) -> dict[str, str]:
        for text in metrics.values():
            rule_of(text)
        return metrics

    @model_validator(mode="after")
    def _enough_may_be_taken(self) -> Self:
        if 0 < self.max_episodes < self.min_episodes:
            raise ValueError(
                f"max_episodes is {self.max_episodes}, and min_episodes {self.min_episodes} wants more"
            )
        return self
