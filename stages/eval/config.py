"""Settings of `rtrl eval`, section `[eval]` of rtrl.toml.

What a metric tolerates is declared by its suite (`evals/suites/`); `margins` overrides it by name.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator


class EvalConfig(BaseModel):
    """How a candidate is compared with the live checkpoint. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    suites: tuple[str, ...] = Field(("harness", "snippets"), min_length=1)
    """Names of built-in suites, or `lm_eval:TASK` for a task of the lm-eval harness."""
    requests: int = Field(1500, ge=2)
    """Held-out requests of the harness suite. Fewer tell less: `rtrl show report@latest` says how many would."""
    attempts: int = Field(1, ge=1)
    """Answers per held-out request and checkpoint."""
    population_seed: int = 0
    """Which held-out users. The users of `rtrl simulate` never come from the held-out split."""
    alpha: float = Field(0.05, gt=0, lt=0.5)
    """Level of each non-inferiority test (one-sided); also the family level of the regression test (two-sided)."""
    margins: dict[str, float] = Field(default_factory=dict)
    """Tolerated loss by `suite.metric`, in the metric's own unit, in place of what the suite declares."""
    temperature: float = Field(1.0, ge=0)
    """Sampling temperature of the attempts: what users are served with."""
    cache: bool = True
    """Reuse the baseline's attempts of an earlier report under equal digests of harness, engine and tasks."""
    rerun_share: float = Field(0.1, ge=0, le=1)
    """Share of reused attempts that is run again as a check."""
    infra_limit: float = Field(0.05, ge=0, lt=1)
    """Share of cases either checkpoint may lose to the infrastructure before nothing can be concluded."""
    lm_eval_include: str = ""
    """Folder with further lm-eval task files (YAML)."""
    lm_eval_limit: int | None = Field(None, ge=1)
    """At most this many documents of each lm-eval task."""
    drift: bool = True
    """Also compare the candidate with the line's anchor where its attempts are already stored (reported, never gated)."""

    @field_validator("margins")
    @classmethod
    def _margins_are_losses(cls, margins: dict[str, float]) -> dict[str, float]:
        for name, margin in margins.items():
            if margin < 0:
                raise ValueError(f"margin of {name} is {margin}: a margin is the loss tolerated, at least 0")
        return margins
