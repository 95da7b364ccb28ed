"""What users did in each arm since a canary opened: sums per user and metric.

The arms are read by the same `collect` and `distill` that train, into a store of their own that is
removed afterwards: nothing of a look is seen by the next cycle. Only episodes whose training horizon
has passed count, and only those that began after the canary opened.
Not here: what is decided from it (`look.py`).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from evals.ab.arms import Users
from stages import schemas, tables
from stages.ab.config import GUARDS, METRICS
from stages.collect.run import CollectStage
from stages.distill.run import DistillStage
from stages.errors import InconclusiveError, InputMissingError
from stages.gateway.arms import CANARY, LIVE
from stages.registry.deployments import Deployment
from stages.registry.scratch import bare_scratch
from stages.registry.store import Store
from stages.runner import run_stage
from stages.stage import Artifact, Progress
from stages.workspace import Workspace

ARMS = (LIVE, CANARY)
_SIGNALS = {
    "edit_persistence": "edit_persistence",
    "dissatisfied_followup": "dissatisfied_followup",
    "latency": "latency",
    "invalid_calls": "invalid_tool_calls",
    "ask_rate": "clarified",
    "edit_rate": "edited",
}


@dataclass(frozen=True, eq=False)
class ArmSeen:
    """One arm: users and episodes seen, and the users of each metric."""

    users: int
    episodes: int
    metrics: Mapping[str, Users]


def observe(
    workspace: Workspace, store: Store, canary: Deployment, progress: Progress
) -> tuple[ArmSeen, ArmSeen]:
    """(live, canary) since the canary opened. An arm nobody has used yet is empty."""
    line = workspace.settings.workspace.line
    live = store.resolve("checkpoint@live", line)
    with _scratch(workspace, store) as scratch:
        seen = [_arm(workspace, scratch, arm, live, canary, progress) for arm in ARMS]
    return seen[0], seen[1]


@contextmanager
def _scratch(workspace: Workspace, store: Store) -> Iterator[Store]:
    scratch = bare_scratch(workspace, store, "ab")
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch.dir, ignore_errors=True)


def _arm(
    workspace: Workspace,
    scratch: Store,
    arm: str,
    live: Artifact,
    canary: Deployment,
    progress: Progress,
) -> ArmSeen:
    settings = [
        f"collect.arm={arm}",
        "collect.min_episodes=1",
        f"collect.max_lag={max(1, workspace.settings.collect.max_lag)}",
    ]
    try:
        collected = run_stage(
            workspace, scratch, CollectStage(), [live.digest], settings, force=True, progress=progress
        )
    except (InconclusiveError, InputMissingError):  # nothing is mature, or nothing was captured at all
        return ArmSeen(0, 0, {name: Users.of([], []) for name in _SIGNALS})
    interactions = collected.outputs["interactions"]
    distilled = run_stage(
        workspace, scratch, DistillStage(), [interactions.digest], force=True, progress=progress
    )
    experience = distilled.outputs["experience"]
    opened = int(canary.data["canary"]["opened_seq"])
    return arm_of(_began_after(interactions, opened), _columns(experience))


def _began_after(interactions: Artifact, seq: int) -> set[str]:
    """Episodes whose first generation came after `seq` of the spool."""
    found: set[str] = set()
    for part in tables.parts(interactions.path):
        table = tables.read(part / schemas.EPISODES_FILE, schemas.EPISODES)
        first = table["first_seq"].to_numpy()
        ids = table["id"].to_pylist()
        found.update(episode for episode, number in zip(ids, first, strict=True) if number > seq)
    return found


def _columns(experience: Artifact) -> dict[str, Sequence[object]]:
    wanted = schemas.experience_episodes(tuple(_SIGNALS.values()))
    names = ["episode_id", "user", *_SIGNALS.values()]
    import pyarrow as pa

    table = tables.read(
        experience.path / schemas.EPISODES_FILE, pa.schema([wanted.field(name) for name in names])
    )
    return {name: table[name].to_pylist() for name in names}


def arm_of(counted: set[str], columns: Mapping[str, Sequence[object]]) -> ArmSeen:
    """Sums per user over the episodes `counted`; a signal that is not known counts nowhere."""
    rows = [row for row, episode in enumerate(columns["episode_id"]) if episode in counted]
    names = sorted({str(columns["user"][row]) for row in rows})
    place = {name: index for index, name in enumerate(names)}
    who = np.array([place[str(columns["user"][row])] for row in rows], dtype=np.int64)
    metrics = {}
    for metric, signal in _SIGNALS.items():
        raw = [columns[signal][row] for row in rows]
        known = np.array([value is not None for value in raw], dtype=np.float64)
        values = np.array([0.0 if value is None else float(str(value)) for value in raw])
        if metric == "invalid_calls":
            values = (values > 0).astype(np.float64)
        metrics[metric] = Users.of(np.bincount(who, values, len(names)), np.bincount(who, known, len(names)))
    return ArmSeen(len(names), len(rows), metrics)


assert set(_SIGNALS) == {*METRICS, *GUARDS}
