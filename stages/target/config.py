"""Settings of engines that run elsewhere, sections `[targets.NAME]`. Import-light.

Engines of this machine are `engine.replicas`; these are further ones, for example on other machines.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class TargetConfig(BaseModel):
    """One vLLM server that somebody else starts, with `stages.engine.worker.WorkerExtension` in it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str = Field(
        pattern=r"^https?://[^\s]+$",
        description="base URL of its API and of its weight routes, without `/v1`",
    )
    key_file: str = Field("", description="file with the bearer token it wants; default none")
    helper: str = Field(
        "",
        pattern=r"^(https?://[^\s]+)?$",
        description="base URL of the helper beside it (`python -m stages.delivery`), which fetches weights "
        "from `deploy.store`; without one it has to see this workspace's store under the same path",
    )
    helper_key_file: str = Field("", description="file with the bearer token the helper wants")
