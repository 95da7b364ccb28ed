"""Settings of populations with a line of their own, sections `[populations.NAME]`. Import-light.

NAME is the line. Whose requests are its population's, the API keys say (`rtrl keys add --population`).
"""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")  # of a line, and of a population of API keys
# stages whose settings a population may have of its own
OWN = ("collect", "distill", "train", "eval", "deploy", "rollback", "ab", "cycle", "monitor")


class PopulationConfig(BaseModel):
    """One population: whose requests, where its line begins, and settings that are not the workspace's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    labels: tuple[str, ...] = Field(
        (), description="populations of API keys that are of this line; by default the one of its name"
    )
    parent: str = Field(
        "checkpoint@live", description="checkpoint of the workspace's own line that this line begins with"
    )
    collect: dict[str, Any] = Field(
        default_factory=dict,
        description="`[collect]` of this line where it differs: minimum data, lag",
    )
    distill: dict[str, Any] = Field(default_factory=dict, description="the same of `[distill]`: its rewards")
    train: dict[str, Any] = Field(default_factory=dict, description="the same of `[train]`")
    eval: dict[str, Any] = Field(default_factory=dict, description="the same of `[eval]`: its gate")
    deploy: dict[str, Any] = Field(
        default_factory=dict, description="the same of `[deploy]`: its canary's share"
    )
    rollback: dict[str, Any] = Field(default_factory=dict, description="the same of `[rollback]`")
    ab: dict[str, Any] = Field(default_factory=dict, description="the same of `[ab]`: its holdback, horizon")
    cycle: dict[str, Any] = Field(default_factory=dict, description="the same of `[cycle]`")
    monitor: dict[str, Any] = Field(default_factory=dict, description="the same of `[monitor]`")

    @field_validator("labels")
    @classmethod
    def _of_keys(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        for label in labels:
            if not NAME.fullmatch(label):
                raise ValueError(f"no key can be of population {label!r}: small letters, digits, . - and _")
        return labels


def labels_of(name: str, config: PopulationConfig) -> tuple[str, ...]:
    """The API keys' populations that are of line `name`."""
    return config.labels or (name,)
