"""Settings of `rtrl eval`, section `[eval]` of rtrl.toml.

What a metric tolerates is declared by its suite (`evals/suites/`); `margins` overrides it by name.
"""

from __future__ import annotations

from datetime import date

from pydantic import BaseModel, ConfigDict, Field, field_validator


class EvalConfig(BaseModel):
    """How a candidate is compared with the live checkpoint. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    suites: tuple[str, ...] = Field(
        ("harness", "snippets"),
        min_length=1,
        description="`harness`, `snippets`, `behaviour`; `lm_eval:TASK` for a task of the lm-eval harness, "
        "`cursorbench:FOLDER` for a suite of tasks, `perplexity:FOLDER` for a git repository of your own; "
        "folders from the workspace",
    )
    requests: int = Field(1500, ge=2, le=1_000_000, description="held-out requests of the harness suite")
    attempts: int = Field(
        1, ge=1, le=1000, description="answers per held-out request or task, checkpoint and look"
    )
    looks: int = Field(
        1,
        ge=1,
        le=10,
        description="how often an inconclusive comparison may be looked at, attempts being added each time",
    )
    population_seed: int = Field(0, ge=0, description="which held-out users; never those of `rtrl simulate`")
    alpha: float = Field(
        0.05,
        ge=1e-9,
        lt=0.5,
        description="level of each one-sided non-inferiority test, and of the regression tests together",
    )
    margins: dict[str, float] = Field(
        default_factory=dict,
        description="loss tolerated by `suite.metric`, in the metric's unit, in place of the suite's own",
    )
    temperature: float | None = Field(
        None,
        ge=0,
        description="sampling temperature, in place of the one users are served with (gateway.sampling)",
    )
    max_tokens: int | None = Field(
        None,
        ge=1,
        description="output tokens of one model call in `harness`, `behaviour` and `cursorbench:FOLDER`, in "
        "place of their 96, 256 and 4096: what a model thinks counts among them",
    )
    cache: bool = Field(
        True,
        description="reuse the baseline's stored attempts under equal digests of harness, engine and tasks",
    )
    rerun_share: float = Field(
        0.1,
        ge=0,
        le=1,
        description="share of reused attempts run again as a check; above 0, six cases at least",
    )
    infra_limit: float = Field(
        0.01,
        ge=0,
        lt=1,
        description="share of attempts the infrastructure may lose; above it no candidate passes",
    )
    lm_eval_include: str = Field(
        "", description="folder with further lm-eval task files (YAML), from the workspace"
    )
    lm_eval_limit: int | None = Field(None, ge=1, description="documents of each lm-eval task, at most")
    perplexity_since: date | None = Field(
        None, description="lines committed on this day (UTC) and later are held out, for `perplexity:FOLDER`"
    )
    perplexity_files: int = Field(200, ge=1, description="files of each repository, at most")
    probes: str = Field(
        "",
        description="file of requests for the `behaviour` suite (JSON lines), from the workspace, in place "
        "of the shipped ones",
    )
    drift: bool = Field(True, description="also test the candidate against the line's anchor")
    drift_margins: dict[str, float] = Field(
        default_factory=dict,
        description="loss since the anchor tolerated by `suite.metric`, in place of the margin against live",
    )

    @field_validator("margins", "drift_margins")
    @classmethod
    def _margins_are_losses(cls, margins: dict[str, float]) -> dict[str, float]:
        for name, margin in margins.items():
            if margin < 0:
                raise ValueError(f"margin of {name} is {margin}: a margin is the loss tolerated, at least 0")
        return margins
