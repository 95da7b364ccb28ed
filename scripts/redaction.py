"""What redaction does to real files, and to generated keys: the figures of docs/privacy.md.

    python scripts/redaction.py FOLDER [--json]

Prints masks by kind over all text files of FOLDER (the first 400,000 characters of each), and the share
of random keys found by their looks alone. Prints nothing of the files' content.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import string
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cursorbench.redaction import Redactor, redact

EACH = 400_000
KEYS = 1_000


def over(folder: Path) -> dict[str, Any]:
    """Counts over the text files of a folder."""
    redactor = Redactor()
    characters, began = 0, time.process_time()
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        try:
            text = path.read_text(encoding="utf-8")[:EACH]
        except UnicodeDecodeError:
            continue
        characters += len(text)
        redactor(text)
    seconds = time.process_time() - began
    return {
        **redactor.report(),
        "characters": characters,
        "characters_per_second": round(characters / seconds),
    }


def recall(seed: int = 0) -> dict[str, float]:
    """Share of random keys of each make that is masked without a name before it."""
    rng = random.Random(seed)
    letters = string.ascii_letters + string.digits
    small = string.ascii_lowercase + string.digits

    def of(alphabet: str, length: int) -> Callable[[], str]:
        return lambda: "".join(rng.choices(alphabet, k=length))

    makes: dict[str, Callable[[], str]] = {
        "base62, 20 characters": of(letters, 20),
        "base62, 32 characters": of(letters, 32),
        "base36, 32 characters": of(small, 32),
        "base64 of 32 bytes": lambda: base64.b64encode(rng.randbytes(32)).decode(),
        "base64url of 24 bytes": lambda: base64.urlsafe_b64encode(rng.randbytes(24)).decode(),
    }
    return {
        name: sum(bool(redact(f"it is {make()} here").counts) for _ in range(KEYS)) / KEYS
        for name, make in makes.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = {"files": over(asked.folder), "recall": recall()}
    if asked.json:
        print(json.dumps(found))
        return
    for part, figures in found.items():
        print(part)
        for name, value in figures.items():
            print(f"  {name}  {value}")


if __name__ == "__main__":
    main()
