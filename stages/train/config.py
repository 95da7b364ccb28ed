"""Settings of `rtrl train`, section `[train]` of rtrl.toml. Import-light: no torch.

The defaults are cautious ones for a model people use; what the tiny model of `rtrl init --tiny` is
trained with is written into its workspace's rtrl.toml.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from stages.delta import LONGEST

# What belongs to one correction, and has no effect under another
_OF_CORRECTION = {
    "truncated": ("importance_cap",),
    "ppo_clip": ("ppo_clip_low", "ppo_clip_high"),
    "sequence_ratio": ("sequence_clip_low", "sequence_clip_high"),
    "plausibility_mask": ("plausible_low", "plausible_high"),
}


class TrainConfig(BaseModel):
    """How a batch of experience becomes a step of the policy. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    # Which data
    max_lag: int = Field(
        1, ge=0, description="largest distance in the checkpoint tree between sampler and parent"
    )
    min_episodes: int = Field(
        8, ge=2, description="with fewer trainable episodes than this: inconclusive, keep waiting"
    )
    user_cap: float = Field(
        0.1,
        gt=0,
        le=1,
        description="largest share of the gradient one user may contribute (2/users where users are few)",
    )
    key_cap: float = Field(
        0.25,
        gt=0,
        le=1,
        description="largest share of the gradient one API key may contribute (2/keys where keys are few);"
        " shared ones, `rtrl keys add --shared`, are not capped",
    )
    min_kept: float = Field(
        0.1,
        ge=0,
        lt=1,
        description="share of the gradient that the caps leave at least; they are relaxed, with a "
        "warning, where nearly all use came from few",
    )

    # Advantage
    baseline_half_life: float = Field(
        500.0, gt=0, description="episodes of a stratum after which its baseline has forgotten half"
    )
    baseline_shrinkage: float = Field(
        16.0, ge=0, description="a stratum's baseline is mixed with the line's mean, worth this many episodes"
    )
    scale_advantages: bool = Field(
        False, description="divide all advantages of the batch by their root mean square"
    )

    # Objective
    correction: Literal["truncated", "ppo_clip", "sequence_ratio", "plausibility_mask"] = Field(
        "truncated",
        description="the one off-policy correction; the settings of the others then keep their defaults",
    )
    importance_cap: float = Field(
        4.0, ge=1, description="truncated: largest importance weight pi_now / pi_logged of a token"
    )
    ppo_clip_low: float = Field(
        0.2, gt=0, lt=1, description="ppo_clip: below 1 minus this, a token is not made less likely"
    )
    ppo_clip_high: float = Field(
        0.2, gt=0, description="ppo_clip: above 1 plus this, a token is not made more likely"
    )
    sequence_clip_low: float = Field(
        3e-4, gt=0, lt=1, description="sequence_ratio: as ppo_clip_low, of a sequence's mean ratio"
    )
    sequence_clip_high: float = Field(
        4e-4,
        gt=0,
        description="sequence_ratio: as ppo_clip_high; raise both where the serving dtype's noise is larger",
    )
    plausible_low: float = Field(
        0.5, ge=0, lt=1, description="plausibility_mask: a token with a smaller ratio is left out"
    )
    plausible_high: float = Field(
        5.0, gt=1, description="plausibility_mask: a token with a larger ratio is left out"
    )
    kl_coefficient: float = Field(
        0.05, ge=0, description="price in reward of one nat of k1 against the line's pinned anchor"
    )
    kl_credit: Literal["episode", "token"] = Field(
        "episode", description="whether a token answers for the KL of its whole episode or only for its own"
    )

    router_replay: bool = Field(
        True,
        description="mixture-of-experts: run the experts that the engine ran, where they are recorded",
    )

    # Optimizer
    learning_rate: float = Field(1e-6, gt=0, le=1e30, description="of AdamW")
    optimizer_steps: int = Field(
        4, ge=1, description="steps per run, over equal parts of the batch; every episode is in exactly one"
    )
    adam_beta1: float = Field(0.9, ge=0, lt=1, description="decay of the first moment")
    adam_beta2: float = Field(0.95, ge=0, lt=1, description="decay of the second moment")
    adam_eps: float = Field(1e-8, gt=0, description="added to the root of the second moment")
    weight_decay: float = Field(0.0, ge=0, description="decoupled, times the learning rate")
    max_grad_norm: float = Field(1.0, gt=0, description="gradients are scaled down to this global norm")
    warmup_steps: int = Field(
        0, ge=0, description="steps over which the learning rate rises linearly while Adam's moments are new"
    )
    carry_moments: bool = Field(
        True, description="keep Adam's moments in the line state, so that the next run goes on with them"
    )

    # Low-rank adapter in place of all weights
    lora_rank: int = Field(0, ge=0, description="rank of a LoRA adapter; 0 trains all weights")
    lora_alpha: float = Field(0.0, ge=0, description="its scale is alpha / rank; 0 is twice the rank")
    lora_targets: str = Field(
        "all-linear", description="linear layers that have one, names with commas; all but the output head"
    )

    # Multi-token prediction: a head with which an engine drafts; it never changes what is answered
    mtp_passes: int = Field(
        0, ge=0, description="passes over the batch that train a multi-token prediction head; 0 makes none"
    )
    mtp_learning_rate: float = Field(1e-3, gt=0, description="of the head's Adam")

    # Guards: an update that goes too far ends early and says so
    kl_stop: float = Field(
        0.2, ge=0, description="end the update when the KL to the parent exceeds this, nats a token; 0 is off"
    )
    anchor_kl_stop: float = Field(
        0.0, ge=0, description="the same of the KL to the line's anchor, which grows from cycle to cycle"
    )
    ess_stop: float = Field(
        0.3, ge=0, lt=1, description="end the update when the effective sample share falls below this; 0 off"
    )

    # On-policy proof; None takes the tolerance of the dtype the engine serves in
    proof_mean_tolerance: float | None = Field(
        None, gt=0, description="largest mean of |logp - logged|, nats a token"
    )
    proof_p99_tolerance: float | None = Field(
        None, gt=0, description="largest 99th percentile of |logp - logged|, nats"
    )

    # Machine
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto takes CUDA where there is any")
    threads: int = Field(0, ge=0, le=1024, description="CPU threads of each process; 0: all cores, shared")
    processes: int = Field(
        1,
        ge=0,
        le=1024,
        exclude=True,  # a run goes on with another number of them
        description="processes on this machine that train together, 0 for one per GPU (not for torchrun)",
    )
    compute_dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "auto",
        description="of forward and backward; auto: bfloat16 on CUDA. Masters and moments are float32",
    )
    activation_checkpointing: Literal["auto", "on", "off"] = Field(
        "auto", description="compute each layer again in the backward pass, for less memory; auto: on CUDA"
    )
    compile: bool = Field(False, description="torch.compile the decoder layers; pays in long runs on GPUs")
    model_copies: int = Field(
        4,
        ge=1,
        description="CPU: micro-batches of a small model at a time, each with gradients of its own in memory",
    )
    micro_batch_tokens: int = Field(8192, ge=1, description="tokens per forward and backward pass")
    logits_mib: int = Field(
        256, ge=1, description="largest float32 logits block at a time; larger ones are recomputed"
    )
    micro_checkpoints: int = Field(
        1, ge=0, description="optimizer steps after which a killed run goes on from there; 0 is never"
    )
    export_dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="dtype of the published checkpoint; the float32 masters are carried either way"
    )
    delta_chain: int = Field(
        8,
        ge=0,
        le=LONGEST,
        description="weights are published as their difference to the parent's where that is smaller, at "
        "most this many times in a row; 0 is always whole",
    )

    @model_validator(mode="after")
    def _one_correction(self) -> Self:
        """A bound of another correction than the chosen one would have no effect: say so."""
        for correction, names in _OF_CORRECTION.items():
            for name in names:
                default = type(self).model_fields[name].default
                if correction != self.correction and getattr(self, name) != default:
                    raise ValueError(
                        f"{name} belongs to the correction {correction}; the chosen one is {self.correction}"
                    )
        return self

    @model_validator(mode="after")
    def _targets(self) -> Self:
        """ "all-linear" beside names would be the name of a layer."""
        names = [name.strip() for name in self.lora_targets.split(",") if name.strip()]
        if not names or ("all-linear" in names and len(names) > 1):
            raise ValueError('lora_targets is "all-linear", or names of layers with commas between them')
        return self
