"""Every fault and what was seen of it, as rows and as text."""

from __future__ import annotations

from collections import Counter
from typing import Any

from chaosing.arena import Fault, Seen
from chaosing.records import Asked, Book


def rows(faults: list[Fault], seen: list[Seen], book: Book, lost: set[str]) -> list[dict[str, Any]]:
    """One row for each kind of fault that was injected."""
    found = []
    for fault in faults:
        times = [each for each in seen if each.name == fault.name]
        if not times:
            continue
        asked = [record for each in times for record in book.between(each.begin, each.end)]
        seconds = [each.seconds for each in times]
        found.append(
            {
                "fault": fault.name,
                "done": fault.done,
                "holds": fault.holds,
                "by": fault.by,
                "within_s": fault.within_s,
                "times": len(times),
                **_counts(asked, lost),
                "converged_s": [None if one is None else round(one, 1) for one in seconds],
                "notes": list(dict.fromkeys(note for each in times for note in each.notes)),
                "problems": [problem for each in times for problem in each.problems],
            }
        )
    return found


def _counts(asked: list[Asked], lost: set[str]) -> dict[str, Any]:
    """Of the requests that were due during it."""
    outcomes = Counter(record.outcome for record in asked)
    statuses = Counter(record.status for record in asked if record.outcome == "refused")
    return {
        "requests": len(asked),
        "answered": outcomes["complete"],
        "told": outcomes["told"],
        "503": statuses.pop(503, 0),
        "429": statuses.pop(429, 0),
        "other": dict(statuses),
        "codes": dict(Counter(record.code for record in asked if record.code)),
        "left": sum(record.code == "left" for record in asked),
        "cut": sum(record.outcome == "cut" and record.code != "left" for record in asked),
        "unreachable": outcomes["unreachable"],
        "lost": len({record.id for record in asked} & lost),
        "longest_s": round(max((record.ended - record.due for record in asked), default=0.0), 1),
    }


def markdown(found: list[dict[str, Any]]) -> str:
    """The rows as they stand in docs/chaos.md; the steps of a command in one row."""
    lines = [
        "| fault | what is done | what must hold | by | requests | answered | 503, 429 | broken off "
        "| nobody listened | lost | well again after (s) |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for rows_ in _together(found):
        first, seconds = rows_[0], [each for row in rows_ for each in row["converged_s"]]
        told = [each for each in seconds if each is not None]
        total = {name: sum(row[name] for row in rows_) for name in ADDED}
        steps = f" ({len(rows_)} steps)" if " at " in first["fault"] else ""
        many = f"{min(told)} to {max(told)}" if len(told) > 1 else "".join(map(str, told))
        never = f", never: {len(seconds) - len(told)}" if len(told) < len(seconds) else ""
        cells = (
            f"`{first['fault'].partition(' ')[0]}`{steps}",
            first["done"].partition(" at ")[0] if steps else first["done"],
            first["holds"],
            first["by"],
            *(str(total[name]) for name in ("requests", "answered")),
            str(total["503"] + total["429"]),
            str(total["cut"] + total["told"]),
            *(str(total[name]) for name in ("unreachable", "lost")),
            f"{many}{never} (limit {first['within_s']:g})",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


ADDED = ("requests", "answered", "503", "429", "cut", "told", "unreachable", "lost")


def _together(found: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Rows of the same kind, in alphabetical order."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for row in found:
        kinds.setdefault(row["fault"].partition(" ")[0], []).append(row)
    return [kinds[kind] for kind in sorted(kinds)]


HEAD = (
    *("FAULT", "TIMES", "REQUESTS", "ANSWERED", "503", "429", "BROKEN OFF", "UNREACHABLE", "LOST"),
    *("CONVERGED (S)", "BY", "SEEN"),
)


def text(found: list[dict[str, Any]]) -> str:
    """The rows for people."""
    lines = [HEAD]
    for row in found:
        seen = "; ".join(["FAILED: " + problem for problem in row["problems"]] or row["notes"])
        lines.append(
            (
                row["fault"],
                str(row["times"]),
                *(str(row[name]) for name in ("requests", "answered", "503", "429")),
                str(row["cut"] + row["told"]),
                *(str(row[name]) for name in ("unreachable", "lost")),
                ", ".join("never" if one is None else str(one) for one in row["converged_s"]),
                row["by"],
                seen,
            )
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    return "\n".join(
        "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines
    )
