"""Settings of `rtrl cycle`, section `[cycle]` of rtrl.toml.

The table of shares says how much of the deadline each stage may have used up by its own end,
counted from the start of the cycle. What a late stage does is in `stages/cycle/run.py`.
"""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from stages import addresses

STAGES = ("collect", "distill", "train", "eval", "deploy")

LONGEST_S = 366 * 86400.0  # timers of the system take no more than some hundred years
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")


def seconds(text: str) -> float:
    """Seconds of "5h", "90m", "1h30m", "45s" or a bare number of seconds.

    Raises:
        ValueError: not a duration, not above zero, or longer than a year.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r} is no duration: write 5h, 90m, 1h30m or 45s")
    hours, minutes, rest = (float(part or 0) for part in match.groups())
    total = hours * 3600 + minutes * 60 + rest
    if total <= 0:
        raise ValueError(f"{text!r} is no time at all")
    if total > LONGEST_S:
        raise ValueError(f"{text!r} is longer than a year")
    return total


class CycleConfig(BaseModel):
    """How one turn of the loop is timed and watched. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    deadline: str = Field(
        "5h", description="how long one cycle may take: 5h, 90m, 1h30m, 45s; a bare number is seconds"
    )
    shares: dict[str, float] = Field(
        default_factory=lambda: {"collect": 0.1, "distill": 0.1, "train": 0.5, "eval": 0.25, "deploy": 0.05},
        description="share of the deadline of each stage; what a stage does not use goes to those after it",
    )
    ping: str = Field(
        "", description="URL told of start (URL/start), success (URL) and any other end (URL/EXIT)"
    )
    ping_timeout_s: float = Field(
        5.0, gt=0, le=86400, description="how long one ping may take; a failed ping is a warning"
    )

    @field_validator("deadline")
    @classmethod
    def _deadline_reads(cls, text: str) -> str:
        seconds(text)
        return text

    @field_validator("ping")
    @classmethod
    def _an_address(cls, url: str) -> str:
        return addresses.checked(url) if url else url

    @model_validator(mode="after")
    def _shares_add_up(self) -> CycleConfig:
        if set(self.shares) != set(STAGES):
            raise ValueError(f"cycle.shares must name exactly {', '.join(STAGES)}")
        if any(share <= 0 for share in self.shares.values()) or abs(sum(self.shares.values()) - 1) > 1e-6:
            raise ValueError("cycle.shares must all be above 0 and add up to 1")
        return self

    @property
    def deadline_s(self) -> float:
        """The deadline in seconds."""
        return seconds(self.deadline)
