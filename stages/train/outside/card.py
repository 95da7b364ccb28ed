"""The card of an export, for people and for `datasets`. Not for: its rows (`layouts.py`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from stages.registry import exports

DATA = "train.parquet"


def dataset_card(manifest: Mapping[str, Any]) -> str:
    """A dataset card: `datasets.load_dataset(folder)` takes the data file from its head."""
    head = {"configs": [{"config_name": "default", "data_files": [{"split": "train", "path": DATA}]}]}
    return (
        f"---\n{json.dumps(head)}\n---\n\n"
        f"# {manifest['experience']['ref']} for {manifest['parent']['ref']}, layout {manifest['layout']}\n\n"
        f"**{manifest['privacy']}**\n\n"
        f'{manifest["rows"]} rows. What the columns are: docs/train.md of rtrl, "A trainer of your own". '
        f"Schema, counts and digests: {exports.MANIFEST}. The trained model comes back with\n\n"
        f"    rtrl train --import DIR --parent {manifest['parent']['ref']} "
        f"--consumed {manifest['experience']['ref']}\n"
    )
