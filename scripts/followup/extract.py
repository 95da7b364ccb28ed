"""Collect the human follow-up messages of session logs: `extract.py SOURCES.tsv --root DIR --out FILE`.

SOURCES.tsv has a header and the columns folder (below --root), repository, licence, and optionally commit.
Folders under a licence that is not in `PERMISSIVE` are left out and named. Writes a JSON line a message, see
`candidates.Candidate`, and prints what was found and what was left out, as JSON. Texts are masked excerpts.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import msgspec

from cursorbench.errors import InputMissingError, RtrlError, UsageError
from cursorbench.sessions import kinds
from followup.candidates import Candidate, Source, candidates

PERMISSIVE = frozenset({"MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC"})
COLUMNS = ("folder", "repository", "licence")


def sources(path: Path) -> list[Source]:
    """The rows of a list of sources.

    Raises:
        InputMissingError: (exit 5) there is no such file.
        UsageError: (exit 2) a column or a value is missing.
    """
    if not path.is_file():
        raise InputMissingError(
            f"there is no list of sources {path}", hint="see docs/followup.md for its columns"
        )
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    for number, row in enumerate(rows, 2):
        if missing := [name for name in COLUMNS if not row.get(name)]:
            raise UsageError(
                f"{path.name}, line {number}: no {', '.join(missing)}",
                hint="columns, separated by tabs: folder, repository, licence, commit",
            )
    return [Source(**{name: row[name] for name in COLUMNS}, commit=row.get("commit") or "") for row in rows]


def collect(listed: list[Source], root: Path) -> tuple[list[Candidate], dict[str, Any]]:
    """The candidates of all sources under permissive licences, and what was found and left out, by source."""
    found: list[Candidate] = []
    report: dict[str, Any] = {}
    for source in listed:
        if source.licence not in PERMISSIVE:
            report[source.folder] = {"licence_not_permissive": source.licence}
            continue
        left_out: Counter[str] = Counter()
        here = list(candidates(kinds.read(root / source.folder), source, left_out))
        found += here
        report[source.folder] = {
            "repository": source.repository,
            "licence": source.licence,
            "messages": len(here),
            "sessions": len({one.session for one in here}),
            "kinds": dict(Counter(one.kind for one in here)),
            "left_out": dict(left_out),
        }
    return found, report


def write(path: Path, rows: list[Candidate]) -> None:
    """One JSON line each."""
    encoder = msgspec.json.Encoder()
    path.write_bytes(b"".join(encoder.encode(row) + b"\n" for row in rows))


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description="collect the human follow-up messages of session logs")
    parser.add_argument("sources", type=Path, help="list of sources (TSV)")
    parser.add_argument("--root", type=Path, default=Path(), help="where the folders of the list are")
    parser.add_argument("--out", type=Path, required=True, help="file to write (JSON lines)")
    given = parser.parse_args()
    try:
        found, report = collect(sources(given.sources), given.root)
    except RtrlError as error:
        print(f"{error.message}\n{error.hint}", file=sys.stderr)
        return error.code
    write(given.out, found)
    print(json.dumps({"messages": len(found), "sources": report}, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
