"""Second pass of `collect`: copies what the plan takes into the parts of an interactions artifact.

Part by part, side by side: a part is a slice of the window's columns, and what its payloads need. Payloads
are copied sealed as they are (`sealing.py` says which are not). Not for: deciding (`plan.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from stages import schemas, tables, workers
from stages.collect.columns import SIDE_BY_SIDE
from stages.collect.plan import Plan
from stages.collect.scan import Ints, Scan
from stages.collect.sealing import Later, Part, Sealed, seal_part
from stages.stage import Progress


@dataclass
class Sealer:
    """Writes one interactions artifact under `folder`; `counts` and the quarantine grow as it goes."""

    folder: Path
    scan: Scan
    plan: Plan
    spool_dir: Path
    keys_dir: Path
    later: Mapping[int, Sequence[Later]] = field(default_factory=dict)  # behind the event in this row
    counts: Counter[str] = field(default_factory=Counter)
    _quarantine: list[dict[str, str]] = field(default_factory=list)

    def quarantine(self, record_id: str, episode: str, reason: str) -> None:
        """Leave one record out, with its reason."""
        self._quarantine.append({"id": record_id, "episode": episode, "reason": reason})
        self.counts[f"quarantined:{reason}"] += 1

    def run(self, ripe_at: Ints, progress: Progress) -> None:
        """Write every part, then the quarantine."""
        self._foreign()
        parts = -(-len(self.plan.taken) // schemas.PART_EPISODES) or 1
        size = int(np.asarray(self.scan.generations["size"])[self.plan.take_generation].sum())
        side_by_side = min(workers.cores(), parts) if size >= SIDE_BY_SIDE else 1
        for sealed in workers.in_order(seal_part, self._parts(ripe_at), side_by_side):
            self._add(sealed)
            progress.advance(sealed.counts["episodes"])
        quarantine = pa.Table.from_pylist(self._quarantine, schema=schemas.QUARANTINE)
        tables.write(self.folder / schemas.QUARANTINE_FILE, quarantine)

    def _add(self, sealed: Sealed) -> None:
        self.counts.update(sealed.counts)
        for record in sealed.quarantine:
            self.quarantine(record["id"], record["episode"], record["reason"])

    def _foreign(self) -> None:
        """Events of somebody else's generations."""
        foreign = ~self.plan.take_event & (self.scan.v_generation >= 0) & ~self.scan.v_own_key
        for event_id in self.scan.events["id"].filter(pa.array(foreign)).to_pylist():
            self.quarantine(event_id, "", "foreign_key")

    def _parts(self, ripe_at: Ints) -> Iterator[Part]:
        """Rows of a part lie scattered in the window: one sort finds those of all parts."""
        scan, plan = self.scan, self.plan
        part_of = np.full(len(scan.episodes), -1)
        part_of[plan.taken] = np.arange(len(plan.taken)) // schemas.PART_EPISODES
        of_generation = np.where(plan.take_generation, part_of[scan.g_episode], -1)
        target = scan.g_episode[scan.v_generation] if len(scan.g_episode) else scan.v_generation
        of_event = np.where(plan.take_event, part_of[target], -1)
        g_rows, v_rows = _by_part(of_generation), _by_part(of_event)
        for n, start in enumerate(range(0, max(1, len(plan.taken)), schemas.PART_EPISODES)):
            codes = plan.taken[start : start + schemas.PART_EPISODES]
            yield self._part(n, codes, g_rows.get(n, _NONE), v_rows.get(n, _NONE), target, ripe_at)

    def _part(self, n: int, codes: Ints, g_rows: Ints, v_rows: Ints, target: Ints, ripe_at: Ints) -> Part:
        scan, plan = self.scan, self.plan
        place = {int(code): at for at, code in enumerate(codes)}
        asked = codes[plan.follow_up[codes] >= 0]
        follow_ups = _rows(scan.generations.select(_OF_FOLLOW_UP), plan.follow_up[asked])
        last_ids = _rows(scan.generations.select(["id"]), plan.last_row[asked])["id"]
        return Part(
            folder=self.folder / schemas.part_name(n),
            spool_dir=self.spool_dir,
            keys_dir=self.keys_dir,
            generations=_rows(scan.generations, g_rows),
            episode_of_generation=np.array([place[int(e)] for e in scan.g_episode[g_rows]], dtype=np.int64),
            reseal=plan.reseal[g_rows],
            events=_rows(scan.events, v_rows),
            episode_of_event=np.array([place[int(e)] for e in target[v_rows]], dtype=np.int64),
            follow_ups=follow_ups.append_column("about", last_ids),
            episode_of_follow_up=np.array([place[int(e)] for e in asked], dtype=np.int64),
            episodes=self._episodes(codes, ripe_at),
            later=[
                (at, one)
                for at, row in enumerate(v_rows.tolist() if self.later else ())
                for one in self.later.get(row, ())
            ],
        )

    def _episodes(self, codes: Ints, ripe_at: Ints) -> pa.Table:
        """What the window says of each episode; the rest comes from what is sealed of it."""
        scan, plan = self.scan, self.plan
        first, last = plan.first_row[codes], plan.last_row[codes]
        columns: dict[str, Any] = {
            "id": [scan.episodes[code] for code in codes],
            "lag": plan.lag[codes],
            "first_at": scan.g_at[first],
            "last_at": plan.last_at[codes],
            "ripe_at": ripe_at[codes],
            "first_seq": scan.g_seq[first],
            "last_seq": scan.g_seq[last],
        }
        return pa.table(columns, schema=pa.schema([f for f in schemas.EPISODES if f.name in columns]))


_NONE: Ints = np.zeros(0, dtype=np.int64)
_OF_FOLLOW_UP = ["seq", "id", "episode", "key_id", "user", "at", "wall", "segment", "start", "size"]


def _rows(table: pa.Table, rows: Ints) -> pa.Table:
    """These rows. Those of a part lie near each other, and `take` puts together whatever it is given."""
    if not len(rows):
        return table.slice(0, 0)
    low, high = int(rows.min()), int(rows.max())
    return table.slice(low, high - low + 1).take(pa.array(rows - low))


def _by_part(part_of_row: Ints) -> dict[int, Ints]:
    """Rows of each part, in their order; those of no part (-1) left out."""
    order = np.argsort(part_of_row, kind="stable")
    numbers, starts = np.unique(part_of_row[order], return_index=True)
    slices = np.split(order, starts[1:]) if len(order) else []
    return {int(n): rows for n, rows in zip(numbers, slices, strict=True) if n >= 0}
