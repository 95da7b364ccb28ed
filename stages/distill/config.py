"""Settings of `distill`. Import-light; what the reward is made of stands in the reward spec."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from stages.addresses import checked
from stages.durations import WAIT_S


class JudgeConfig(BaseModel):
    """A model behind an OpenAI-compatible endpoint that judges follow-up messages by their redacted text."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    url: str = Field(
        "", description='address of the endpoint up to and with "/v1"; empty: the embedded model judges'
    )
    model: str = Field("", description="name of the model there")
    key_variable: str = Field(
        "RTRL_JUDGE_KEY", description="environment variable that holds the endpoint's key, if it wants one"
    )
    votes: int = Field(3, ge=1, description="times each message is judged; the share is the probability")
    temperature: float = Field(0.7, ge=0, description="sampling temperature of a vote")
    max_tokens: int = Field(512, ge=1, description="of a reply, thoughts included")
    timeout_s: float = Field(20.0, gt=0, le=WAIT_S, description="seconds one reply may take")
    retries: int = Field(2, ge=0, description="further tries of a vote after a time-out or an overload")
    concurrency: int = Field(8, ge=1, description="messages judged at once")
    deadline_s: float = Field(
        600.0,
        gt=0,
        le=WAIT_S,
        description="seconds for all messages; then the embedded model judges the rest",
    )

    @model_validator(mode="after")
    def _named(self) -> JudgeConfig:
        if self.url and not self.model:
            raise ValueError("judge.url needs judge.model")
        try:
            checked(self.url or "http://none")
        except ValueError as error:
            raise ValueError(f"judge.url {error}") from error
        return self


class DistillConfig(BaseModel):
    """Which reward spec turns interactions into experience."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    spec: str = Field(
        "default",
        description="reward spec: the name of a shipped one, or the path of a TOML file, from the workspace",
    )
    engine: Literal["local", "ray"] = Field(
        "local",
        description="who measures the parts: processes on this machine, or a Ray cluster that sees the store",
    )
    workers: int = Field(0, ge=0, description="parts measured side by side; 0: one a core")
    history: int = Field(200, ge=1, description="windows that the line state's monitors remember")
    alarm_rate: float = Field(
        0.02,
        gt=0,
        lt=1,
        description="false alarms of the monitors a clean window, all charts together, at most",
    )
    warm_up: int = Field(4, ge=2, description="windows of a line before the first alarm")
    judge: JudgeConfig = Field(
        default_factory=JudgeConfig, description="who judges follow-up messages by text, see docs/followup.md"
    )

    @model_validator(mode="after")
    def _monitors_can_alarm(self) -> DistillConfig:
        if self.history < self.warm_up:
            raise ValueError(
                f"history {self.history} is under warm_up {self.warm_up}: no window would ever alarm"
            )
        return self
