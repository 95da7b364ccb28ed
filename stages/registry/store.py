"""The store: what a workspace has made, found by reference, kind, line or run.

`Store` is the door for stages and commands to artifacts, aliases, runs and `deployments`. It gives plain
`Artifact` records; rows leave it only for runs and deployments, detached from the database.

Not for: publishing (`publish.py` through the runner), sweeping and gc (`sweep.py`, `gc.py`), what is on
record beside them (`looks.py`, `holdbacks.py`, `exports.py`, `pins.py`): these take a Store. Who has to be
quick, or works while the store is away, reads the file itself (`glance.py`, `runlog.py`,
`monitor/standing.py`, `rollback/first.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import desc
from sqlmodel import col, select

from stages.errors import InputMissingError, IntegrityError, UsageError
from stages.registry import lineage
from stages.registry.aliases import move_alias
from stages.registry.database import make_engine
from stages.registry.deployments import Deployments
from stages.registry.external import publish_external
from stages.registry.migrate import make_folders
from stages.registry.models import ARTIFACT_KINDS, AliasRow, ArtifactRow
from stages.registry.objects import READS_FROM, path_in
from stages.registry.rebuilt import checkpoint_folder
from stages.registry.run_queries import RunQueries
from stages.registry.schema import FILE, check_schema
from stages.stage import Artifact, Output
from stages.who import who

if TYPE_CHECKING:
    pass

REFERENCES = "checkpoint@live, checkpoint@anchor, KIND@vN, KIND@latest, sha256:PREFIX"
_AT_A_TIME = 100  # rows: whoever wants the newest of thousands reads no others
_BY_NAME = re.compile(r"([a-z_]+)(?:@([A-Za-z0-9_.-]+))?")
_BY_DIGEST = re.compile(r"sha256:([0-9a-f]{6,64})")
_FIRST = {  # of a kind of which there is none
    "interactions": "`rtrl collect`",
    "experience": "`rtrl collect`, then `rtrl distill`,",
    "report": "`rtrl eval`",
}


class Store(RunQueries):
    """One registry file and its object folder. Cheap to open; holds no connection between calls."""

    def __init__(self, directory: Path) -> None:
        self.dir = directory
        self.objects = directory / "objects"
        self.engine = make_engine(directory / FILE)
        self.deployments = Deployments(self)
        self._is_scratch = (directory / READS_FROM).exists()

    @classmethod
    def open(cls, directory: Path) -> Store:
        """The store at `directory`. Raises StoreError (exit 10): missing, or another schema."""
        check_schema(directory / FILE)
        make_folders(directory)
        return cls(directory)

    # places

    def lock_path(self, name: str) -> Path:
        """The lock file of `name`."""
        return self.dir / "locks" / f"{name}.lock"

    def run_lock_path(self, run_id: str) -> Path:
        """The lock a run holds as long as it lives."""
        return self.lock_path(f"run-{run_id}")

    @property
    def is_scratch(self) -> bool:
        """Whether this store was made by `--from-run` and reads another store's objects."""
        return self._is_scratch

    def path_of(self, digest: str) -> Path:
        """The folder of an object."""
        return path_in(self.dir, digest)

    def checkpoint_folder(self, checkpoint: Artifact) -> Path:
        """A checkpoint as transformers and vLLM load it, rebuilt where it is a delta; see `rebuilt.py`."""
        return checkpoint_folder(self, checkpoint)

    # finding artifacts

    def resolve(self, ref: str, line: str | None = None) -> Artifact:
        """The committed artifact that `ref` names.

        Args:
            line: whose alias or newest is meant; default: "auto" for aliases, any line for the newest.

        Raises:
            InputMissingError: (exit 5) there is none.
            UsageError: (exit 2) not a reference, or a prefix of several digests.
        """
        if match := _BY_DIGEST.fullmatch(ref):
            return self._by_prefix(ref, match[0])
        match = _BY_NAME.fullmatch(ref)
        if match is None or match[1] not in ARTIFACT_KINDS:
            raise UsageError(f"{ref!r} is not a reference", hint=f"references: {REFERENCES}")
        kind, which = match[1], match[2] or "latest"
        if which == "latest":
            return self._required(self.latest(kind, line), ref)
        if re.fullmatch(r"v[0-9]{1,18}", which):
            return self._required(self._where(kind=kind, version=int(which[1:])), ref)
        if kind != "checkpoint":
            raise UsageError(f"{ref!r}: only checkpoints have aliases", hint=f"references: {REFERENCES}")
        return self._required(self.alias(line or "auto", which), ref)

    def _required(self, found: Artifact | None, ref: str) -> Artifact:
        if found is None:
            first = _FIRST.get(ref.removesuffix("@latest"))
            hint = f"{first} makes the first one" if first else "`rtrl status` lists what there is"
            raise InputMissingError(f"there is no {ref}", hint=hint)
        return found

    def _by_prefix(self, ref: str, prefix: str) -> Artifact:
        with self.read() as session:
            rows = session.exec(
                select(ArtifactRow)
                .where(
                    col(ArtifactRow.digest) >= prefix,
                    col(ArtifactRow.digest) < prefix + "g",
                    ArtifactRow.state == "committed",
                )
                .limit(2)
            ).all()
        if len(rows) > 1:
            raise UsageError(f"{ref!r} is the beginning of several digests", hint="give more digits")
        return self._required(self.artifact_of(rows[0]) if rows else None, ref)

    def _where(self, **equal: Any) -> Artifact | None:
        with self.read() as session:
            row = session.exec(select(ArtifactRow).filter_by(state="committed", **equal)).first()
        return self.artifact_of(row) if row else None

    def artifact(self, digest: str) -> Artifact | None:
        """The committed artifact of exactly this digest."""
        return self._where(digest=digest)

    def is_committed(self, digest: str) -> bool:
        """Whether a committed artifact has this digest."""
        return self.artifact(digest) is not None

    def all_of(
        self,
        kind: str,
        line: str | None = None,
        where: Mapping[str, Any] | None = None,
        *,
        removed: bool = False,
    ) -> Iterator[Artifact]:
        """Committed artifacts of a kind, newest first; `where` are equalities on meta keys.

        With `removed` also those that gc removed: their meta stays, their bytes are gone.
        """
        states = ("committed", "tombstoned") if removed else ("committed",)
        query = select(ArtifactRow).where(ArtifactRow.kind == kind, col(ArtifactRow.state).in_(states))
        if line is not None:
            query = query.where(ArtifactRow.line == line)
        query = query.order_by(desc(col(ArtifactRow.version))).execution_options(yield_per=_AT_A_TIME)
        with self.read() as session:
            for row in session.exec(query):
                meta = json.loads(row.meta)
                if all(meta.get(key) == value for key, value in (where or {}).items()):
                    yield self.artifact_of(row)

    def latest(
        self, kind: str, line: str | None = None, where: Mapping[str, Any] | None = None
    ) -> Artifact | None:
        """The newest committed artifact of a kind; `where` are equalities on meta keys."""
        return next(self.all_of(kind, line, where), None)

    def publish_external(
        self, outputs: Mapping[str, tuple[Output, Path]], *, line: str, **about: Any
    ) -> dict[str, Artifact]:
        """Publish folders that no stage made, as one pseudo-run; see `external.py`."""
        return publish_external(self, outputs, line=line, **about)

    # lines

    def alias(self, line: str, name: str) -> Artifact | None:
        """The checkpoint that `live` or `anchor` of a line names; None before there is one."""
        with self.read() as session:
            row = session.exec(
                select(ArtifactRow)
                .join(AliasRow, col(AliasRow.artifact_id) == ArtifactRow.id)
                .where(AliasRow.line == line, AliasRow.name == name)
            ).first()
        return self.artifact_of(row) if row else None

    def lines(self) -> list[str]:
        """The lines that have a checkpoint with a name (live, anchor)."""
        with self.read() as session:
            return sorted(session.exec(select(AliasRow.line).distinct()))

    def move_alias(
        self,
        line: str,
        name: str,
        digest: str,
        *,
        reason: str,
        by: str = "",
        deployment_id: str | None = None,
    ) -> None:
        """Point an alias at a checkpoint; with a deployment also make that one live. See `aliases.py`."""
        move_alias(self, line, name, digest, reason=reason, by=by or who(), deployment_id=deployment_id)

    def line_state_of(self, digest: str) -> Artifact:
        """What the line remembered when this checkpoint or experience was last made, published beside it.

        Raises:
            IntegrityError: (exit 12) no run that published it published a line_state.
        """
        for run in self.producers(digest):
            for artifact in self.outputs_of(run.id):
                if artifact.kind == "line_state":
                    return artifact
        raise IntegrityError(
            f"{digest} was published without its line_state",
            hint="checkpoints are made by init or train, experience by distill",
        )

    def ancestors(self, digest: str) -> list[str]:
        """Digests of the checkpoint's parents, nearest first; also those that gc removed."""
        return lineage.ancestors(self, digest)

    def lag(self, sampler: str, parent: str) -> int | None:
        """Steps between two checkpoints in the tree; None when they have no common ancestor."""
        return lineage.lag(self, sampler, parent)
