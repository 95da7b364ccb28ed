"""Repeating a recorded run: a scratch store that knows what the real one knows, and changes nothing there.

The scratch store is a copy of the registry that reads objects from the original and writes its own.
Its aliases stand where they stood when the run began.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlmodel import col, select

from stages.errors import InputMissingError, UsageError
from stages.registry.migrate import backup, make_folders
from stages.registry.models import AliasRow, ArtifactRow, EventRow, RunRow

if TYPE_CHECKING:
    from pydantic import BaseModel

    from stages.registry.store import Store
    from stages.stage import Artifact, Stage
    from stages.workspace import Workspace


def scratch_store(workspace: Workspace, store: Store, run: RunRow) -> Store:
    """A new store under `<workspace>/debug/` for repeating `run`."""
    scratch = bare_scratch(workspace, store, run.id)
    _rewind_aliases(scratch, run.created_at)
    return scratch


def bare_scratch(workspace: Workspace, store: Store, name: str) -> Store:
    """A new store under `<workspace>/debug/` that knows what `store` knows now."""
    from stages.registry.objects import READS_FROM
    from stages.registry.schema import FILE
    from stages.registry.store import Store

    root = workspace.root / "debug" / f"{name}-{datetime.now(UTC):%H%M%S%f}"
    make_folders(root)
    (root / READS_FROM).write_text(str(store.dir.resolve()), encoding="utf-8")
    backup(store.dir, root / FILE)
    scratch = Store.open(root)
    _close_open_work(scratch)
    return scratch


def _close_open_work(scratch: Store) -> None:
    """Runs that are going on in the original are none of the scratch store's."""
    from stages.registry.sweep import sweep

    sweep(scratch)


def _rewind_aliases(scratch: Store, moment: str) -> None:
    with scratch.write("scratch") as session:
        later = session.exec(
            select(EventRow)
            .where(EventRow.entity == "alias", EventRow.at > moment)
            .order_by(col(EventRow.seq).desc())
        ).all()
        for event in later:
            line, _, name = event.entity_id.partition("/")
            row = session.get(AliasRow, (line, name))
            before = json.loads(event.data)["from"]
            if row is None:
                continue
            if not before:
                session.delete(row)
                continue
            artifact_id = session.exec(select(ArtifactRow.id).where(ArtifactRow.digest == before)).first()
            if artifact_id is not None:
                row.artifact_id = artifact_id


def unchanged(flags: Mapping[str, object]) -> None:
    """A recorded run is repeated as it was. Raises UsageError (exit 2) for a flag that was given."""
    given = [name for name, is_given in flags.items() if is_given]
    if given:
        raise UsageError(
            f"--from-run repeats a run as it was; {', '.join(given)} would make it another one",
            hint=f"leave {', '.join(given)} away, or --from-run",
        )


def recorded_plan(
    store: Store, stage: Stage, run: RunRow
) -> tuple[BaseModel, dict[str, Artifact], dict[str, Any]]:
    """Settings, inputs and extra facts of a recorded run.

    Raises:
        UsageError: (exit 2) the run is of another stage.
        InputMissingError: (exit 5) gc removed an input.
    """
    if run.stage != stage.name:
        raise UsageError(f"{run.id} is a run of {run.stage}", hint=f"use `rtrl {run.stage} --from-run`")
    inputs = store.inputs_by_role(run.id)
    for artifact in inputs.values():
        if not artifact.path.is_dir():
            raise InputMissingError(f"{artifact.ref}, an input of {run.id}, was removed by gc")
    return stage.config.model_validate(json.loads(run.config)), inputs, json.loads(run.extra)
