"""Settings of the serving engine, section `[engine]`. Import-light: no vLLM, no torch.

Not here: what a request samples with (the request says), and who may talk to the gateway.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from stages.durations import WAIT_S
from stages.engine.extra_args import drafting, refused

Dtype = Literal["float32", "bfloat16", "float16"]
Program = Literal["vllm", "stub"]


class EngineConfig(BaseModel):
    """How vLLM is started. The defaults are the measured ones for a small model on CPUs."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    program: Program = Field(
        "vllm", description="`stub` answers with fixed text and no model: tests and benchmarks of the rest"
    )
    served_name: str = Field("rtrl", min_length=1, description="model name clients ask for")
    dtype: Dtype = Field("float32", description="never `auto`: vLLM picks bfloat16 even for float32 weights")
    max_model_len: int = Field(1024, ge=16, description="prompt plus output, tokens")
    max_num_seqs: int = Field(64, ge=1, description="requests decoded at a time")
    seed: int = Field(0, ge=0, lt=2**32, description="the engine's own sampling seed")
    replicas: int = Field(
        1, ge=0, le=64, description="engines of this machine; with 0 only those of `[targets.NAME]`"
    )
    port: int = Field(0, ge=0, le=65535, description="loopback port, 0 takes a free one")
    kv_cache_gib: int = Field(1, ge=1, description="CPU only; without a bound vLLM takes nearly all memory")
    gpu_memory_utilization: float = Field(0.85, gt=0, le=1, description="GPU only")
    enforce_eager: bool = Field(True, description="false lets vLLM compile and record CUDA graphs: GPU only")
    lora_rank: int = Field(
        0,
        ge=0,
        le=512,
        description="LoRA adapters of up to this rank are served beside their base: a deploy swaps the "
        "adapter and no request waits, but answers take longer; 0 serves merged weights",
    )
    draft_tokens: int = Field(
        0,
        ge=0,
        le=8,
        description="tokens at a time drafted with the checkpoint's multi-token prediction head, where it "
        "has one (`train.mtp_passes`); answers are distributed as without. GPU only",
    )
    extra_args: tuple[str, ...] = Field(
        (),
        description="further arguments of vLLM's API server, as they are; those that rtrl itself says, or "
        "that would change what it reads of answers, are refused",
    )
    startup_timeout_s: float = Field(300, gt=0, le=WAIT_S, description="from start to healthy")
    stop_timeout_s: float = Field(20, gt=0, le=WAIT_S, description="after SIGTERM, before SIGKILL")
    update_timeout_s: float = Field(
        120, gt=0, le=WAIT_S, description="one weight update or one verification call"
    )
    resident_gib: float | None = Field(
        None,
        ge=0,
        description="memory in which the engine may keep the previous weights, so that a rollback reads no "
        "file, and make the next ones ready beside them; 0 for neither, without a number what leaves a tenth "
        "of the memory free",
    )
    warmup_requests: int = Field(2, ge=0, description="short requests to a started engine before users' ones")
    warmup_update_requests: int = Field(
        0,
        ge=0,
        description="the same after a weight update in place, while users' requests wait; its verification "
        "has read prompts and written a token already",
    )
    health_every_s: float = Field(2, gt=0, le=WAIT_S, description="between health probes of the engine")
    health_timeout_s: float = Field(
        5, gt=0, le=WAIT_S, description="a probe without an answer by then has failed"
    )
    health_failures: int = Field(
        3, ge=1, description="failed in a row: the engine gets no requests (503) until it answers again"
    )
    silence_s: float = Field(
        90,
        gt=0,
        le=WAIT_S,
        description="an engine that runs and answers no health check for so long is started again",
    )
    failing_restart_s: float = Field(
        120,
        gt=0,
        le=WAIT_S,
        description="the gateway's breaker was not closed for so long: the engine is started again",
    )
    restart_backoff_s: float = Field(
        1, gt=0, le=WAIT_S, description="first pause before a dead engine is started again"
    )
    restart_backoff_max_s: float = Field(
        60, gt=0, le=WAIT_S, description="longest pause; it doubles up to this"
    )

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        if self.lora_rank and self.draft_tokens:
            raise ValueError(
                "lora_rank and draft_tokens exclude each other: the drafting head is of one policy"
            )
        if why := refused(self.extra_args):
            raise ValueError(why)
        if self.draft_tokens and drafting(self.extra_args):
            raise ValueError("draft_tokens and extra_args both say how to draft: vLLM takes one of them")
        return self

    @property
    def drafts(self) -> bool:
        """Whether the engine drafts tokens, in whichever way: it passes over what drafting leaves out."""
        return self.draft_tokens > 0 or drafting(self.extra_args)
