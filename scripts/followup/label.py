"""Join messages with two readings and the adjudication.

    label.py CANDIDATES --readings A.tsv B.tsv --out FILE [--ids]

CANDIDATES is what extract.py wrote; a reading has the columns id, label, rule without a header, one line a
message. Where the two differ, `adjudicated.tsv` decides. Writes one JSON line a message that both have read,
in the order of ids, or with `--ids` a TSV without texts. Prints Cohen's kappa and the annotators' mutual F1
as JSON. Texts are redacted again here.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import msgspec

from cursorbench.errors import UsageError
from followup import texts
from followup.batches import read
from followup.candidates import Candidate

ADJUDICATED = Path(__file__).resolve().parent / "adjudicated.tsv"
IDS = ("id", "repository", "licence", "commit", "a", "b", "label", "rule")


def reading(path: Path) -> dict[str, tuple[str, str]]:
    """(label, rule) by id."""
    with path.open(encoding="utf-8", newline="") as file:
        return {row[0]: (row[1], row[2]) for row in csv.reader(file, delimiter="\t") if row}


def adjudication(path: Path = ADJUDICATED) -> dict[str, tuple[str, str]]:
    """(label, rule) by id of what the readers disagreed on."""
    with path.open(encoding="utf-8", newline="") as file:
        return {row["id"]: (row["label"], row["rule"]) for row in csv.DictReader(file, delimiter="\t")}


def joined(
    rows: list[Candidate],
    a: dict[str, tuple[str, str]],
    b: dict[str, tuple[str, str]],
    decided: dict[str, tuple[str, str]],
) -> list[dict[str, str]]:
    """The messages both have read, by id. Raises UsageError when a disagreement is not decided."""
    found = []
    for row in sorted(rows, key=lambda row: row.id):
        if row.id not in a or row.id not in b:
            continue
        label, rule = a[row.id]
        if label != b[row.id][0]:
            if row.id not in decided:
                raise UsageError(f"{row.id} is not adjudicated", hint=f"add it to {ADJUDICATED.name}")
            label, rule = decided[row.id]
        told = {name: getattr(row, name) for name in ("repository", "licence", "commit", "source", "agent")}
        said = {name: texts.mask(getattr(row, name)) for name in ("request", "answer_end", "message")}
        judged = {"a": a[row.id][0], "b": b[row.id][0], "label": label, "rule": rule}
        found.append({"id": row.id, **told, **said, **judged, "between": msgspec.to_builtins(row.between)})
    return found


def kappa(pairs: list[tuple[str, str]]) -> float:
    """Cohen's kappa of two readers: (observed - chance) / (1 - chance)."""
    n = len(pairs)
    same = sum(one == other for one, other in pairs) / n
    values = {value for pair in pairs for value in pair}
    chance = sum(
        sum(p[0] == value for p in pairs) / n * (sum(p[1] == value for p in pairs) / n) for value in values
    )
    return (same - chance) / (1 - chance) if chance < 1 else 1.0


def mutual_f1(pairs: list[tuple[str, str]]) -> float:
    """F1 of "1" of one reader against the other; the same either way."""
    both = sum(pair == ("1", "1") for pair in pairs)
    return 2 * both / max(1, sum(value == "1" for pair in pairs for value in pair))


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description="join messages with two readings and the adjudication")
    parser.add_argument("candidates", type=Path, help="what extract.py wrote")
    parser.add_argument("--readings", type=Path, nargs=2, required=True, metavar="TSV")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ids", action="store_true", help="write a TSV without texts")
    given = parser.parse_args()
    one, other = map(reading, given.readings)
    rows = joined(read(given.candidates), one, other, adjudication())
    if given.ids:
        lines = ["\t".join(IDS), *("\t".join(row[name] for name in IDS) for row in rows)]
        given.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        given.out.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    pairs = [(row["a"], row["b"]) for row in rows]
    usable = [pair for pair in pairs if "unusable" not in pair]
    told = {
        "messages": len(rows),
        "usable": sum(row["label"] != "unusable" for row in rows),
        "dissatisfied": sum(row["label"] == "1" for row in rows),
        "kappa": round(kappa(usable), 4),
        "mutual_f1": round(mutual_f1(usable), 4),
        "adjudicated": sum(one != other for one, other in pairs),
    }
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
