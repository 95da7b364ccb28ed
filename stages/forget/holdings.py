"""Which artifacts hold a user's sealed data or were computed from it, and which checkpoints learned of it.

Reads columns that are not sealed (user, episode), so it answers the same before and after forgetting.
Not for: opening anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages import schemas
from stages.consumed import consumed_among
from stages.errors import IntegrityError
from stages.registry import exports
from stages.registry.exports import Export
from stages.registry.lineage import above
from stages.registry.runs import OPEN

if TYPE_CHECKING:
    from stages.registry.models import RunRow
    from stages.registry.store import Store
    from stages.stage import Artifact

NOT_TOLD = "trained elsewhere, on what was not told; the user's data had been exported before"
NOT_KNOWN = "the experience was removed, and no list of what was trained on is left"


@dataclass(frozen=True)
class Held:
    """What of the user one artifact holds: sealed generations and events, or episodes' rewards."""

    ref: str
    digest: str
    generations: int = 0
    events: int = 0
    episodes: int = 0


@dataclass(frozen=True)
class Learned:
    """A checkpoint that the user's episodes went into. `episodes` are those of its own update, 0 when it
    only descends from such a checkpoint; None when that is not known any more (`note` says why)."""

    ref: str
    digest: str
    episodes: int | None
    line: str
    marks: tuple[str, ...]  # "live", "anchor" of its line, "live of chat" of another's, "removed" by gc
    through: str = ""  # the nearest ancestor with episodes of its own, for a descendant
    note: str = ""


@dataclass
class Holdings:
    """Everything in the store that has to do with one user."""

    artifacts: list[Held] = field(default_factory=list)
    checkpoints: list[Learned] = field(default_factory=list)
    exports: list[Export] = field(default_factory=list)  # folders outside, unsealed
    training: list[str] = field(default_factory=list)  # runs of train that read the user's episodes just now
    unreadable: list[str] = field(default_factory=list)  # artifacts with damaged or missing files


def find(store: Store, user: str) -> Holdings:
    """Look through all artifacts. One column of each file is read at a time."""
    found = Holdings()
    episodes: dict[str, set[str]] = {}  # by experience
    known: set[str] = set()
    for kind in ("interactions", "experience"):
        for artifact in store.all_of(kind):
            try:
                held, ids = _held(artifact, user)
            except (OSError, IntegrityError, ValueError):
                found.unreadable.append(artifact.ref)
                continue
            known |= ids
            if kind == "experience":
                episodes[artifact.digest] = ids
            if held.generations or held.events or held.episodes:
                found.artifacts.append(held)
    found.exports = exports.of_user(store, user)
    found.checkpoints = _learned(store, episodes, known, found.exports)
    found.training = [
        run.id
        for run in store.runs("train", OPEN, limit=1_000)
        if any(episodes.get(one.digest) for one in store.inputs_of(run.id))
    ]
    return found


def _held(artifact: Artifact, user: str) -> tuple[Held, set[str]]:
    """What the artifact has of the user, and the ids of the user's episodes in it."""
    if artifact.kind == "experience":
        rows = list(_of_user(artifact.path / schemas.EPISODES_FILE, user, ["episode_id", "trainable"]))
        trained = {row["episode_id"] for row in rows if row["trainable"]}
        return Held(artifact.ref, artifact.digest, episodes=len(rows)), trained
    counts = {schemas.GENERATIONS_FILE: 0, schemas.EVENTS_FILE: 0}
    ids: set[str] = set()
    for part in sorted(path for path in artifact.path.glob("part-*") if path.is_dir()):
        for name in counts:
            counts[name] += sum(1 for _ in _of_user(part / name, user, []))
        ids |= {row["id"] for row in _of_user(part / schemas.EPISODES_FILE, user, ["id"])}
    generations, events = counts.values()
    return Held(artifact.ref, artifact.digest, generations, events, len(ids)), ids


def _of_user(path: Path, user: str, columns: list[str]) -> Iterator[dict[str, Any]]:
    """Rows of a Parquet file whose column `user` is exactly `user`."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=["user", *columns]):
            yield from batch.filter(pc.equal(batch["user"], user)).to_pylist()


def _learned(
    store: Store, episodes: dict[str, set[str]], known: set[str], exported: list[Export]
) -> list[Learned]:
    """Checkpoints of runs that trained on the user's episodes, and all that descend from them.

    Who trained elsewhere and did not say on what may have had what of the user's was `exported` before.
    """
    checkpoints = list(store.all_of("checkpoint", removed=True))
    own: dict[str, tuple[int | None, str]] = {}
    for checkpoint in checkpoints:
        for run in store.producers(checkpoint.digest):
            if _untold(store, run) and exports.before(store, run.id, exported):
                own[checkpoint.digest] = None, NOT_TOLD
                break
            if run.stage == "train" and (told := _trained_on(store, run, episodes, known)) is not None:
                own[checkpoint.digest] = told
                break
    names = _names(store)
    tree = {one.digest: one.meta.get("parent") for one in checkpoints}
    learned: list[Learned] = []
    for checkpoint in sorted(checkpoints, key=lambda one: one.version):
        count, note = own.get(checkpoint.digest, (0, ""))
        taught = [one for one in above(tree, checkpoint.digest) if one in own]
        through = next((one for one in taught if own[one][0]), taught[0] if taught else "")
        if checkpoint.digest not in own and not through:
            continue
        if checkpoint.digest not in own and own[through][0] is None:
            count, note = own[through]
        marks = tuple(names.get(checkpoint.digest, ()))
        if not store.is_committed(checkpoint.digest):
            marks = (*marks, "removed")
        learned.append(
            Learned(checkpoint.ref, checkpoint.digest, count, checkpoint.line, marks, through, note)
        )
    return learned


def _trained_on(
    store: Store, run: RunRow, episodes: dict[str, set[str]], known: set[str]
) -> tuple[int | None, str] | None:
    """How many of the user's episodes one run of `train` took; None for none of them.

    What it took is the difference between what the line states after and before it have consumed.
    """
    inputs = store.inputs_by_role(run.id)
    lists = [episodes.get(one.digest) for one in inputs.values() if one.kind == "experience"]
    known_lists = [one for one in lists if one is not None]
    offered = set[str]().union(*known_lists) if lists and len(known_lists) == len(lists) else None
    if offered is not None and not offered:
        return None
    after = next((one for one in store.outputs_of(run.id) if one.kind == "line_state"), None)
    before = inputs.get("line_state")
    if after is not None and before is not None and after.path.is_dir() and before.path.is_dir():
        theirs = known if offered is None else offered
        count = len(consumed_among(after.path, theirs) - consumed_among(before.path, theirs))
        return (count, "") if count else None
    if offered is None:
        return None, NOT_KNOWN
    return len(offered), ""


def _untold(store: Store, run: RunRow) -> bool:
    """Whether the run imported a checkpoint without naming what it had been trained on."""
    imported = run.stage == "train" and "imported" in json.loads(run.extra)
    return imported and not any(one.kind == "experience" for one in store.inputs_of(run.id))


def _names(store: Store) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in store.lines():
        for name in ("live", "anchor"):
            if (artifact := store.alias(line, name)) is not None:
                mark = name if artifact.line == line else f"{name} of {line}"
                found.setdefault(artifact.digest, []).append(mark)
    return found
