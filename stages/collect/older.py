"""A spool that is older than the registry: put back from a copy, or begun anew after its disk was lost.

Its next records would get numbers that were settled long ago, and each collect would pass them over, until
`rtrl gc` deleted them. So `collect` and `rtrl verify` refuse such a spool and gc deletes nothing of it. The
way out is to put the right one back, or, where there is none, a start of `rtrl serve`: what it captures is
numbered behind all that is on record, and what the spool holds is collected from its beginning, once more
where it has to be: what was trained on stays out, as everywhere, by its episode. A disk that was only away
for a while, and comes back when its successor was collected from, is older likewise (`counted.GAP`).
Not for: damage (`stages/spool/`), a spool that is newer than the registry, which is read again likewise.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from stages.errors import IntegrityError
from stages.registry import counted
from stages.spool import Spool, SpoolWriter
from stages.who import who

if TYPE_CHECKING:
    from stages.registry.store import Store

WAY_OUT = (
    "put back the spool that belongs to the registry; where there is none, start `rtrl serve` (again): "
    "it numbers on behind, and the next collect reads all that the spool holds"
)


def refuse_older(store: Store, spool_dir: Path) -> None:
    """Raise IntegrityError (exit 12) when records of the spool would be passed over."""
    if problem := problem_of(store, spool_dir):
        raise IntegrityError(problem, hint=WAY_OUT)


def problem_of(store: Store, spool_dir: Path) -> str:
    """What is wrong, "" when nothing is."""
    settled = counted.settled_up_to(store)  # before the spool is read: a gateway and other lines go on
    last = 0
    if settled and spool_dir.is_dir():
        spool = Spool.open(spool_dir)
        try:
            last = spool.range().last_seq
        finally:
            spool.close()
    return _problem(spool_dir, last, settled)


def number_on(writer: SpoolWriter, store: Store, say: Callable[[str], None]) -> None:
    """Before anything is captured: no number is given out a second time.

    Raises DependencyDownError (13) when the registry takes no writes and has to.
    """
    settled, last = counted.settled_up_to(store), writer.last_seq
    if problem := _problem(writer.folder, last, settled):
        counted.begin_anew(store, last, by=who())
        say(f"warning: {problem}; numbering on behind that, and the next collect reads all that is there")
    writer.skip(counted.highest(store))


def _problem(spool_dir: Path, last: int, settled: int) -> str:
    if settled <= last:
        return ""
    ends = f"ends with record {last}" if last else "holds no record"
    older = f"the registry has done with all up to record {settled}: the spool is older than the registry"
    return f"the spool at {spool_dir} {ends}, and {older}"
