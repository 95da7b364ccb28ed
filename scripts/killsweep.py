"""Kill everything, everywhere, and look whether anything is lost: `python scripts/killsweep.py --json`.

Aimed kills: SIGKILL before and after every write, sync, rename and commit of the commands in
killsweeps/scenarios.py, at fault points. Random kills: SIGKILL at random moments of random commands in one
workspace, while users write. After each kill the next command must put things right, every generation
and event that a client was promised must be there, no lock may be stuck, nothing may still run; at the end
`rtrl verify --full` is clean and `rtrl cycle` goes on.

Prints the bench document with `killsweep.kills` and `killsweep.failures`. Exit 0 whether or not there
were failures; not 0 only when nothing could be measured. With --folder, running it again goes on where
it was interrupted.

    python scripts/killsweep.py --aimed 20 --random 20            a short one
    python scripts/killsweep.py --scenario train --scenario eval  aimed at what these two pass
    python scripts/killsweep.py --only collect/publish.rename.after:1
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import bench
from killsweeps.aimed import Aimed, only
from killsweeps.bases import ENVIRONMENT, Bases, NoBaseError
from killsweeps.kills import Book, say
from killsweeps.randoms import Randoms
from killsweeps.scenarios import SCENARIOS
from killsweeps.server import DidNotStartError


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--aimed", type=int, default=150, metavar="N", help="kills at fault points")
    parser.add_argument("--random", type=int, default=100, metavar="N", help="kills at random moments")
    parser.add_argument("--seed", type=int, default=0, help="of the order of points and of the moments")
    parser.add_argument(
        "--scenario",
        action="append",
        choices=[scenario.name for scenario in SCENARIOS],
        help="aim at this one's points only; may be repeated",
    )
    parser.add_argument("--only", metavar="SCENARIO/POINT:N", help="one aimed kill, as a failure names it")
    parser.add_argument("--model", type=Path, help="start from this model folder, not from the shipped one")
    parser.add_argument("--folder", type=Path, help="where the workspaces lie; kept, and gone on with")
    return parser.parse_args()


def sweep(arguments: argparse.Namespace, folder: Path) -> tuple[Book, list[str]]:
    """All kills. Returns them, and what was wrong at the end of all."""
    folder.mkdir(parents=True, exist_ok=True)
    book, bases = Book(folder / "kills.jsonl"), Bases(folder / "bases", arguments.seed, arguments.model)
    chosen = [one for one in SCENARIOS if not arguments.scenario or one.name in arguments.scenario]
    aimed = Aimed(bases, folder, book, arguments.seed, chosen)
    if arguments.only:
        aimed.one(*only(arguments.only))
        return book, []
    for scenario in chosen:
        if scenario.base:
            bases.path(scenario.base)
    problems: list[str] = []
    broken: list[BaseException] = []

    def at_random() -> None:
        try:
            problems.extend(Randoms(bases, folder, book, arguments.seed).run(arguments.random))
        except BaseException as error:  # noqa: BLE001  raised again below, in the main thread
            broken.append(error)

    thread = threading.Thread(target=at_random, name="random")
    thread.start()
    try:
        aimed.run(arguments.aimed)
    finally:
        thread.join()
    if broken:
        raise broken[0]
    return book, problems


def document(book: Book, problems: list[str], seed: int, seconds: float) -> dict[str, Any]:
    """The bench document."""
    failures = [
        {"name": kill.name, "problems": kill.problems, "repeat": f"scripts/killsweep.py {kill.repeat}"}
        for kill in book.failures
    ]
    if problems:
        failures.append({"name": "at the end", "problems": problems, "repeat": f"--seed {seed}"})
    figures = [
        {
            "id": "killsweep.kills",
            "what": "aimed and random SIGKILLs over all stages, spool and registry",
            "value": len(book.kills),
            "unit": "kills",
            "bar": ">= 200",
            "aimed": len(book.of("aimed")),
            "random": len(book.of("random")),
            "mix": book.mix(),
        },
        {
            "id": "killsweep.failures",
            "what": "kills after which anything was lost, corrupt, or not picked up by the next command",
            "value": len(failures),
            "unit": "failures",
            "bar": "== 0",
            "failures": failures,
        },
    ]
    about = {"seed": seed, "seconds": round(seconds, 1), "missed": book.missed}
    return {"bench": "killsweep", "machine": bench.machine(), **about, "figures": figures}


def main() -> int:
    """Sweep and print."""
    arguments = parse()
    os.environ.update(ENVIRONMENT)
    began = time.monotonic()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="rtrl-killsweep-"))
    try:
        book, problems = sweep(arguments, folder.resolve())
    except (NoBaseError, DidNotStartError) as error:
        say(f"nothing could be measured: {error} (workspaces are in {folder})")
        return 1
    found = document(book, problems, arguments.seed, time.monotonic() - began)
    failed = bool(book.failures or problems)
    if not arguments.folder and not failed:
        shutil.rmtree(folder, ignore_errors=True)
    elif failed:
        say(f"the workspaces of the failures are in {folder}")
    print(
        json.dumps(found, indent=2, ensure_ascii=False) if arguments.json else bench.table(found["figures"])
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
