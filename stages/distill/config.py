"""Settings of `distill`. Import-light; what the reward is made of stands in the reward spec."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class DistillConfig(BaseModel):
    """Which reward spec turns interactions into experience."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    spec: str = Field(
        "default", description="reward spec: the name of a shipped one, or the path of a TOML file"
    )
    engine: Literal["local", "ray"] = Field(
        "local",
        description="who measures the parts: processes on this machine, or a Ray cluster that sees the store",
    )
    workers: int = Field(0, ge=0, description="parts measured side by side; 0: one a core")
    history: int = Field(
        200, ge=1, description="windows of behaviour history kept in the line state's monitors"
    )
