"""The contract between a stage and the runner. A stage imports this, never the runner.

`stages/<name>/run.py` exposes `STAGE: Stage`. The runner resolves inputs, computes the
fingerprint, takes the lock, calls `run`, and publishes what stands under `out_dir`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import BaseModel

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.workspace import Workspace

Kind = Literal["interactions", "experience", "checkpoint", "line_state", "report"]


@dataclass(frozen=True)
class Artifact:
    """A committed artifact. `meta` is part of the digest; `version` numbers the kind within a store."""

    kind: Kind
    digest: str  # "sha256:..." over the canonical manifest
    version: int
    line: str
    bytes: int
    created_at: str  # ISO 8601, UTC
    run_id: str
    meta: Mapping[str, Any]
    path: Path  # the object's folder; of a checkpoint's weights ask `Store.checkpoint_folder`
    base: str | None = None  # digest of the checkpoint that this one's weights are a delta to

    @property
    def ref(self) -> str:
        """`kind@vN`, what people type."""
        return f"{self.kind}@v{self.version}"


@dataclass(frozen=True)
class Output:
    """One artifact a run wants published: the files under `out_dir/<name>/`."""

    kind: Kind
    meta: Mapping[str, Any] = field(default_factory=dict)
    base: str | None = None  # digest of the artifact this one is a delta to


@dataclass
class Outcome:
    """What a stage's `run` returns. `outputs` maps a folder name under `out_dir` to its artifact."""

    status: Literal["succeeded", "rejected", "inconclusive"] = "succeeded"
    outputs: dict[str, Output] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    noop: bool = False  # succeeded because there was nothing to do (deploy of what is served)


class Progress(Protocol):
    """Where a stage says how far it is; plain lines on stderr without a terminal."""

    def start(self, what: str, total: int | None = None) -> None: ...
    def advance(self, n: int = 1, note: str = "") -> None: ...
    def message(self, text: str) -> None: ...


@dataclass(frozen=True)
class RunContext:
    """What a stage may use besides its config and inputs. Nothing here changes a result but `seed`."""

    workspace: Workspace
    store: Store
    run_id: str
    seed: int
    scratch: Path  # kept between attempts with the same fingerprint, removed on success: resume from here
    progress: Progress
    log: RunLog


class RunLog(Protocol):
    """Structured lines into `store/logs/<run>.jsonl`."""

    def write(self, event: str, **fields: Any) -> None: ...


class Stage(Protocol):
    """One stage: its name, its settings, which artifacts it reads, and its work."""

    name: str
    config: type[BaseModel]

    @property
    def takes(self) -> tuple[Kind, ...]:
        """The kinds of artifact that a user may name with --input."""

    def resolve(self, workspace: Workspace, store: Store, refs: Mapping[str, str]) -> dict[str, Artifact]:
        """Input artifacts by role. `refs` holds what the user named with --input (by kind);
        the rest defaults to the newest that fits. Raises InputMissingError."""

    def extra(self, workspace: Workspace, store: Store, config: BaseModel) -> Mapping[str, Any]:
        """Further facts the result depends on (JSON-able; collect: the spool range); in the fingerprint."""

    def run(
        self,
        config: BaseModel,
        inputs: Mapping[str, Artifact],
        extra: Mapping[str, Any],
        out_dir: Path,
        ctx: RunContext,
    ) -> Outcome:
        """Do the work. Writes only under `out_dir` and `ctx.scratch`."""
