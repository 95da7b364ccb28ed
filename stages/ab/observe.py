"""What users did in each arm since a canary opened: sums per user and metric.

The arms are read by the same `collect` and `distill` that train, into a store of their own that is
removed afterwards: nothing of a look is seen by the next cycle. Only episodes whose training horizon
has passed count, and only those that began after the canary opened; what was before is `past.py`.
Not here: what is decided from it (`look.py`).
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evals.ab.arms import Users
from stages import schemas, tables
from stages.ab.config import GUARDS, METRICS
from stages.ab.counted import Columns, Counted, is_key, joined, of_many, weights_of
from stages.ab.past import Past, past_of, values_of
from stages.collect.run import CollectStage
from stages.distill.run import DistillStage
from stages.errors import InconclusiveError, InputMissingError, RtrlError
from stages.gateway.arms import assigned
from stages.records import CANARY, HOLDBACK, LIVE
from stages.registry import order
from stages.registry.deployments import Deployment
from stages.registry.holdbacks import Holdback, holdback_of
from stages.registry.scratch import passing_scratch
from stages.registry.store import Store
from stages.runner import run_stage
from stages.stage import Artifact, Progress
from stages.workspace import Workspace

ARMS = (LIVE, CANARY)
SIGNALS = {
    "edit_persistence": "edit_persistence",
    "dissatisfied_followup": "dissatisfied_followup",
    "latency": "latency",
    "invalid_calls": "invalid_tool_calls",
    "completion_accepted": "completion_accepted",
    "ask_rate": "clarified",
    "edit_rate": "edited",
}
EXPERIENCES = 8  # of earlier cycles that are read, newest first
_ANY_LAG = 1 << 30
_NAMES = ("episode_id", "key_id", "user", *SIGNALS.values())


@dataclass(frozen=True, eq=False)
class ArmSeen:
    """One arm: users and episodes seen, and the users of each metric.

    `joined` are the keys that are one user of it whatever they name (`counted.py`), and how many users they
    name; they are not among `users`, as they are in both arms.
    """

    users: int
    episodes: int
    metrics: Mapping[str, Users]
    joined: Mapping[str, int] = field(default_factory=dict)


def observe(
    workspace: Workspace, store: Store, canary: Deployment, progress: Progress
) -> tuple[ArmSeen, ArmSeen]:
    """(live, canary) since the canary opened. An arm nobody has used yet is empty.

    Also of a canary that is further from live than what is trained on may be: one that was made before what
    is live was promoted, or imported. No further than that: the window would begin where the spool does.
    Users are those who were assigned: whom the live engine answered while the canary's or the holdback's was
    not there is nobody of the live arm.
    """
    line = workspace.settings.workspace.line
    live = store.resolve("checkpoint@live", line)
    opened = int(canary.data["canary"]["opened_seq"])
    with _scratch(workspace, store) as scratch:
        away = store.lag(canary.checkpoint, live.digest) or 0
        lag = max(1, workspace.settings.collect.max_lag, away)
        read, counted = _both(workspace, scratch, ARMS, live, lag, progress)
        past: Past = {}
        if workspace.settings.ab.cuped:
            past = _past(store, line, order.began(store, "deployment", canary.id), read[0], opened, counted)
    salt, share, held = canary.salt, float(canary.data["canary"]["share"]), holdback_of(store, line)
    seen = []
    for (episodes, columns), mine in zip(read, (False, True), strict=True):
        own = _of_users(columns, salt, share, chosen=mine)
        if held is not None and held.open:
            own &= _of_users(columns, held.salt, held.share, chosen=False)
        seen.append(arm_of(episodes.after(opened) & own, columns, past))
    return seen[0], seen[1]


def observe_holdback(
    workspace: Workspace, store: Store, held: Holdback, progress: Progress
) -> tuple[ArmSeen, ArmSeen]:
    """(held back, live) since the holdback's comparison began, over all live checkpoints since, as far back
    as the spool goes. Who is held back is nobody of the live arm, also where he was answered by it."""
    anchor = store.resolve(held.checkpoint)
    with _scratch(workspace, store) as scratch:
        read, counted = _both(workspace, scratch, (HOLDBACK, LIVE), anchor, _ANY_LAG, progress)
        past: Past = {}
        if workspace.settings.ab.cuped:
            past = _past(store, held.line, held.event, read[1], held.opened_seq, counted)
    seen = []
    for (episodes, columns), mine in zip(read, (True, False), strict=True):
        own = _of_users(columns, held.salt, held.share, chosen=mine)
        seen.append(arm_of(episodes.after(held.opened_seq) & own, columns, past))
    return seen[0], seen[1]


def _of_users(columns: Columns, salt: str, share: float, *, chosen: bool) -> set[str]:
    """Episodes of users whom `salt` draws for `share`, or of the others."""
    users = zip(columns["episode_id"], columns["user"], strict=True)
    return {str(episode) for episode, user in users if assigned(str(user), salt, share) == chosen}


@contextmanager
def _scratch(workspace: Workspace, store: Store) -> Iterator[Store]:
    for left in workspace.debug_dir.glob("ab-*"):  # of a look that was killed, when they were made there
        shutil.rmtree(left, ignore_errors=True)
    with passing_scratch(store, "ab") as scratch:
        yield scratch


@dataclass(frozen=True, eq=False)
class _Episodes:
    """When an arm's episodes began (seq of the spool, ms) and were mature (ms). All of one length."""

    ids: list[str]
    first_seq: list[int]
    first_at: list[int]
    ripe_at: list[int]

    def after(self, seq: int) -> set[str]:
        """Those whose first generation came after `seq` of the spool."""
        return {episode for episode, first in zip(self.ids, self.first_seq, strict=True) if first > seq}

    def settled_before(self, seq: int) -> set[str]:
        """Those that were mature before anybody began an episode after `seq`."""
        began = [at for at, first in zip(self.first_at, self.first_seq, strict=True) if first > seq]
        opened = min(began, default=None)
        return {
            episode
            for episode, first, ripe in zip(self.ids, self.first_seq, self.ripe_at, strict=True)
            if first <= seq and (opened is None or ripe <= opened)
        }


def _past(
    store: Store,
    line: str,
    event: int,
    live: tuple[_Episodes, Columns],
    opened: int,
    counted: Counted,
) -> Past:
    """The users' figures from before: of this window, and of the experience made before the `event`."""
    episodes, columns = live
    settled = episodes.settled_before(opened)
    rows = [row for row, episode in enumerate(columns["episode_id"]) if episode in settled]
    parts: list[Columns] = [{name: [values[row] for row in rows] for name, values in columns.items()}]
    for digest in order.made_before(store, "experience", line, event, limit=EXPERIENCES):
        try:
            parts.append(counted.of(_columns(store.resolve(digest))))
        except RtrlError:  # a damaged one, or without these columns: what is not known explains nothing
            continue
    return past_of(parts, SIGNALS)


def _both(
    workspace: Workspace,
    scratch: Store,
    arms: tuple[str, str],
    checkpoint: Artifact,
    lag: int,
    progress: Progress,
) -> tuple[list[tuple[_Episodes, Columns]], Counted]:
    """Both arms' episodes and signals, and who is one user of them.

    Their latencies are held against the same medians: the line state's, and of sizes of request that it has
    none of, the first arm's.
    """
    found, medians = [], None
    for arm in arms:
        episodes, columns, state = _read(workspace, scratch, arm, checkpoint, lag, medians, progress)
        found.append((episodes, columns))
        medians = medians or state
    counted = Counted([columns for _, columns in found], of_many(workspace.keys_dir))
    return [(episodes, counted.of(columns)) for episodes, columns in found], counted


def _read(
    workspace: Workspace,
    scratch: Store,
    arm: str,
    checkpoint: Artifact,
    lag: int,
    medians: Artifact | None,
    progress: Progress,
) -> tuple[_Episodes, Columns, Artifact | None]:
    """An arm's episodes of the window and their signals, also those from before the canary; the line state
    after them, None where there are none."""
    settings = [
        f"collect.arm={arm}",
        "collect.min_episodes=1",
        "collect.holdback=false",
        f"collect.max_lag={lag}",
    ]
    look = CollectStage(to_train=False)
    try:
        collected = run_stage(
            workspace, scratch, look, [checkpoint.digest], settings, force=True, progress=progress
        )
    except (InconclusiveError, InputMissingError):  # nothing is mature, or nothing was captured at all
        return _Episodes([], [], [], []), {name: [] for name in _NAMES}, None
    interactions = collected.outputs["interactions"]
    stage = DistillStage(medians_of=medians)
    outputs = run_stage(
        workspace, scratch, stage, [interactions.digest], force=True, progress=progress
    ).outputs
    return _episodes(interactions), _columns(outputs["experience"]), outputs["line_state"]


def _episodes(interactions: Artifact) -> _Episodes:
    found: dict[str, list[Any]] = {name: [] for name in ("id", "first_seq", "first_at", "ripe_at")}
    for part in tables.parts(interactions.path):
        table = tables.read(part / schemas.EPISODES_FILE, schemas.EPISODES)
        for name in found:
            found[name] += table[name].to_pylist()
    return _Episodes(*found.values())


def _columns(experience: Artifact) -> Columns:
    import pyarrow as pa

    wanted = schemas.experience_episodes(tuple(SIGNALS.values()))
    table = tables.read(
        experience.path / schemas.EPISODES_FILE, pa.schema([wanted.field(name) for name in _NAMES])
    )
    return {name: table[name].to_pylist() for name in _NAMES}


def arm_of(counted: set[str], columns: Columns, past: Past) -> ArmSeen:
    """Sums per user over the episodes `counted`; a signal that is not known counts nowhere.

    `past` gives users' figures from before, by metric; {} for none.
    """
    rows = [row for row, episode in enumerate(columns["episode_id"]) if episode in counted]
    names = sorted({str(columns["unit"][row]) for row in rows})
    place = {name: index for index, name in enumerate(names)}
    who = np.array([place[str(columns["unit"][row])] for row in rows], dtype=np.int64)
    metrics = {}
    for metric, signal in SIGNALS.items():
        values = np.array(values_of(metric, (columns[signal][row] for row in rows)), dtype=np.float64)
        known = ~np.isnan(values)
        counts = np.bincount(who[known], minlength=len(names))
        weights = weights_of(names, counts)
        before = [past[metric].get(name, math.nan) for name in names] if metric in past else None
        metrics[metric] = Users.of(
            weights * np.bincount(who[known], values[known], len(names)), weights * counts, before
        )
    return ArmSeen(sum(not is_key(name) for name in names), len(rows), metrics, joined(columns, rows))


assert set(SIGNALS) == {*METRICS, *GUARDS}
