"""Train the text model of `dissatisfied_followup` and write it: `python scripts/followup/train.py`.

Reads the shipped messages, the features of fetched ones, the written ones and the priors, writes
`stages/distill/signals/followup/model.json` with recipe and digests of the data. The same data give the
same weights. Takes seconds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import msgspec

from followup import fetched, learn
from stages.distill.signals.followup.model import Model

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "stages/distill/signals/followup/model.json"
PATTERNS = MODEL.parent / "patterns.toml"


def digests() -> dict[str, str]:
    """sha256 of each file that the weights follow from."""
    files = (
        learn.DATA,
        learn.WRITTEN,
        learn.PRIORS,
        fetched.FILE,
        PATTERNS,
        MODEL.parent / "features.py",
        MODEL.parent / "patterns.py",
    )
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def trained() -> Model:
    """The model that the data in this tree give."""
    known = fetched.corpus()
    return learn.model(known.examples, learn.written(), [row.owner for row in known.rows], digests())


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description="train the text model of dissatisfied_followup")
    parser.add_argument("--out", type=Path, default=MODEL)
    given = parser.parse_args()
    model = trained()
    given.out.write_bytes(msgspec.json.format(msgspec.json.encode(model), indent=1) + b"\n")
    told = {"features": len(model.readable), "ngrams": len(model.ngrams), "threshold": model.threshold}
    print(json.dumps({**told, "slope": model.slope, "intercept": model.intercept}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
