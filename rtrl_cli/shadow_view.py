"""What shadow replay found, for people: one line when nothing was replayed, else a table with the verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rtrl_cli.output import table

_FACTORS = ("length", "latency")  # logarithms on record; shown as factors of the live checkpoint's
_HEAD = ("SHADOW REPLAY", "LIVE", "CANDIDATE", "DIFFERENCE", "AT LEAST", "AT MOST", "TOLERATED")


def text(told: Mapping[str, Any]) -> str:
    """The record of one replay."""
    if told["passed"] is None:
        return f"shadow replay left out: {told['reason']}"
    verdict = "passed" if told["passed"] else f"failed: {told['reason']}"
    known = f", {told['tools_known']} of {told['with_tools']} with their tools" if told["with_tools"] else ""
    head = f"{told['requests']} recorded requests of {told['users']} users{known}: {verdict}"
    return f"{table(_HEAD, [_row(figure) for figure in told['figures']])}\n{head}"


def _row(figure: Mapping[str, Any]) -> tuple[str, ...]:
    factor = figure["name"] in _FACTORS

    def number(key: str, *, compared: bool) -> str:
        value = figure[key]
        if value is None or (factor and not compared):
            return "-"
        return f"x {math.exp(value):.2f}" if factor else f"{value:.1%}"

    sides = [number(key, compared=False) for key in ("live", "candidate")]
    return (
        figure["name"],
        *sides,
        *(number(key, compared=True) for key in ("difference", "low", "high", "tolerated")),
    )
