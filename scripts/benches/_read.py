"""The limit of the bench of `distill`: the spool's records read and checked, the artifact's columns read,
decompressed and unsealed, by one process a core, and nothing done with them. Prints seconds.

    python _read.py SPOOL KEYS INTERACTIONS
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

from stages import schemas, tables
from stages.distill.facts import _COLUMNS
from stages.spool import Spool, codec
from stages.spool.frames import Kind
from stages.spool.index import SegmentRow
from stages.vault import Vault
from stages.workers import cores, in_order


def segment(spool_dir: Path, row: SegmentRow) -> None:
    """Every record of a segment, checked and unpacked."""
    spool = Spool.reading(spool_dir)
    for frame in spool.read_segment(row)[0]:
        if frame.kind == Kind.GENERATION:
            codec.unpack_generation(frame.body)
        elif frame.kind == Kind.EVENT:
            codec.unpack_event(frame.body)
    spool.close()


def part(keys_dir: Path, folder: Path) -> None:
    """The columns that distill reads of a part, payloads unsealed."""
    vault = Vault.open(keys_dir)
    generations = tables.batches(folder / schemas.GENERATIONS_FILE, schemas.GENERATIONS, _COLUMNS, rows=1024)
    for batch in generations:
        for i, user, sealed in zip(
            *(batch.column(n).to_pylist() for n in ("id", "user", "sealed")), strict=True
        ):
            vault.unseal(user, sealed, codec.generation_aad(i))
    for batch in tables.batches(folder / schemas.EVENTS_FILE, schemas.EVENTS, rows=1024):
        columns = [batch.column(n).to_pylist() for n in ("id", "key_id", "user", "sealed")]
        for i, key, user, sealed in zip(*columns, strict=True):
            if sealed:
                vault.unseal(user, sealed, codec.event_aad(key, i))
    vault.close()


def main() -> None:
    """See the module."""
    spool_dir, keys_dir, interactions = map(Path, sys.argv[1:])
    spool = Spool.open(spool_dir)
    rows = spool.segments()
    spool.close()
    began = time.perf_counter()
    for _ in in_order(partial(segment, spool_dir), rows, cores()):
        pass
    for _ in in_order(partial(part, keys_dir), tables.parts(interactions), cores()):
        pass
    print(time.perf_counter() - began)


if __name__ == "__main__":
    main()
