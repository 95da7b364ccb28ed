"""The processes of one training run: which of them this is, and what they tell one another.

A run has one process, or several that torch.distributed joins (`crew.py`). Rank 0 is the one that the
runner sees: it alone writes logs, shows progress and publishes. Everything here works in a single
process too, and does nothing there. Importing this imports no torch.
"""

from __future__ import annotations

import os
from typing import TypeVar

Value = TypeVar("Value")


def joined() -> bool:
    """Whether this process is in a process group (of one or more)."""
    import torch.distributed as dist

    return bool(dist.is_available() and dist.is_initialized())


def count() -> int:
    """How many processes the run has."""
    import torch.distributed as dist

    return dist.get_world_size() if joined() else 1


def rank() -> int:
    """Which of them this is, from 0."""
    import torch.distributed as dist

    return dist.get_rank() if joined() else 0


def is_first() -> bool:
    """Whether this is rank 0."""
    return rank() == 0


def local_rank() -> int:
    """Which process of this machine this is: the number of its GPU."""
    return int(os.environ.get("LOCAL_RANK", "0")) if count() > 1 else 0


def local_count() -> int:
    """How many processes of the run are on this machine; they share its cores."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if count() > 1 else 1


def told(value: Value) -> Value:
    """Rank 0's `value`, on every rank. Small picklable data."""
    if count() == 1:
        return value
    import torch.distributed as dist

    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def gathered(value: Value) -> list[Value]:
    """Every rank's `value`, in the order of ranks, on every rank. Picklable data, tensors on the CPU."""
    if count() == 1:
        return [value]
    import torch.distributed as dist

    found: list[Value] = [value] * count()
    dist.all_gather_object(found, value)
    return found


def meet() -> None:
    """Wait until every rank is here."""
    if count() > 1:
        import torch.distributed as dist

        dist.barrier()
