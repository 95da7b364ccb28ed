"""Settings of shadow replay, part of section `[deploy]`. Import-light."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from stages.durations import WAIT_S


class ShadowConfig(BaseModel):
    """How a candidate is tried on recorded requests before any user sees it. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    shadow_requests: int = Field(
        32,
        ge=0,
        description="recorded requests that a canary answers, beside a live engine, before any user sees it; "
        "0 is off",
    )
    shadow_always: bool = Field(
        False, description="also before a deploy to everybody: wants a second engine for that long"
    )
    shadow_least: int = Field(
        8, ge=1, description="with fewer recorded requests than this nothing is replayed"
    )
    shadow_side_by_side: int = Field(
        4, ge=1, description="requests asked at a time, each of one of the two engines"
    )
    shadow_timeout_s: float = Field(120, gt=0, le=WAIT_S, description="for one answer; longer is no answer")
    shadow_rate: float = Field(
        0.05, ge=0, lt=1, description="share of errors, broken calls and empty answers more than tolerated"
    )
    shadow_length: float = Field(2.0, gt=1, description="factor by which answers may grow or shrink")
    shadow_latency: float = Field(
        3.0, gt=1, description="factor by which a token may take longer than the live engine's"
    )

    @model_validator(mode="after")
    def _enough_are_asked_for(self) -> Self:
        if 0 < self.shadow_requests < self.shadow_least:
            raise ValueError(
                f"shadow_requests {self.shadow_requests} is under shadow_least {self.shadow_least}: nothing "
                "would ever be replayed"
            )
        return self
