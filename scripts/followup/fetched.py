"""Labelled messages of repositories that are not in this tree: features and labels without the texts.

    fetched.py CANDIDATES [--readings A.tsv B.tsv]

CANDIDATES is what extract.py wrote of `fetched_sources.tsv`. Writes `followup_data/fetched.jsonl`: where a
message comes from, its labels, the readable features that are not 0, the n-grams that another owner's message
or a written one has too, sorted, and what the baselines say. To be run again when patterns or features
change: `digests` tells, and training refuses features of other patterns.

An owner belongs to the part that nothing is learnt from when `apart` says so: a rule set before any of the
messages was read. Not for: texts.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import msgspec
import numpy as np
from benches._baselines import BASELINES

from followup import label, learn
from followup.batches import read as read_candidates
from stages.distill.signals.followup import patterns
from stages.distill.signals.followup.features import readable

FILE = learn.DATA.parent / "fetched.jsonl"
SOURCE = ("repository", "licence", "commit")
_PACKAGE = Path(patterns.__file__).parent
CODE = (_PACKAGE / "patterns.toml", _PACKAGE / "features.py", _PACKAGE / "patterns.py")


class Derived(msgspec.Struct, frozen=True, kw_only=True):
    """One message without its text; `weight` as `learn.examples` gives it."""

    id: str
    repository: str
    licence: str
    commit: str
    a: str
    b: str
    label: str
    rule: str
    weight: float
    readable: dict[str, float]
    ngrams: list[str]
    baselines: dict[str, float]

    @property
    def owner(self) -> str:
        """Repositories of one owner are one group."""
        return self.repository.split("/")[0]


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of the file: sha256 of what the features follow from, the features' names; n-grams and
    sources (`SOURCE`), which the other lines name by their places here."""

    code: dict[str, str]
    features: list[str]
    ngrams: list[str]
    sources: list[tuple[str, ...]]


def digests() -> dict[str, str]:
    """sha256 of the files that features follow from."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in CODE}


def apart(owner: str) -> bool:
    """Whether nothing is learnt from an owner: one in four, by the first byte of its name's blake2b."""
    return hashlib.blake2b(owner.lower().encode(), digest_size=8).digest()[0] % 4 == 0


def derived(rows: Sequence[learn.Labelled], origin: dict[str, tuple[str, str]]) -> list[Derived]:
    """The usable messages without their texts; `origin` is (licence, commit) by id."""
    found = learn.examples(rows)
    common = _shared(rows, found)
    values = {name: np.array(baseline(rows)) for name, baseline in BASELINES.items()}
    told = readable([learn.case(row) for row in rows])
    return [
        Derived(
            id=row.id, repository=row.repository, licence=origin[row.id][0], commit=origin[row.id][1],
            a=row.a, b=row.b, label=row.label, rule=row.rule,
            weight=float(found.weight[n]),
            readable={name: round(float(v[n]), 6) for name, v in told.items() if v[n]},
            ngrams=sorted(set(found.ngrams[n]) & common),
            baselines={name: round(float(value[n]), 6) for name, value in values.items()},
        )
        for n, row in enumerate(rows)
    ]  # fmt: skip


def _shared(rows: Sequence[learn.Labelled], found: learn.Examples) -> set[str]:
    """N-grams that two owners use, or one owner and a message of this tree."""
    owners: dict[str, set[str]] = defaultdict(set)
    for row, grams in zip(rows, found.ngrams, strict=True):
        for gram in grams:
            owners[gram].add(row.owner)
    here = learn.read()
    for grams, name in [
        *((grams, row.owner) for row, grams in zip(here, learn.examples(here).ngrams, strict=True)),
        *((grams, "") for grams in learn.written().ngrams),
    ]:
        for gram in grams:
            owners[gram].add(name)
    return {gram for gram, names in owners.items() if len(names) > 1}


def write(rows: Sequence[Derived], features: list[str], path: Path = FILE) -> None:
    """The file; each n-gram and each source is in it once."""
    ngrams = sorted({gram for row in rows for gram in row.ngrams})
    place = {gram: n for n, gram in enumerate(ngrams)}
    sources = sorted({tuple(getattr(row, name) for name in SOURCE) for row in rows})
    lines: list[Any] = [Head(code=digests(), features=features, ngrams=ngrams, sources=sources)]
    for row in rows:
        told = msgspec.structs.asdict(row)
        source = sources.index(tuple(told.pop(name) for name in SOURCE))
        lines.append(told | {"ngrams": [place[gram] for gram in row.ngrams], "source": source})
    encode = msgspec.json.Encoder(order="sorted").encode
    path.write_bytes(b"".join(encode(line) + b"\n" for line in lines))


def read(path: Path = FILE, *, current: bool = True) -> list[Derived]:
    """The messages of the file, in its order. Raises ValueError when its features are of other code than the
    `current`."""
    first, *lines = path.read_bytes().splitlines()
    head = msgspec.json.decode(first, type=Head)
    if current and head.code != digests():
        raise ValueError(f"{path.name} holds features of other patterns: write it anew, see fetched.py")
    rows = []
    for row in map(msgspec.json.decode, lines):
        source = zip(SOURCE, head.sources[row.pop("source")], strict=True)
        ngrams = [head.ngrams[n] for n in row["ngrams"]]
        rows.append(msgspec.convert(row | dict(source) | {"ngrams": ngrams}, Derived))
    return rows


def examples(rows: Sequence[Derived], path: Path = FILE) -> learn.Examples:
    """What is learnt from them."""
    with path.open("rb") as file:
        names = msgspec.json.decode(file.readline(), type=Head).features
    return learn.Examples(
        {name: np.array([row.readable.get(name, 0.0) for row in rows]) for name in names},
        [row.ngrams for row in rows],
        np.array([float(row.label) for row in rows]),
        np.array([row.weight for row in rows]),
    )


@dataclass(frozen=True)
class Corpus:
    """Messages, what is learnt from them, and what the baselines say, in one order."""

    rows: list[learn.Labelled | Derived]
    examples: learn.Examples
    baselines: dict[str, learn.Floats]


def corpus() -> Corpus:
    """All messages that may be learnt from: those of this tree, then the fetched ones."""
    here = learn.read()
    rows = [row for row in read() if not apart(row.owner)]
    return Corpus(
        [*here, *rows],
        learn.examples(here) + examples(rows),
        {
            name: np.array([*baseline(here), *(row.baselines[name] for row in rows)])
            for name, baseline in BASELINES.items()
        },
    )


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description="features and labels of messages that stay elsewhere")
    parser.add_argument("candidates", type=Path, help="what extract.py wrote")
    parser.add_argument("--readings", type=Path, nargs=2, metavar="TSV", help="default: those of the file")
    given = parser.parse_args()
    candidates = read_candidates(given.candidates)
    if given.readings:
        one, other = map(label.reading, given.readings)
        decided = label.adjudication()
    else:
        before = read(current=False)
        one, other = ({row.id: (getattr(row, name), row.rule) for row in before} for name in ("a", "b"))
        decided = {row.id: (row.label, row.rule) for row in before}
    joined = label.joined(candidates, one, other, decided)
    usable = [row for row in joined if row["label"] != "unusable"]
    rows = [msgspec.convert(row, learn.Labelled) for row in usable]
    lines = derived(rows, {row["id"]: (row["licence"], row["commit"]) for row in usable})
    write(lines, sorted(readable([learn.case(rows[0])])))
    print(json.dumps({"messages": len(joined), "usable": len(lines), "owners": len({r.owner for r in rows})}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
