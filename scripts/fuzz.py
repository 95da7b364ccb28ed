"""Damaged session logs for the readers: `python scripts/fuzz.py --json`.

Takes pieces of real logs (../shared/data/interactions, or --data), and of generated ones where a kind has
no real sample; damages them, and has them read by the adapter of their kind and by recognition. A failure
is an exception, an input that takes longer than SECONDS, or a good line that is lost: of a format of
independent lines, everything has to be read that is read without a line of garbage in between.

Prints the bench document with `fuzz.inputs` and `fuzz.failures`; the failing inputs are kept. Exit 0 whether
or not there were any; not 0 only when there is nothing to damage.

    python scripts/fuzz.py --inputs 5000 --kind specstory        a short one
    python scripts/fuzz.py --keep FOLDER                         where failing inputs go
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import bench
import msgspec
from fuzzing import generated, mutations

from cursorbench.sessions import kinds
from cursorbench.sessions.items import Place, Quarantined, Read
from cursorbench.sessions.seen import Seen

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "interactions"
SECONDS = 5  # of the processor, for one input of a few kilobytes
MEMORY = Path("/dev/shm")  # a disk would be what is measured
# Formats of lines that do not depend on each other.
LINES = frozenset(
    {"claude-code", "codex", "copilot-cli", "agent-trace", "continue", "tensorzero", "openai-log"}
)


@dataclass(frozen=True)
class Failure:
    """An input that did harm."""

    kind: str
    what: str
    file: str
    seed: int


class TooSlowError(Exception):
    """An input took longer than SECONDS."""


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--inputs", type=int, default=100_000, metavar="N", help="damaged inputs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", help="only logs of this kind")
    parser.add_argument("--data", type=Path, default=DATA, help="a folder of real logs")
    parser.add_argument("--keep", type=Path, help="where failing inputs go (default: a temporary folder)")
    return parser.parse_args()


def sources(root: Path, kind: str | None) -> list[tuple[str, Path]]:
    """(kind, file) of the logs that are recognised, as many of each kind as there are."""
    found = []
    for path in kinds.files(root):
        name = kinds.kind_of(path)
        if name is not None and kind in (None, name):
            found.append((name, path))
    return found


def work(task: tuple[list[tuple[str, Path]], int, int, Path]) -> tuple[Counter[str], list[Failure]]:
    """Read `count` inputs. One process' share."""
    files, seed, count, keep = task
    signal.signal(signal.SIGPROF, _too_slow)
    by_kind: dict[str, list[Path]] = {}
    for kind, path in files:
        by_kind.setdefault(kind, []).append(path)
    random, done, failures = Random(seed), Counter[str](), []
    cache: dict[Path, bytes] = {}
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        for _ in range(count):
            kind = random.choice(sorted(by_kind))
            path = random.choice(by_kind[kind])
            data = cache.setdefault(path, path.read_bytes())
            number = random.getrandbits(48)
            what = one(kind, data, Path(folder, path.name), Random(number))
            done[kind] += 1
            if what:
                keep.mkdir(parents=True, exist_ok=True)
                kept = keep / f"{kind}-{number}{path.suffix}"
                kept.write_bytes(Path(folder, path.name).read_bytes())
                failures.append(Failure(kind, what, str(kept), number))
    return done, failures


def one(kind: str, data: bytes, path: Path, random: Random) -> str:
    """Damage a piece of `data`, write it to `path`, read it. Returns what went wrong, "" for nothing."""
    whole = mutations.piece(data, random)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        if kind in LINES and random.random() < 0.3:
            return _lost(kind, whole, path, random)
        damaged = whole
        for _ in range(random.randint(1, 3)):
            damaged = random.choice(mutations.MUTATIONS)(damaged, random)
        path.write_bytes(damaged)
        _consume(items(kind, path))
        recognised = kinds.kind_of(path)
        if recognised not in (None, kind):
            _consume(items(recognised, path))
    except TooSlowError:
        return f"longer than {SECONDS} s"
    except Exception:  # noqa: BLE001  anything at all is a finding
        return traceback.format_exc(limit=-3)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return ""


def items(kind: str, path: Path) -> Iterator[Read]:
    """What the adapter reads."""
    return kinds.adapters()[kind].read(path, Seen())


def _consume(found: Iterator[Read]) -> None:
    for item in found:
        msgspec.json.encode(msgspec.structs.asdict(item)["place"])


def _lost(kind: str, whole: bytes, path: Path, random: Random) -> str:
    """What a line of garbage takes along of its neighbours."""
    path.write_bytes(whole)
    before = _without_places(items(kind, path))
    lines = whole.splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        lines[-1] += b"\n"
    at = random.randrange(len(lines) + 1)
    lines.insert(at, random.choice(mutations.GARBAGE) + b"\n")
    path.write_bytes(b"".join(lines))
    after = _without_places(items(kind, path))
    return (
        "" if before == after else f"a line of garbage at {at} changed {len(before)} items into {len(after)}"
    )


def _without_places(found: Iterator[Read]) -> list[Read]:
    nowhere = Place("")
    return [
        msgspec.structs.replace(item, place=nowhere) for item in found if not isinstance(item, Quarantined)
    ]


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlowError


def document(done: Counter[str], failures: list[Failure], seed: int, seconds: float) -> dict[str, Any]:
    """The bench document."""
    figures = [
        {
            "id": "fuzz.inputs",
            "what": "mutated real files and generated ones given to the session readers",
            "value": done.total(),
            "unit": "inputs",
            "bar": ">= 100000",
            "mix": dict(sorted(done.items())),
        },
        {
            "id": "fuzz.failures",
            "what": "tracebacks, hangs, or good lines lost",
            "value": len(failures),
            "unit": "failures",
            "bar": "== 0",
            "failures": [msgspec.to_builtins(failure) for failure in failures[:50]],
        },
    ]
    about = {"seed": seed, "seconds": round(seconds, 1)}
    return {"bench": "fuzz", "machine": bench.machine(), **about, "figures": figures}


def main() -> int:
    """Damage, read, print."""
    arguments = parse()
    began = time.monotonic()
    keep = arguments.keep or Path(tempfile.gettempdir(), f"rtrl-fuzz-{os.getpid()}")
    with tempfile.TemporaryDirectory() as folder:
        generated.write(Path(folder), Random(arguments.seed))
        files = sources(Path(folder), arguments.kind)
        real = sources(arguments.data, arguments.kind) if arguments.data.exists() else []
        if not real and not (arguments.kind and files):
            print(f"no log that is recognised at {arguments.data}", file=sys.stderr)
            return 1
        done, failures = fuzz([*files, *real], arguments.inputs, arguments.seed, keep)
    found = document(done, failures, arguments.seed, time.monotonic() - began)
    print(
        json.dumps(found, indent=2, ensure_ascii=False) if arguments.json else bench.table(found["figures"])
    )
    return 0


def fuzz(
    files: list[tuple[str, Path]], inputs: int, seed: int, keep: Path
) -> tuple[Counter[str], list[Failure]]:
    """All inputs, on all cores. Returns how many of each kind, and what went wrong."""
    share = 2_000
    tasks = [
        (files, seed * 1_000_003 + start, min(share, inputs - start), keep)
        for start in range(0, inputs, share)
    ]
    done, failures = Counter[str](), []
    with multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool:
        for some, wrong in pool.imap_unordered(work, tasks):
            done += some
            failures += wrong
            print(f"{done.total()} of {inputs}, {len(failures)} failures", file=sys.stderr)
    return done, failures


if __name__ == "__main__":
    sys.exit(main())
