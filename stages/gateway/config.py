"""Settings of the gateway and its spool, section `[gateway]` of rtrl.toml.

What a client may send and what it gets back is in `docs/http.md`.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from stages.durations import LONGEST_S, WAIT_S

MIB = 1 << 20


class DefaultSampling(BaseModel):
    """Sampling parameters of a request that names none. Always sent to the engine in full, so that
    what is recorded is what was sampled from (engines fill gaps from the model's own defaults)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0, le=2**31 - 1, description="0 is off")
    min_p: float = Field(0.0, ge=0, le=1)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    repetition_penalty: float = Field(1.0, ge=0.01, le=100)


class BreakerConfig(BaseModel):
    """When an engine counts as failing, and how it is tried again (`breaker.py`)."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    window_s: float = Field(10.0, ge=1, le=600, description="errors are counted over so long")
    min_requests: int = Field(20, ge=1, description="fewer in the window prove nothing")
    error_rate: float = Field(0.5, gt=0, le=1, description="this share of them failed: the breaker opens")
    open_s: float = Field(
        2.0, gt=0, le=WAIT_S, description="no request is sent for so long; doubles while trials fail"
    )
    open_max_s: float = Field(30.0, gt=0, le=WAIT_S, description="up to this")
    trials: int = Field(3, ge=1, description="requests sent then; the breaker closes when all succeed")


class GatewayConfig(BaseModel):
    """The OpenAI-compatible edge. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    host: str = Field(
        "127.0.0.1", min_length=1, description="address of the public listener; loopback unless changed"
    )
    port: int = Field(8100, ge=0, le=65535, description="port of the public listener; 0 picks a free one")
    admin_socket: str = Field(
        "", description="Unix socket of the admin listener, from the workspace; default run/admin.sock"
    )
    admin_port: int | None = Field(
        None, ge=0, le=65535, description="loopback port of the admin listener, in place of the Unix socket"
    )

    tls_cert: str = Field(
        "", description="PEM file of the certificate and its chain, from the workspace; with tls_key: HTTPS"
    )
    tls_key: str = Field("", description="PEM file of the certificate's private key, without a passphrase")
    tls_min_version: Literal["1.2", "1.3"] = Field("1.2", description="older versions of TLS are refused")

    key_rate: float = Field(
        0.0, ge=0, description="requests a second of an API key that has no rate of its own; 0: any number"
    )
    key_burst: int = Field(
        0, ge=0, description="requests at once after a pause, of such a key; 0: those of two seconds"
    )

    client_clock: bool = Field(
        False, description="take event time from clients (X-Rtrl-At, events' at) as it is: simulated users"
    )
    sampling: DefaultSampling = Field(
        default_factory=DefaultSampling, description="what a request that says nothing is sampled with"
    )

    max_body_bytes: int = Field(16 * MIB, ge=1024, description="longer request bodies get 413")
    max_header_bytes: int = Field(32 * 1024, ge=1024, description="longer header sections get 431")
    max_bodies_bytes: int = Field(
        256 * MIB,
        ge=1024,
        description="bodies of all requests that are not yet answered; more get 429, the largest of those "
        "that come in first",
    )
    max_headers: int = Field(100, ge=8, description="requests with more headers get 431")
    max_connections: int = Field(
        4096, ge=1, description="open at a time; one more ends one that waits for a request, or gets 503"
    )
    max_connections_per_peer: int = Field(
        1024, ge=1, description="of them from one address (IPv6: one /64); a proxy is one address"
    )
    header_timeout_s: float = Field(
        20.0, gt=0, le=WAIT_S, description="for a request's header section to come in"
    )
    body_timeout_s: float = Field(
        30.0,
        gt=0,
        le=WAIT_S,
        description="for a body to come in, and a second more for every body_bytes_per_s of it",
    )
    body_bytes_per_s: int = Field(16 * 1024, ge=1, description="slowest body that is waited for")
    idle_timeout_s: float = Field(
        75.0, gt=0, le=WAIT_S, description="a connection without a request is kept so long"
    )
    send_timeout_s: float = Field(
        60.0, gt=0, le=WAIT_S, description="a client that takes nothing of its answer for so long is cut off"
    )
    max_unread_bytes: int = Field(
        256 * MIB,
        ge=MIB,
        description="answers that clients have not taken yet, of all together; above it those for whom most "
        "waits are cut off",
    )
    max_events: int = Field(1000, ge=1, description="events in one POST /v1/events")
    max_pending_events: int = Field(
        10_000, ge=0, description="events per key that wait for their generation; more are rejected"
    )
    pending_hours: float = Field(
        168.0, gt=0, le=LONGEST_S // 3600, description="after this an event without generation expires"
    )

    received_bytes: int = Field(
        16 << 30, ge=MIB, description="what was received of other systems' sessions may take so much disk"
    )

    engine_timeout_s: float = Field(600.0, gt=0, le=WAIT_S, description="for one whole answer of the engine")
    engine_connections: int = Field(512, ge=1, description="requests in flight to the engine; more wait")
    max_queue: int = Field(
        256, ge=0, description="generations accepted beyond engine_connections, which wait; more get 429"
    )
    max_streams: int = Field(512, ge=1, description="streamed answers at a time; more get 429")
    fair_s: float = Field(
        60.0,
        ge=0,
        le=WAIT_S,
        description="once a generation was refused for want of a place: how long the places that an API key "
        "had or wanted, up to an equal share, are kept for it; 0: first come, first served",
    )
    breaker: BreakerConfig = Field(
        default_factory=BreakerConfig, description="when a failing engine gets no requests for a while"
    )
    hold_timeout_s: float = Field(
        60.0,
        gt=0,
        le=WAIT_S,
        description="how long a request waits while weights are swapped before it gets 503",
    )
    in_flight: Literal["finish", "continue"] = Field(
        "finish",
        description="what answers under way do when weights are updated in place: `finish` under the old "
        "ones, or `continue` under the new ones",
    )
    drain_timeout_s: float = Field(
        120.0, gt=0, le=WAIT_S, description="how long a swap waits for requests in flight before it gives up"
    )
    shutdown_timeout_s: float = Field(
        30.0,
        ge=0,
        le=WAIT_S,
        description="for requests in flight at SIGTERM; what is not done then is cut short",
    )
    log_format: Literal["text", "json"] = Field("text", description="of stderr; `json`: one object per line")
    log_requests: Literal["errors", "all", "none"] = Field(
        "errors", description="requests that get a line in the log; errors are those answered 5xx"
    )

    fsync_ms: float = Field(
        50.0, gt=0, le=60_000, description="a recorded generation survives a power cut after at most this"
    )
    segment_bytes: int = Field(64 * MIB, ge=4096, le=1 << 30, description="a segment is sealed at this size")
    segment_seconds: float = Field(3600.0, gt=0, le=LONGEST_S, description="and at this age")
    session_cache_bytes: int = Field(
        256 * MIB, ge=0, description="tokens of recent sessions kept so that prompts are stored as suffixes"
    )

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ValueError("tls_cert and tls_key go together: name both files, or none")
        return self

    @model_validator(mode="after")
    def _one_body_fits(self) -> Self:
        if self.max_body_bytes > self.max_bodies_bytes:
            raise ValueError(
                f"max_body_bytes ({self.max_body_bytes}) is over max_bodies_bytes ({self.max_bodies_bytes}): "
                "whoever sends such a body would be told to come again, for ever"
            )
        return self

    @model_validator(mode="after")
    def _a_proxy_can_fill_it(self) -> Self:
        accepted = self.engine_connections + self.max_queue
        held, name = min(
            (self.max_connections_per_peer, "max_connections_per_peer"),
            (self.max_connections, "max_connections"),
        )
        if accepted > held:
            raise ValueError(
                f"engine_connections ({self.engine_connections}) and max_queue ({self.max_queue}) accept "
                f"{accepted} generations, and one peer, such as a proxy, may hold {held} connections open: "
                f"raise {name} to {accepted} or more, or lower one of those"
            )
        return self
