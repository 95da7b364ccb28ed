"""The demo's figures as text: one line per cycle, then first against last on held-out users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stages.demo.figures import NAMES

HEADINGS = {
    "edit_persistence": "edits persist",
    "dissatisfied_followup": "dissatisfied",
    "latency_s": "latency s",
    "invalid_calls": "invalid calls",
    "ask_rate": "asks",
}
HEADER = ("cycle", "served", "verdict", *HEADINGS.values())
FINAL = ("edit_persistence", "dissatisfied_followup", "invalid_calls", "ask_rate", "tokens")
DECIDING = ("edit_persistence", "dissatisfied_followup")


def row(of: Mapping[str, Any]) -> tuple[str, ...]:
    """The cells of one cycle, under HEADER."""
    cells = [cell(of["figures"][name], digits=2 if name == "latency_s" else 3) for name in NAMES]
    return (str(of["cycle"]), str(of["served"]), str(of["verdict"] or "-"), *cells)


def cell(estimate: Mapping[str, Any], digits: int = 3) -> str:
    """`0.512 (0.490-0.534)`."""
    if estimate["value"] is None:
        return "-"
    ends = [f"{end:.{digits}f}" if end is not None else "?" for end in (estimate["low"], estimate["high"])]
    return f"{estimate['value']:.{digits}f} ({ends[0]}-{ends[1]})"


def summary(document: Mapping[str, Any]) -> str:
    """Both tables, for a terminal 120 columns wide."""
    lines = [
        "use, cycle by cycle (95 % intervals, clustered by user; dissatisfaction as read from the messages)",
        "",
    ]
    lines += columns(HEADER, [row(each) for each in document["cycles"]])
    final = document["final"]
    if final:
        lines += ["", *final_lines(final)]
    return "\n".join(lines) + "\n"


def final_lines(final: Mapping[str, Any]) -> list[str]:
    """First against last on the same held-out users."""
    head = (
        f"the same {final['requests']} requests of {final['users']} held-out users, "
        f"{final['first']['ref']} (first) and {final['last']['ref']} (last served), "
        "judged by what they meant"
    )
    rows = []
    for name in FINAL:
        one = final["figures"][name]
        digits = 1 if name == "tokens" else 3
        rows.append(
            (
                name.replace("_", " "),
                cell(one["first"], digits),
                cell(one["last"], digits),
                "yes" if one["apart"] else "no",
            )
        )
    return [head, "", *columns(("", "first", "last", "intervals apart"), rows)]


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Left-aligned columns."""
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]
    return [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in [header, *rows]
    ]


def headline(document: Mapping[str, Any]) -> dict[str, Any]:
    """Single values for `rtrl status`: what the demo set out to show."""
    final = document["final"]
    if not final:
        return {"cycles_run": len(document["cycles"])}
    found: dict[str, Any] = {"cycles_run": len(document["cycles"])}
    for name in DECIDING:
        one = final["figures"][name]
        found[f"{name}_first"], found[f"{name}_last"] = one["first"]["value"], one["last"]["value"]
        found[f"{name}_apart"] = bool(one["apart"] and one["better"])
    found["better"] = all(found[f"{name}_apart"] for name in DECIDING)
    return found
