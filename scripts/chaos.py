"""Deploy, A/B and roll back, under fire: `python scripts/chaos.py --json`.

A real `rtrl serve` under constant load, and faults in turn: engines and gateway killed and hung, deploys,
rollbacks and canaries killed in each of their steps, the store away, the disk full, the clock jumped, two
commands at once, databases locked by others. After each one the system has to converge by itself; in the
end every accepted request is in the spool exactly once, under the checkpoint that sampled it, and users
kept their arms. docs/chaos.md tells how to read the table.

Prints the bench document with `chaos.faults`, `chaos.lost` and `chaos.misattributed`. Exit 0 whether or not
there were failures; not 0 only when nothing could be measured.

    python scripts/chaos.py --seconds 120                          a short one: as many as there is time for
    python scripts/chaos.py --fault engine-killed --fault disk-full
    python scripts/chaos.py --engine vllm --rate 4                 the real engine, on the shipped model
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import bench
from chaosing import commands, disks, engines, table
from chaosing.arena import Arena, Fault
from chaosing.verdict import Verdict, judge
from chaosing.world import NothingToMeasureError, World
from killsweeps.checks import left_over, stuck_locks
from killsweeps.kills import say
from killsweeps.processes import MARK

STATIC = (*engines.FAULTS, *commands.FAULTS, *disks.FAULTS)
NEEDS_DISK = ("disk-full", "disk-full-engine-killed", "disk-full-gateway-killed")
OWN = ("switch", "canary", "rollback", "alias", "deployment", "deploy")  # steps that no other command takes


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/chaos.md")
    parser.add_argument("--rate", type=float, default=50.0, metavar="N", help="requests a second")
    parser.add_argument("--seconds", type=float, default=600.0, metavar="S", help="of load")
    parser.add_argument("--seed", type=int, default=0, help="of the load and the order of faults")
    parser.add_argument("--engine", choices=("stub", "vllm"), default="stub")
    parser.add_argument("--replicas", type=int, default=1, help="engines of the live arm")
    parser.add_argument("--holdback", type=float, default=0.0, help="share of users who stay on the anchor")
    parser.add_argument(
        "--fault",
        action="append",
        metavar="NAME",
        help="only this one, once; may be repeated, and be a pattern ('deploy-killed*'); --list names them",
    )
    parser.add_argument("--list", action="store_true", help="name the faults, but for kills at steps")
    parser.add_argument("--folder", type=Path, help="where the world lies; kept")
    return parser.parse_args()


def chosen(arguments: argparse.Namespace, world: World) -> list[Fault]:
    """The faults to inject, in order: the kinds first, then the steps, those of a deploy's own first."""
    faults = [each for each in STATIC if world.disk.own or each.name not in NEEDS_DISK]
    faults = [each for each in faults if world.clock.works or not each.name.startswith("clock-")]
    wanted = arguments.fault or ["*"]
    needs_steps = any("killed at" in name or _means_steps(name) for name in wanted)
    kinds = [each for each in faults if any(fnmatchcase(each.name, name) for name in wanted)]
    steps: list[Fault] = []
    if needs_steps:
        steps = [
            each for each in commands.kills(world) if any(fnmatchcase(each.name, name) for name in wanted)
        ]
    order = random.Random(arguments.seed)
    order.shuffle(kinds)
    order.shuffle(steps)
    steps.sort(key=lambda each: not any(f" {area}." in each.name for area in OWN))
    return [*kinds, *steps]


def _means_steps(pattern: str) -> bool:
    """Whether a pattern is meant for kills at steps, whose names are known only once they are looked for."""
    return any(fnmatchcase(f"{command}-killed at a.step", pattern) for command in commands.COMMANDS)


def measure(arguments: argparse.Namespace, world: World) -> dict[str, Any]:
    """The whole run. Returns the document."""
    world.make()
    world.keeper.start()
    faults = chosen(arguments, world)
    if not faults:
        raise NothingToMeasureError("no such fault; --list names them")
    began = time.monotonic()
    arena = Arena(world, rate=arguments.rate, seed=arguments.seed, deadline=began + arguments.seconds)
    with arena.load():
        if arena.calm(120) is None:
            raise NothingToMeasureError("the world is not well before any fault")
        for fault in faults:
            if time.monotonic() < arena.deadline:
                arena.strike(fault)
        while not arguments.fault and time.monotonic() < arena.deadline:
            arena.strike(faults[len(arena.seen) % len(faults)])
    seconds = time.monotonic() - began
    say("the load has ended; now everything is compared")
    problems = _in_the_end(world)
    verdict = judge(world, arena.book, arena.open)
    return _document(arguments, arena, faults, verdict, problems, seconds)


def _in_the_end(world: World) -> list[str]:
    """Status and verify beside the running gateway, and its own end."""
    problems = []
    for command in (("status", "--json"), ("verify", "--full", "--json")):
        ended = world.rtrl(*command)
        if ended.code:
            problems.append(str(ended))
        if warnings := ended.document.get("warnings"):
            problems += [f"rtrl {command[0]} warns: {text}" for text in warnings]
    ended = world.keeper.stop()
    if ended.code != 0:
        problems.append(f"the end: {ended}")
    problems += [f"left running: {name}" for one in world.keeper.ended for name in one.orphans]
    return problems + stuck_locks(world.path) + left_over(world.path)


def _document(
    arguments: argparse.Namespace,
    arena: Arena,
    faults: list[Fault],
    verdict: Verdict,
    problems: list[str],
    seconds: float,
) -> dict[str, Any]:
    found = table.rows(faults, arena.seen, arena.book, verdict.lost)
    problems += verdict.problems
    problems += [f"{row['fault']}: {problem}" for row in found for problem in row["problems"]]
    return {
        "bench": "chaos",
        "machine": bench.machine(),
        "engine": arguments.engine,
        "replicas": arguments.replicas,
        "holdback": arguments.holdback,
        "rate": arguments.rate,
        "seed": arguments.seed,
        "seconds": round(seconds, 1),
        "arms_checked": verdict.in_canary,
        "arms_changed": len(verdict.unsticky),
        "figures": _figures(arena, faults, verdict, {row["fault"] for row in found}),
        "faults": found,
        "problems": problems,
    }


def _figures(arena: Arena, faults: list[Fault], verdict: Verdict, done: set[str]) -> list[dict[str, Any]]:
    """`done`: names of the faults that were injected."""
    return [
        {
            "id": "chaos.faults",
            "what": "kinds of fault injected under load",
            "value": len({name.partition(" ")[0] for name in done}),
            "unit": "kinds",
            "bar": ">= 8",
            "injected": len(arena.seen),
            "points": len(done),
            "not_reached": [fault.name for fault in faults if fault.name not in done],
        },
        {
            "id": "chaos.lost",
            "what": "accepted requests lost",
            "value": len(verdict.lost),
            "unit": "requests",
            "bar": "== 0",
            "accepted": verdict.accepted,
            "asked": len(arena.book.asked),
            "events": len(arena.book.told),
        },
        {
            "id": "chaos.misattributed",
            "what": "generations recorded under a checkpoint that did not sample them",
            "value": len(verdict.misattributed),
            "unit": "generations",
            "bar": "== 0",
            "recorded": verdict.recorded,
            "tokens": verdict.checked,
        },
    ]


@contextlib.contextmanager
def _world(arguments: argparse.Namespace) -> Iterator[World]:
    """A world that leaves nothing behind, however this ends."""
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="rtrl-chaos-"))
    os.environ[MARK] = "chaos"
    about = {"engine": arguments.engine, "replicas": arguments.replicas, "holdback": arguments.holdback}
    world = World(folder.resolve(), **about)
    try:
        yield world
    finally:
        world.keeper.kill()
        if arguments.folder:
            shutil.copytree(
                world.disk.folder,
                folder / "kept",
                dirs_exist_ok=True,
                ignore=shutil.ignore_patterns("*.sock"),
            )
        world.disk.remove()
        if not arguments.folder:
            shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Measure and print."""
    arguments = parse()
    if arguments.list:
        print("\n".join(f"{each.name:32} {each.done}" for each in STATIC))
        return 0
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        with _world(arguments) as world:
            found = measure(arguments, world)
    except NothingToMeasureError as error:
        say(f"nothing could be measured: {error}")
        return 1
    if arguments.json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    elif arguments.markdown:
        print(table.markdown(found["faults"]))
    else:
        print(table.text(found["faults"]), bench.table(found["figures"]), *found["problems"], sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
