from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.errors import UsageError
from stages.registry.canonical import canonical, digest, plain

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=20,
)


def test_one_text_by_hand() -> None:
    assert canonical({"b": [1, 2.5, None], "a": "ü"}) == '{"a":"ü","b":[1,2.5,null]}'
    # printf '{"a":1}' | sha256sum
    assert digest({"a": 1}) == "sha256:015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"


@given(JSON)
def test_reads_back_to_the_same_value_and_text(value: object) -> None:
    text = canonical(value)
    assert json.loads(text) == value
    assert canonical(json.loads(text)) == text


@given(st.dictionaries(st.text(), st.integers(), min_size=2))
def test_the_order_of_keys_does_not_matter(value: dict[str, int]) -> None:
    assert canonical(dict(reversed(value.items()))) == canonical(value)


@pytest.mark.parametrize(
    "bad", [float("nan"), float("inf"), {1, 2}, b"x", {1: 2}, Path("x"), object(), np.float32(1.0)]
)
def test_what_could_differ_raises_and_names_its_place(bad: object) -> None:
    with pytest.raises(UsageError, match=r"config\.a\[1\]") as caught:
        canonical({"a": [0, bad]}, what="config")
    assert caught.value.code == 2


def test_plain_is_lenient() -> None:
    assert plain({1: [float("nan"), np.int64(3), Path("x")], "b": (True,)}) == {
        "1": [None, 3, "x"],
        "b": [True],
    }
