"""`rtrl verify` for the spool: are the segments there, and does every byte of them read?

Changes no segment. Like every reader it first puts in order what a killed writer left, if none is alive.
Damage is a problem until somebody was told of it (`told`); afterwards it is in quarantine and a warning,
until the segment file is put back.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from stages.spool import segment
from stages.spool.damage import Damage
from stages.spool.frames import Kind
from stages.spool.index import FILE
from stages.spool.reader import Spool


@dataclass
class SpoolReport:
    """What was counted, what is wrong, and what was and is known (one sentence each).

    `counts["damaged"]` is the number of problems, `counts["quarantined"]` that of warnings. `news` is the
    damage among the problems.
    """

    counts: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    news: list[Damage] = field(default_factory=list)


def verify_spool(spool_dir: Path, deep: bool) -> SpoolReport:
    """Compare segments with the index; with `deep` read every record and check its CRC.

    Safe while a gateway writes. A spool that is not there yet is an empty one.

    Raises:
        StoreError: the index has another schema.
        IntegrityError: the index is damaged, and belongs to a living writer.
    """
    report = SpoolReport({"segments": 0, "generations": 0, "events": 0, "damaged": 0, "quarantined": 0})
    if not spool_dir.is_dir():
        return report
    spool = Spool.open(spool_dir, whole=deep)
    try:
        if spool.made_anew:
            what = f"{spool_dir / FILE} was damaged ({spool.made_anew}), and was made anew from the segments"
            report.warnings.append(what)
        _verify(spool, spool_dir, deep, report)
    finally:
        spool.close()
    return report


def told(spool_dir: Path, report: SpoolReport) -> None:
    """The report was shown: what is news in it is known from now on."""
    if report.news:
        spool = Spool.open(spool_dir)
        try:
            spool.tell(report.news)
        finally:
            spool.close()


def _verify(spool: Spool, spool_dir: Path, deep: bool, report: SpoolReport) -> None:
    on_record = spool.heal()
    report.news = spool.untold(on_record)  # found by recovery, which tells a log at most
    known = [damage for damage in on_record if damage not in report.news]
    report.warnings += [f"{damage} (known, in quarantine)" for damage in known]
    for row in spool.segments():
        report.counts["segments"] += 1
        report.counts["generations"] += row.generations
        report.counts["events"] += row.events
        path = segment.path_of(spool_dir, row.id)
        if not deep:
            size = _size(path)
            if size is None and row.id not in {there.id for there in spool.segments()}:
                continue  # deleted since `row` was read
            size = size or 0
            if size < row.bytes and not any(d.segment == row.id for d in on_record):
                report.problems.append(f"segment {row.id:08d} has {size} bytes where {row.bytes} were synced")
            continue
        found, damages = spool.read_segment(row)
        reported = {(damage.segment, damage.offset) for damage in report.news}
        report.news += [d for d in spool.untold(damages) if (d.segment, d.offset) not in reported]
        kinds = Counter(frame.kind for frame in found)
        counted = (kinds[Kind.GENERATION], kinds[Kind.EVENT])
        if not damages and counted != (row.generations, row.events):
            report.problems.append(
                f"segment {row.id:08d} holds {counted[0]} generations and {counted[1]} events,"
                f" its index {row.generations} and {row.events}"
            )
    report.problems += [str(damage) for damage in report.news]
    report.counts |= {"damaged": len(report.problems), "quarantined": len(report.warnings)}


def _size(path: Path) -> int | None:
    """Of a file; None when it is not there."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
