"""Measuring the parts of an interactions artifact: one by one, in processes side by side, or on Ray.

A part is self-contained, so what a worker needs is its folder, the reward spec and the keys; what it gives
are columns. Whoever does it, the results come in the parts' order and are the same. Not for: what is measured
(`measure.py`), what needs the window as a whole (`run.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal, TypeVar

import pyarrow as pa

from evals.cluster import ray_cluster
from stages import schemas
from stages.distill import own
from stages.distill.facts import Episode, PartReader
from stages.distill.measure import columns_of, measure, with_followups
from stages.distill.questions import Question, question
from stages.distill.signals.followup.features import Followup, brief
from stages.distill.spec import parse
from stages.errors import DependencyDownError
from stages.vault import Vault
from stages.verdicts import Verdicts
from stages.workers import begun_ahead, cores, in_order

_CHUNK = 1024  # episodes whose texts are in memory at once, beside those not complete yet
T = TypeVar("T")


@dataclass(frozen=True)
class Shard:
    """One part and how to measure it."""

    part: Path
    interactions: str  # the artifact's digest
    spec: str  # text of the reward spec
    root: Path  # the workspace's folder, where a team's own signals may lie
    keys_dir: Path
    judged: bool = False  # whether a judge will ask about follow-ups
    metrics: Mapping[str, str] = field(default_factory=dict)  # what a metric of feedback is, by its name
    own: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # the team's signals, as recorded


@dataclass(frozen=True)
class Measured:
    """What one part gives: a row per episode, its sequences, and what could not be used, with reasons.

    `lost` gives, by its id, why a model call of an episode that stays has no gradient.
    """

    episodes: pa.Table
    sequences: pa.Table
    quarantine: list[dict[str, str]]
    lost: dict[str, str] = field(default_factory=dict)
    questions: list[Question] = field(default_factory=list)  # for a judge, redacted
    unused: Counter[str] = field(default_factory=Counter)  # feedback nobody said the meaning of, by metric


def measure_shard(shard: Shard) -> Measured:
    """Measure one part.

    Raises IntegrityError (12) on damage, or where a team's signal has other source than the run recorded;
    UsageError (2) when one fails.
    """
    spec = parse(shard.spec, "spec")
    signals = own.load(spec, shard.root)
    own.require_same(signals, shard.own)
    asked: dict[int, Followup] = {}  # by row, shortened: a part's follow-ups are judged at once
    questions: list[Question] = []
    lost: dict[str, str] = {}
    rows = 0
    vault = Vault.open(shard.keys_dir)
    try:
        reader = PartReader(vault, Verdicts(shard.metrics))
        measured, sequences = [columns_of(spec).empty_table()], [schemas.SEQUENCES.empty_table()]
        for chunk in _chunks(reader.episodes(shard.part), _CHUNK):
            table, followups = measure(chunk, spec, signals)
            measured.append(table)
            sequences.append(_sequences(chunk, shard.interactions))
            asked |= {rows + row: brief(case) for row, case in followups.items()}
            rows += table.num_rows
            for episode in chunk:
                lost |= episode.lost
            if shard.judged:
                questions += [
                    question(chunk[row].row["id"], case)
                    for row, case in followups.items()
                    if not chunk[row].forgotten
                ]
    finally:
        vault.close()
    episodes = with_followups(pa.concat_tables(measured).combine_chunks(), asked)
    found = pa.concat_tables(sequences).combine_chunks()
    return Measured(episodes, found, reader.quarantine, lost, questions, reader.unused)


def measure_all(shards: list[Shard], engine: Literal["local", "ray"], workers: int) -> Iterator[Measured]:
    """Every part's columns, in order.

    Args:
        workers: processes side by side; 0 takes one a core. One part, or one worker, needs no process.

    Raises:
        InputMissingError: (exit 5) Ray is not installed.
        DependencyDownError: (exit 13) a worker died, or the Ray cluster cannot be used.
    """
    workers = min(workers or cores(), len(shards))
    if engine == "ray":
        yield from _on_ray(shards, workers)
    else:
        yield from in_order(measure_shard, shards, workers)


def _on_ray(shards: list[Shard], workers: int) -> Iterator[Measured]:
    """The same function on a Ray cluster that sees the store."""
    with ray_cluster(workers) as ray:
        remote = ray.remote(measure_shard)

        def begin(shard: Shard) -> Callable[[], Measured]:
            ref = remote.remote(shard)
            return lambda: ray.get(ref)

        try:
            yield from begun_ahead(shards, begin, 2 * max(1, workers))
        except ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from error
        except ray.exceptions.RayError as error:  # none of the part's
            raise DependencyDownError(
                f"a worker of the Ray cluster died, or could not begin: {type(error).__name__}",
                hint="is there enough memory on its machine, and the same rtrl? Ray's own logs say more",
            ) from error


def _sequences(episodes: list[Episode], digest: str) -> pa.Table:
    rows = [(e.row["id"], ids) for e in episodes for ids in e.sequences]
    columns = [[episode for episode, _ in rows], [ids for _, ids in rows], [digest] * len(rows)]
    arrays = [pa.array(c, type=f.type) for c, f in zip(columns, schemas.SEQUENCES, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schemas.SEQUENCES)


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk
