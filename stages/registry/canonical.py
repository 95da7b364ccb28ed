"""Canonical JSON: one text for one value, so that a digest over it means something.

Raises on whatever could differ between two runs of the same thing: sets, NaN, objects without a
JSON form, keys that are not text. Floats are written with `repr`, the shortest text that reads back
to the same bits. Not for: documents people read.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from stages.errors import UsageError


def _check(value: Any, where: str) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise UsageError(f"{where} is {value!r}, which has no canonical form", hint="use null")
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise UsageError(f"{where} has the key {key!r}; only text can be a key")
        return {key: _check(value[key], f"{where}.{key}") for key in value}
    if isinstance(value, list | tuple):
        return [_check(item, f"{where}[{i}]") for i, item in enumerate(value)]
    raise UsageError(
        f"{where} is a {type(value).__name__}, which has no canonical form",
        hint="use text, numbers, lists and tables; sort sets",
    )


def canonical(value: Any, *, what: str = "value") -> str:
    """Canonical JSON text of `value`: sorted keys, no blanks, UTF-8.

    Raises:
        UsageError: the value is nondeterministic or has no JSON form; names the place.
    """
    return json.dumps(
        _check(value, what), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def in_order(value: Any, *, what: str = "value") -> str:
    """The same with the keys of tables in their own order: for what is shown again as it was, never for a
    digest."""
    return json.dumps(_check(value, what), separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: Any, *, what: str = "value") -> str:
    """`sha256:<hex>` of the canonical text of `value`."""
    return "sha256:" + hashlib.sha256(canonical(value, what=what).encode()).hexdigest()


def plain(value: Any) -> Any:
    """`value` made of JSON's types for a record people read: NaN becomes null, numpy scalars numbers,
    whatever else has no JSON form its text. Never used for what a digest is over."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, str | bytes):
        value = value.item()
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)
