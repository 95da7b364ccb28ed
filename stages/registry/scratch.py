"""Repeating a recorded run: a scratch store that knows what the real one knows, and changes nothing there.

The scratch store is a copy of the registry that reads objects from the original and writes its own.
Its aliases stand where they stood when the run began. It stays, below `debug/`, for whoever asked for it; one
that is only read while a command lasts (`passing_scratch`) is in the store's `tmp/`, and is swept with it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from sqlalchemy import func
from sqlmodel import col, select

from stages import locks
from stages.cycle_config import STAGES
from stages.errors import InputMissingError, UsageError
from stages.refs import require_this_version
from stages.registry.migrate import backup, make_folders
from stages.registry.models import AliasRow, ArtifactRow, EventRow, RunRow
from stages.registry.runs import new_run_id
from stages.workspace import private

if TYPE_CHECKING:
    from pydantic import BaseModel

    from stages.registry.store import Store
    from stages.stage import Artifact, Stage
    from stages.workspace import Workspace

REPEATED = (*STAGES, "rollback")


def scratch_store(workspace: Workspace, store: Store, run: RunRow) -> Store:
    """A new store under `<workspace>/debug/` for repeating `run`."""
    root = private(workspace.debug_dir) / f"{run.id}-{datetime.now(UTC):%H%M%S%f}"
    scratch = _bare(store, root)
    _rewind_aliases(scratch, run.id)
    return scratch


@contextmanager
def passing_scratch(store: Store, name: str) -> Iterator[Store]:
    """A store that knows what `store` knows now, for the length of the block."""
    run_id = new_run_id(name)
    root, lock = store.dir / "tmp" / run_id, store.run_lock_path(run_id)
    with locks.hold(lock, what=name, run=run_id):  # who sweeps leaves the folder be while it is held
        try:
            yield _bare(store, root)
        finally:
            shutil.rmtree(root, ignore_errors=True)
            lock.unlink(missing_ok=True)


def _bare(store: Store, root: Path) -> Store:
    """A new store at `root` that knows what `store` knows now."""
    from stages.registry.objects import READS_FROM
    from stages.registry.schema import FILE
    from stages.registry.store import Store

    private(root)  # it holds what people wrote, and `store.dir` and `debug/` may be of before
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


def _rewind_aliases(scratch: Store, run_id: str) -> None:
    """As they stood when the run began, by the order of events: a clock may have been set back since."""
    with scratch.write("scratch") as session:
        of_run = select(func.min(EventRow.seq)).where(EventRow.entity == "run", EventRow.entity_id == run_id)
        began = session.exec(of_run).one()
        later = session.exec(
            select(EventRow)
            .where(EventRow.entity == "alias", col(EventRow.seq) > began)
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
        UsageError: (exit 2) the run is of another stage, or an older version's and by settings that are none
            any more.
        InputMissingError: (exit 5) gc removed an input, or an older version distilled it with other columns.
    """
    if run.stage != stage.name:
        can = run.stage in REPEATED
        hint = f"`rtrl {run.stage} --from-run {run.id}`" if can else f"of {', '.join(REPEATED)} runs can be"
        raise UsageError(f"{run.id} is a run of {run.stage}", hint=hint)
    inputs = store.inputs_by_role(run.id)
    for artifact in inputs.values():
        if not artifact.path.is_dir():
            raise InputMissingError(
                f"{artifact.ref}, an input of {run.id}, was removed by gc", hint=f"rtrl show {run.id}"
            )
        if artifact.kind == "experience":
            require_this_version(store, artifact)
    return _recorded_settings(stage, run), inputs, json.loads(run.extra)


def _recorded_settings(stage: Stage, run: RunRow) -> BaseModel:
    try:
        return stage.config.model_validate(json.loads(run.config))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in (run.stage, *first["loc"]))
        raise UsageError(
            f"{run.id} had settings that this version does not take: {where}: {first['msg']}",
            hint="the version that made it repeats it",
        ) from error
