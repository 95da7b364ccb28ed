"""The documents of `rtrl_snippets` for lm-eval, read from beside this file wherever one starts it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("rtrl_snippets.jsonl")


def load(**_: Any) -> dict[str, Any]:
    """The documents by split, as lm-eval's `custom_dataset` wants them, held in memory."""
    from datasets import Dataset

    lines = FILE.read_text(encoding="utf-8").splitlines()
    return {"test": Dataset.from_list([json.loads(line) for line in lines])}
