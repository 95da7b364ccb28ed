"""Settings of engines that run elsewhere, sections `[targets.NAME]`. Import-light.

Engines of this machine are `engine.replicas`; these are further ones, for example on other machines.
"""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from stages.addresses import checked

# a number alone is the name of an engine of this machine
NAME = re.compile(r"(?!\d+$)[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class TargetConfig(BaseModel):
    """One vLLM server that somebody else starts, with `stages.engine.worker.WorkerExtension` in it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str = Field(
        pattern=r"^https?://[^\s]+$",
        description="base URL of its API and of its weight routes, without `/v1`",
    )
    key_file: str = Field(
        "", description="file with the bearer token it wants, from the workspace; default none"
    )
    helper: str = Field(
        "",
        pattern=r"^(https?://[^\s]+)?$",
        description="base URL of the helper beside it (`python -m stages.delivery`), which fetches weights "
        "from `deploy.store`; without one it has to see this workspace's store under the same path",
    )
    helper_key_file: str = Field("", description="file with the bearer token the helper wants, as above")

    @field_validator("url", "helper")
    @classmethod
    def _an_address(cls, url: str) -> str:
        return checked(url) if url else url

    def within(self, root: Path) -> TargetConfig:
        """The same, its files' paths from the workspace's folder `root`."""
        files = {name: getattr(self, name) for name in ("key_file", "helper_key_file")}
        whole = {name: str(root / Path(file).expanduser()) for name, file in files.items() if file}
        return self.model_copy(update=whole)
