"""Settings of the monitors, section `[monitor]`. When they alarm is a matter of `distill`'s settings."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from stages import addresses


class MonitorConfig(BaseModel):
    """Who is told of alarms, and whether they block the gate. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    block: bool = Field(True, description="an alarm blocks eval and deploy until it is acknowledged")
    webhook: SecretStr = Field(
        SecretStr(""), description="URL that a JSON document is posted to for each alarm; never logged"
    )
    ping: SecretStr = Field(
        SecretStr(""),
        description="URL that `rtrl monitor --watch` pings: URL, or URL/fail while alarmed",
    )
    timeout_s: float = Field(5.0, gt=0, le=86400, description="seconds one post may take")
    retries: int = Field(3, ge=0, description="further tries of a post that failed")

    @field_validator("webhook", "ping")
    @classmethod
    def _an_address(cls, url: SecretStr) -> SecretStr:
        if text := url.get_secret_value():
            addresses.checked(text)
        return url
