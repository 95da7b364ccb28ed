"""Batches of messages for independent annotators: `batches.py CANDIDATES --out DIR`.

Writes batch-01.jsonl and so on: id, request, answer_end, between, message, in an order drawn from a seed.
Nothing of where a message comes from, and no label. Batches are of nearly equal size. With `--most N` a
repository gives at most N messages, those with the smallest ids: ids are hashes, so that is a draw, and the
same one when messages are added.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import msgspec

from followup.candidates import Between, Candidate


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What an annotator sees."""

    id: str
    request: str
    answer_end: str
    between: Between
    message: str


def read(path: Path) -> list[Candidate]:
    """What extract.py wrote. Raises msgspec.ValidationError when a line is something else."""
    decoder = msgspec.json.Decoder(Candidate)
    return [decoder.decode(line) for line in path.read_bytes().splitlines()]


def drawn(rows: list[Candidate], most: int | None) -> list[Candidate]:
    """At most `most` of each repository, by id."""
    of: dict[str, list[Candidate]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.id):
        of[row.repository].append(row)
    return [row for repository in sorted(of) for row in of[repository][:most]]


def batches(rows: list[Candidate], size: int, seed: int) -> list[list[Question]]:
    """The rows shuffled, as few batches as fit `size`, their sizes differing by one at most."""
    shuffled = sorted(rows, key=lambda row: row.id)
    Random(seed).shuffle(shuffled)
    asked = [
        Question(**{name: getattr(row, name) for name in Question.__struct_fields__}) for row in shuffled
    ]
    count = math.ceil(len(asked) / size)
    return [asked[len(asked) * n // count : len(asked) * (n + 1) // count] for n in range(count)]


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description="write batches of messages for independent annotators")
    parser.add_argument("candidates", type=Path, help="what extract.py wrote")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--size", type=int, default=130, help="messages a batch, at most")
    parser.add_argument("--first", type=int, default=1, help="number of the first batch")
    parser.add_argument("--most", type=int, help="messages of one repository, at most")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    encoder = msgspec.json.Encoder()
    rows = drawn(read(given.candidates), given.most)
    written = {}
    for number, batch in enumerate(batches(rows, given.size, given.seed), given.first):
        path = given.out / f"batch-{number:02}.jsonl"
        path.write_bytes(b"".join(encoder.encode(question) + b"\n" for question in batch))
        written[path.name] = len(batch)
    print(json.dumps({"messages": len(rows), "batches": written}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
