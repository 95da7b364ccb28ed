"""Closed loops of many cycles, several seeds and specs: `python scripts/experiments.py NAME`.

    hacks      two published reward hacks, seen to happen under naive specs and seen to be stopped
    learning   twelve cycles without collapse; a learning rate ten times too high is stopped
    ablation   what each part of the objective is worth
    service    what a model call takes alone: the constants of latency, to be measured on an idle machine
    thirdhack  loopholes nobody wrote a rule for, planted in the reward: do the monitors notice

Everything is the product's own: the shipped seed model and reward, the committed simulated population,
collect, distill and train; an engine in process in the place of `rtrl serve`. Writes NAME.json, .txt, .png
and .html into docs/experiments; of another size, or a part, into docs/experiments/work/part, as it is not
what is published. --out names another place. Killed at any moment, the same command goes on; --report-only
shows what is there.

Exit 0 whether or not the bars hold; not 0 only when nothing could be measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import bench
from experimenting import report, service, verdicts
from experimenting.plan import EXPERIMENTS, setups
from experimenting.pool import folder_of, run_all
from experimenting.results import read

from cursorbench.errors import RtrlError

PUBLISHED = Path(__file__).resolve().parents[1] / "docs/experiments"
SIZES = ("seeds", "first_seed", "cycles", "requests", "users", "heldout", "heldout_ends")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=sorted([*EXPERIMENTS, "service"]))
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--seeds", type=int, help="how many")
    parser.add_argument("--first-seed", type=int, metavar="N", help="the seeds from N on (1)")
    parser.add_argument("--cycles", type=int, help="of use and learning")
    parser.add_argument("--requests", type=int, help="a day; follow-ups come on top")
    parser.add_argument("--users", type=int, help="people of a population")
    parser.add_argument("--heldout", type=int, help="held-out requests measured after every cycle")
    parser.add_argument("--heldout-ends", type=int, help="the same before the first and after the last")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of every workspace")
    parser.add_argument("--spec", type=Path, help="reward spec in the place of the shipped one")
    parser.add_argument("--only", action="append", metavar="VARIANT", help="this one; may be repeated")
    parser.add_argument("--out", type=Path, help="where the report goes")
    parser.add_argument("--work", type=Path, help="where chains lie and are gone on with (OUT/work)")
    parser.add_argument("--workers", type=int, default=2, help="chains side by side, a core each")
    parser.add_argument("--report-only", action="store_true", help="run nothing")
    return parser.parse_args(arguments)


def destination(arguments: argparse.Namespace) -> Path:
    """Where the report goes: what is published gives way to the whole experiment only."""
    if arguments.out:
        return Path(arguments.out)
    changed = [getattr(arguments, name) is not None for name in SIZES if name != "first_seed"]  # has its name
    part = any(changed) or bool(arguments.only or arguments.set or arguments.spec)
    return PUBLISHED / "work/part" if part else PUBLISHED


def main() -> int:
    """Run what is left, write the report, print it."""
    arguments = parse()
    try:
        return run(arguments)
    except RtrlError as error:
        print(f"{error.message}: {error.hint}" if error.hint else error.message, file=sys.stderr)
        return error.code


def run(arguments: argparse.Namespace) -> int:
    """The same, errors raised."""
    if arguments.name == "service":
        return show(arguments, {"bench": "service", "machine": bench.machine(), "figures": service.figures()})
    experiment = EXPERIMENTS[arguments.name]
    asked = {name: value for name in SIZES if (value := getattr(arguments, name)) is not None}
    size = replace(experiment.size, **asked)
    if arguments.only:
        chosen = tuple(one for one in experiment.variants if one.name in arguments.only)
        experiment = replace(experiment, variants=chosen)
    spec = arguments.spec.read_text("utf-8") if arguments.spec else None
    wanted = [
        replace(one, settings=(*one.settings, *arguments.set)) for one in setups(experiment, size, spec)
    ]
    work = (arguments.work or (arguments.out or PUBLISHED) / "work").resolve()
    if not arguments.report_only:
        run_all(wanted, work, arguments.workers)
    folders = {(one.name, one.seed): folder_of(one, work) for one in wanted}
    runs = read(wanted, folders)
    if not runs:
        print(f"nothing was measured in {work}", file=sys.stderr)
        return 1
    figures = verdicts.verdicts(experiment.name, runs, arguments.workers)
    found = report.document(experiment, size, runs, figures, bench.machine(), len(wanted))
    report.write(destination(arguments), found, runs, bench.table(figures))
    return show(arguments, {name: value for name, value in found.items() if name != "runs"})


def show(arguments: argparse.Namespace, found: dict[str, Any]) -> int:
    """The document, or its figures as a table."""
    text = json.dumps(found, indent=2, ensure_ascii=False)
    print(text if arguments.json else bench.table(found["figures"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
