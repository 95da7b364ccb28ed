"""How long `rtrl --help` takes beyond the start of a bare interpreter."""

from __future__ import annotations

import statistics
import sys
from typing import Any

from benches._timing import rtrl, seconds

RUNS = 31


def figures() -> list[dict[str, Any]]:
    """Both programs in turn, so that a change in the machine's load meets both."""
    bare, helped = [], []
    seconds([*rtrl(), "--help"])  # bytecode is compiled once
    for _ in range(RUNS):
        bare.append(seconds([sys.executable, "-c", "pass"]) * 1e3)
        helped.append(seconds([*rtrl(), "--help"]) * 1e3)
    differences = sorted(a - b for a, b in zip(helped, bare, strict=True))
    return [
        {
            "id": "cli.help_over_python_ms",
            "what": "median of `rtrl --help` minus median of a bare interpreter start",
            "value": statistics.median(helped) - statistics.median(bare),
            "unit": "ms",
            "bar": "<= 150",
            "ours": statistics.median(helped),
            "theirs": statistics.median(bare),
            "runs": RUNS,
            "spread": [differences[RUNS // 20], differences[-1 - RUNS // 20]],
        }
    ]
