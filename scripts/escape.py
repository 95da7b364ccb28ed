"""Attempts to get out of a sandbox, or to forge a grade: `python scripts/escape.py --json`.

Each attempt is real: a canary outside that must not be read or touched, a socket that nobody may reach, a
limit that must hold, a grade that must not be had. Where it does no harm the same attempt is first made
without a sandbox, and must succeed there: an attempt that cannot succeed shows nothing.

Prints the bench document with `escape.attempts` and `escape.succeeded`, and each attempt with what stopped
it. Exit 0 whether or not one succeeded; not 0 only when the battery could not run.

    python scripts/escape.py --only memory        attempts whose name or group has the word
    python scripts/escape.py --sandbox docker     the same against a container engine
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import bench
from escapes import breaking, exhausting, forging, neighbours, patching, reaching, reporting, world

from cursorbench.errors import RtrlError
from cursorbench.sandbox.bubblewrap import Bubblewrap
from cursorbench.sandbox.docker import Docker
from cursorbench.sandbox.protocol import Backend


def attempts(only: str) -> list[world.Attempt]:
    """The battery, or what of it has the word in its name or group."""
    found = [
        *reaching.ATTEMPTS,
        *breaking.ATTEMPTS,
        *exhausting.ATTEMPTS,
        *neighbours.ATTEMPTS,
        *patching.ATTEMPTS,
        *forging.ATTEMPTS,
        *reporting.ATTEMPTS,
    ]
    return [attempt for attempt in found if only in attempt.name or only in attempt.group]


BACKENDS: dict[str, Callable[[], Backend]] = {"bubblewrap": Bubblewrap, "docker": Docker}


def run(only: str, backend: str) -> list[world.Result]:
    """Make the attempts, one after the other."""
    results = []
    with world.make(BACKENDS[backend]) as machine:
        for attempt in attempts(only):
            print(f"escape: {attempt.group}: {attempt.name}", file=sys.stderr, flush=True)
            results.append(attempt.make(machine))
    return results


def document(results: list[world.Result], backend: str) -> dict[str, Any]:
    """The bench document."""
    succeeded = [result.name for result in results if result.succeeded]
    idle = [result.name for result in results if result.control is False]
    controls = sum(result.control is True for result in results)
    return {
        "bench": "escape",
        "sandbox": backend,
        "machine": bench.machine(),
        "figures": [
            {
                "id": "escape.attempts",
                "what": f"attempts made; {controls} of them first succeeded without a sandbox",
                "value": len(results),
                "unit": "attempts",
                "bar": ">= 40",
            },
            {
                "id": "escape.succeeded",
                "what": ", ".join(succeeded) or "attempts that got out or forged a grade",
                "value": len(succeeded),
                "unit": "attempts",
                "bar": "== 0",
            },
        ],
        "controls_failed": idle,
        "attempts": [vars(result) for result in results],
    }


def table(results: list[world.Result]) -> str:
    """The attempts for people."""
    control = {True: "yes", False: "NO", None: "-"}
    rows = [("GROUP", "ATTEMPT", "WITHOUT SANDBOX", "WITHIN", "STOPPED BY")]
    rows += [
        (
            result.group,
            result.name,
            control[result.control],
            "SUCCEEDED" if result.succeeded else "no",
            result.stopped_by,
        )
        for result in results
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def main() -> int:
    """Run the battery and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--only", default="", metavar="WORD", help="attempts with the word in name or group")
    parser.add_argument("--sandbox", default="bubblewrap", choices=list(BACKENDS), help="the backend")
    arguments = parser.parse_args()
    try:
        results = run(arguments.only, arguments.sandbox)
    except RtrlError as error:
        print(f"escape: {error.message}; {error.hint}", file=sys.stderr)
        return error.code
    found = document(results, arguments.sandbox)
    if arguments.json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        print(table(results), bench.table(found["figures"]), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
