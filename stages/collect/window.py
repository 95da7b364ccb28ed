"""The window of the spool that a `collect` reads, and what is wrong with it: damage, deleted segments.

Reading records nothing, so a dry run can read; only a run that ends because of damage makes it known.
Not for: where the window begins (`position.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from stages.collect import columns
from stages.collect.scan import Scan, scan
from stages.errors import InputMissingError
from stages.populations import Whose
from stages.registry.runs import fail_run
from stages.spool import Damage, Spool, SpoolDamagedError
from stages.stage import RunContext


def read(spool: Spool, whose: Whose, first: int, last: int) -> tuple[Scan, list[Damage]]:
    """The window's columns, and the damage in it, which is skipped."""
    found = columns.read(spool, first, last)
    return scan(found, whose), found.damages


def refuse_damage(ctx: RunContext, spool: Spool, damages: list[Damage]) -> None:
    """Damage that nobody was told of ends the run, once: it is known when that end is on record."""
    news = spool.untold(damages)
    if news:
        error = SpoolDamagedError(news)
        fail_run(ctx.store, ctx.run_id, error)
        spool.tell(news)
        raise error


def first_seqs(spool: Spool, damages: Iterable[Damage]) -> dict[str, int]:
    """First seq of each damaged segment, by its number."""
    numbers = {damage.segment for damage in damages}
    return {str(row.id): row.first_seq for row in spool.segments() if row.id in numbers}


def refuse_deleted(spool: Spool, first: int) -> None:
    """A recorded run is repeated with all that it read, or not at all."""
    there = spool.range().first_seq
    if there > first:
        raise InputMissingError(
            f"the spool begins at record {there}; this run read it from record {first} on",
            hint="`rtrl gc` deleted what was settled; what the run took is in its interactions artifact",
        )
