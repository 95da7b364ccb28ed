"""Measure what the documentation states: `python scripts/bench.py NAME... --json`.

Each NAME is a module of scripts/benches with `figures() -> list[dict]`, or with `add_arguments(parser)` and
`figures(arguments)`; `bench.py NAME --help` lists what it takes. Without a NAME, those there are are listed.
One JSON document with --json, a table without. Exit 0 whether or not a bar holds; not 0 only when a
measurement failed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import platform
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import benches

FIELDS = ("id", "what", "value", "unit", "bar")  # every figure has these; also ours, theirs, runs, spread


def names() -> list[str]:
    """The benches there are."""
    found = (module.name for module in pkgutil.iter_modules(benches.__path__))
    return sorted(name for name in found if not name.startswith("_"))


def load(name: str) -> ModuleType:
    """The module of one bench."""
    return importlib.import_module(f"benches.{name}")


def machine() -> str:
    """Processor, cores, memory, system and Python in one line."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
        model = next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), model)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    return (
        f"{model}, {cores} cores, {memory:.0f} GiB, {platform.system()}, Python {platform.python_version()}"
    )


def holds(figure: dict[str, Any]) -> bool | None:
    """Whether the value keeps its bar (`<= 4`, `== 0`, ...); None without a bar or a value."""
    sign, _, limit = str(figure.get("bar") or "").partition(" ")
    value = figure["value"]
    if not limit or value is None:
        return None
    bound = float(limit)
    return bool({"<=": value <= bound, ">=": value >= bound, "==": value == bound, ">": value > bound}[sign])


def table(figures: list[dict[str, Any]]) -> str:
    """The figures for people."""
    rows = [("FIGURE", "VALUE", "UNIT", "BAR", "", "OURS", "THEIRS", "SPREAD", "WHAT")]
    for figure in figures:
        kept = holds(figure)
        spread = figure.get("spread")
        rows.append(
            (
                figure["id"],
                _number(figure["value"]),
                str(figure["unit"]),
                str(figure.get("bar") or ""),
                {None: "", True: "ok", False: "MISSED"}[kept],
                _number(figure.get("ours")),
                _number(figure.get("theirs")),
                " .. ".join(map(_number, spread)) if spread else "",
                figure["what"],
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _number(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def run(wanted: list[str], arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], bool]:
    """All figures of the benches, and whether every measurement worked."""
    figures: list[dict[str, Any]] = []
    worked = True
    for name in wanted:
        print(f"bench {name}", file=sys.stderr, flush=True)
        try:
            module = load(name)
            takes = hasattr(module, "add_arguments")
            found = module.figures(arguments) if takes else module.figures()
            for figure in found:
                missing = [field for field in FIELDS if field not in figure]
                if missing:
                    raise ValueError(f"figure {figure.get('id')} lacks {', '.join(missing)}")
            figures += found
        except Exception:  # noqa: BLE001  a failed measurement is reported, the others still run
            traceback.print_exc()
            worked = False
    return figures, worked


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(names())}")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    for name in {name for name in sys.argv[1:] if name in names()}:
        if hasattr(module := load(name), "add_arguments"):
            module.add_arguments(parser)
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in names()]
    if unknown:
        parser.error(f"no bench {unknown[0]!r}; there are: {', '.join(names())}")
    if not arguments.names:
        print("\n".join(names()))
        return 0
    figures, worked = run(arguments.names, arguments)
    document = {"bench": " ".join(arguments.names), "machine": machine(), "figures": figures}
    print(json.dumps(document, indent=2, ensure_ascii=False) if arguments.json else table(figures))
    return 0 if worked else 1


if __name__ == "__main__":
    sys.exit(main())
