"""Settings of `rtrl deploy`, section `[deploy]`."""

from __future__ import annotations

from typing import Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from stages.delivery.place import place
from stages.durations import require_time_to_load
from stages.shadow.config import ShadowConfig


class DeployConfig(ShadowConfig):
    """How a deployment talks to the running gateway. Who may be deployed, the gate's report says."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    canary_share: float = Field(
        0, ge=0, lt=1, description="share of the users who get it first when `--canary` says none; 0 is all"
    )
    store: str = Field(
        "",
        description="URL of a folder (`file:///...`, `s3://...`: any protocol of fsspec) that checkpoints "
        "are copied to before they are deployed, for the helpers of `[targets.NAME]`; credentials and "
        "endpoints come from the environment",
    )
    drain_timeout_s: float = Field(60, gt=0, description="requests in flight may take this long to finish")
    swap_timeout_s: float = Field(
        180, gt=0, description="drain, load, reset and verification together: more than drain_timeout_s"
    )
    lock_timeout_s: float = Field(
        0, ge=0, description="how long to wait for another deployment of the target"
    )

    @model_validator(mode="after")
    def _time_to_load(self) -> Self:
        require_time_to_load(self.swap_timeout_s, drain_timeout_s=self.drain_timeout_s)
        return self

    @field_validator("store")
    @classmethod
    def _place(cls, url: str) -> str:
        return place(url)
