"""Routed experts as they are read, kept, checked and joined: by hand, and for any bytes."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages import routing
from stages.errors import IntegrityError
from stages.records import RoutedExperts
from stages.routing import Routing


def sent(rows: Any) -> str:
    """As vLLM encodes it."""
    file = io.BytesIO()
    np.save(file, rows)
    return base64.b64encode(file.getvalue()).decode()


def rows(*values: int) -> np.ndarray:
    """One layer, one expert a token."""
    return np.array(values, np.uint8).reshape(-1, 1, 1)


def test_a_field_by_hand() -> None:
    told = np.array([[[1, 0], [2, 3]], [[0, 3], [1, 2]]], np.int32)
    found = routing.read(sent(told))
    assert found.dtype == np.uint8
    assert found.tolist() == told.tolist()
    wide = routing.read(sent(told * 100))
    assert wide.dtype == np.uint16
    assert wide.tolist() == (told * 100).tolist()
    kept = routing.packed(wide, 1)
    assert kept == RoutedExperts(b"\x00\x00\x2c\x01\x64\x00\xc8\x00", 1, 2, 2, 2)
    assert routing.unpacked(kept).tolist() == [[[0, 300], [100, 200]]]


@pytest.mark.parametrize(
    "field",
    [
        None,
        7,
        "",
        "not base64!",
        base64.b64encode(b"PK\x03\x04").decode(),
        sent(np.zeros((2, 3), np.uint8)),
        sent(np.zeros((2, 0, 1), np.uint8)),
        sent(np.zeros((2, 1, 1), np.float32)),
        sent(np.full((2, 1, 1), -1)),
        sent(np.full((2, 1, 1), 65_536)),
        sent(np.zeros((2, 1, 1), np.uint8))[:-4],
    ],
)
def test_anything_else_is_refused(field: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        routing.read(field)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for head in (b"", b"\x93NUMPY\x01\x00"):
        try:
            rows = routing.read(base64.b64encode(head + data).decode())
        except ValueError:
            continue
        assert rows.ndim == 3
        assert rows.dtype in (np.uint8, np.uint16)


@pytest.mark.parametrize(
    ("kept", "defect"),
    [
        (None, ""),
        (RoutedExperts(bytes(2 * 6), 0, 3, 1, 2), ""),  # 2 rows of 3 layers: tokens 0 and 1 of 3
        (RoutedExperts(bytes(6), 1, 3, 1, 2), ""),  # the base has row 0
        (RoutedExperts(b"", 2, 3, 1, 2), "routed_experts_length"),  # more than the base forwarded
        (RoutedExperts(bytes(6), 0, 3, 1, 2), "routed_experts_length"),
        (RoutedExperts(bytes(3 * 6), 0, 3, 1, 2), "routed_experts_length"),
        (RoutedExperts(bytes(11), 0, 3, 1, 2), "routed_experts_length"),
        (RoutedExperts(bytes(12), 0, 3, 0, 2), "routed_experts_length"),
        (RoutedExperts(bytes(12), 0, 3, 1, 4), "routed_experts_length"),
        (RoutedExperts(bytes(18), -1, 3, 1, 2), "routed_experts_length"),
    ],
)
def test_defects(kept: RoutedExperts | None, defect: str) -> None:
    assert routing.defect(kept, 3, prompt_prefix=2) == defect


def test_rows_of_a_base_are_put_in_front() -> None:
    assert routing.joined(None, rows(1)) is None
    whole = routing.joined(RoutedExperts(bytes([7, 8]), 2, 1, 1, 1), rows(1, 2, 3))
    assert whole is not None
    assert whole.ravel().tolist() == [1, 2, 7, 8]
    for base in (None, rows(1), np.zeros((2, 2, 1), np.uint8)):
        with pytest.raises(IntegrityError, match="extend rows that are not there"):
            routing.joined(RoutedExperts(bytes([7, 8]), 2, 1, 1, 1), base)


@dataclass
class Made:
    id: str
    experts: RoutedExperts | None
    prompt_base: str = ""


def kept(*values: int, first: int = 0) -> RoutedExperts:
    return RoutedExperts(bytes(values), first, 1, 1, 1)


def told(found: Routing | None) -> list[int | None]:
    assert found is not None
    return [int(e) if k else None for e, k in zip(found.experts.ravel(), found.known, strict=True)]


def test_a_chain_by_hand() -> None:
    """3 tokens, then 2 more, then 2 more: each generation's last token is forwarded by the next."""
    a, b, c = Made("a", kept(1, 2)), Made("b", kept(3, 4, first=2), "a"), Made("c", kept(5, 6, first=4), "b")
    records = {each.id: each for each in (a, b, c)}
    assert told(routing.of_chain([a, b, c], records, 7)) == [1, 2, 3, 4, 5, 6, None]
    # the same where b and c are a chain of their own that extends what is not in it
    assert told(routing.of_chain([b, c], records, 7)) == [1, 2, 3, 4, 5, 6, None]


def test_generations_that_do_not_tell_leave_what_no_other_tells_unknown() -> None:
    silent = Made("a", None)
    assert routing.of_chain([silent], {"a": silent}, 3) is None
    last = Made("b", kept(1, 2, 3, 4))  # its base tells nothing: kept in full
    assert told(routing.of_chain([silent, last], {"a": silent, "b": last}, 5)) == [1, 2, 3, 4, None]
    first, then = Made("a", kept(1, 2)), Made("b", None)
    assert told(routing.of_chain([first, then], {}, 5)) == [1, 2, None, None, None]


def test_what_was_forwarded_twice_keeps_its_first_experts() -> None:
    first, again = Made("a", kept(1, 2)), Made("b", kept(8, 9, 3, 4))
    assert told(routing.of_chain([first, again], {}, 5)) == [1, 2, 3, 4, None]


def test_what_extends_nothing_is_refused() -> None:
    with pytest.raises(IntegrityError, match="generation b extend rows that are not there"):
        routing.of_chain([Made("b", kept(1, first=2), "gone")], {}, 4)
    other = Made("b", RoutedExperts(bytes(8), 0, 2, 1, 1))
    with pytest.raises(IntegrityError, match="in one sequence"):
        routing.of_chain([Made("a", kept(1, 2)), other], {}, 5)


def test_where_two_routings_part_by_hand() -> None:
    def of(*values: int | None) -> Routing:
        known = np.array([value is not None for value in values])
        return Routing(rows(*(value or 0 for value in values)), known)

    a = of(1, 2, 3, None)
    assert routing.common_prefix(a, of(1, 2, 3, None, 9), 4) == 4
    assert routing.common_prefix(a, of(1, 5, 3, None), 4) == 1
    assert routing.common_prefix(a, of(1, 2, None, None), 4) == 2
    assert routing.common_prefix(a, of(1, 2, 3, 3), 4) == 3
    assert routing.common_prefix(a, None, 4) == 0
    assert routing.common_prefix(None, of(None, None, 1), 3) == 2
    assert routing.common_prefix(None, None, 4) == 4
