"""A further process of a training run: `python -m stages.train.worker`, started by `crew.py`; and what
`rtrl train` does on every rank of torchrun but the first.

It waits for rank 0's decision, loads the same batch, and takes part in scoring and update. It writes
nothing but its shards of the micro-checkpoints, holds no lock, and dies with its parent.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from stages import faults
from stages.engine.lifetime import PARENT_VARIABLE, die_with_parent
from stages.errors import IntegrityError, RtrlError
from stages.progress import Silent
from stages.runlog import NoLog
from stages.stage import RunContext
from stages.train import crew
from stages.train.config import TrainConfig


def follow() -> int:
    """Take part in the run of rank 0, if there is to be one. The exit status."""
    if parent := os.environ.get(PARENT_VARIABLE):
        die_with_parent(int(parent))
    if (found := crew.await_job()) is None:
        return 0
    job, store = found
    try:
        _take_part(job, store)
    except RtrlError as error:
        print(f"rank {os.environ['RANK']}: {error.message}", file=sys.stderr)
        return error.code
    return 0


def _take_part(job: crew.Job, meeting_point: object) -> None:
    import torch.distributed as dist

    from stages.registry.store import Store
    from stages.train.evidence import batch_digest
    from stages.train.load import load_batch
    from stages.train.models import device_of
    from stages.train.pipeline import follow_run
    from stages.workspace import Workspace

    assert isinstance(meeting_point, dist.Store)
    config = TrainConfig(**job.config)
    workspace = Workspace.find(Path(job.workspace)).with_store(Path(job.store))
    store = Store.open(workspace.store_dir)
    inputs = {role: store.resolve(digest) for role, digest in job.inputs.items()}
    batch = load_batch(inputs, config, workspace, store)
    if batch_digest(batch) != job.batch:
        raise IntegrityError(
            "another batch than rank 0's was loaded", hint="all ranks must see the same files"
        )
    ctx = RunContext(workspace, store, job.run_id, job.seed, Path(job.scratch), Silent(), NoLog())
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    faults.point(f"train.rank{rank}.join.before")
    crew.join(meeting_point, rank, count, device_of(config))
    try:
        follow_run(batch, config, inputs, job.extra, ctx)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(follow())
