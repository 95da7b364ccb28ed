"""What nobody writes into a log: values of any type anywhere, and changed bytes."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

FEW = settings(
    max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
FINITE = st.floats(allow_nan=False, allow_infinity=False)  # others are no JSON
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def tables(value: Any) -> list[Any]:
    """All tables and lists of a document that have something in them."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return ([value] if inner else []) + [found for one in inner for found in tables(one)]


def retyped(document: Any, data: st.DataObject) -> Any:
    """A copy in which one value, anywhere, is another one."""
    copy = json.loads(json.dumps(document))
    target = data.draw(st.sampled_from(tables(copy)))
    keys = sorted(target) if isinstance(target, dict) else range(len(target))
    target[data.draw(st.sampled_from(keys))] = data.draw(JSON | st.floats(allow_nan=False))
    return copy


def damaged(text: bytes, data: st.DataObject, *, changes: int, least: int = 0) -> bytes:
    """With some bytes changed, and cut off somewhere behind `least`."""
    raw = bytearray(text)
    for _ in range(data.draw(st.integers(0, changes))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    return bytes(raw[: data.draw(st.integers(least, len(raw)))])
