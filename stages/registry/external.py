"""Publishing what no stage made: the first checkpoint of a line (`rtrl init`), imports.

The same protocol as a stage's run, under a pseudo-run, so that every artifact has a producer.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages import locks
from stages.errors import InputMissingError
from stages.registry.publish import publish
from stages.registry.runs import begin_run, fail_run, new_run_id
from stages.registry.sweep import sweep
from stages.stage import Artifact, Output

if TYPE_CHECKING:
    from stages.registry.store import Store


def publish_external(
    store: Store,
    outputs: Mapping[str, tuple[Output, Path]],
    *,
    line: str,
    stage: str = "init",
    config: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> dict[str, Artifact]:
    """Copy folders into the store as the outputs of one pseudo-run of `stage`.

    Args:
        outputs: name -> (what it is, the folder to copy). A meta value `output:NAME` becomes the
            digest of the output NAME, as in a stage's run.

    Returns:
        The committed artifacts by name.

    Raises:
        InputMissingError: (exit 5) a folder is not there.
    """
    for _, source in outputs.values():
        if not source.is_dir():
            raise InputMissingError(f"{source} is not a folder")
    sweep(store)
    run_id = new_run_id(stage)
    lock = locks.acquire(store.run_lock_path(run_id), what=f"run {run_id}", run=run_id)
    work = store.dir / "tmp" / run_id
    try:
        begin_run(store, run_id, stage=stage, line=line, inputs={}, config=config or {}, extra={}, seed=seed)
        for name, (_, source) in outputs.items():
            shutil.copytree(source, work / "out" / name)
        kinds = {name: output for name, (output, _) in outputs.items()}
        return publish(store, run_id, line, kinds, work / "out", metrics=metrics)
    except BaseException as error:
        fail_run(store, run_id, error)
        raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
        store.run_lock_path(run_id).unlink(missing_ok=True)
        lock.release()
