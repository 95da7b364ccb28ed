from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.delta import blocks


@given(st.data(), st.sampled_from([1, 2, 4, 8]), st.integers(1, 300))
def test_every_block_comes_back_whatever_kind_was_smallest(data: st.DataObject, width: int, n: int) -> None:
    base = data.draw(st.binary(min_size=n * width, max_size=n * width))
    child = bytearray(base)
    for place in data.draw(st.lists(st.integers(0, n * width - 1), max_size=n)):
        child[place] = data.draw(st.integers(0, 255))
    kind, payload = blocks.encode(bytes(child), base, width)
    assert (kind == blocks.SAME) == (child == base)
    assert blocks.decode(kind, payload, base, width) == child


def test_each_kind_is_taken_where_it_is_smallest() -> None:
    rng = np.random.default_rng(0)
    base = rng.standard_normal(20_000).astype("<f4")
    few = base.copy()
    few[[3, 70, 19_999]] += 1
    moved = base.view("<u4") + rng.integers(-200, 200, base.size).astype("<u4")
    flipped = base.view("<u4") ^ np.uint32(0x00550055)
    cases = [(base, blocks.SAME), (few, blocks.SPARSE), (moved, blocks.DIFFERENCE), (flipped, blocks.XOR)]
    for child, expected in cases:
        kind, payload = blocks.encode(child.tobytes(), base.tobytes(), 4)
        assert kind == expected
        assert blocks.decode(kind, payload, base.tobytes(), 4) == child.tobytes()
        assert len(payload) < 0.35 * base.nbytes


def test_a_step_across_a_power_of_two_is_a_small_difference() -> None:
    """0x3f7fffff and 0x3f800000 are neighbours: XOR turns 24 bits, the difference is 1, zigzag 2."""
    below, above = (np.array([x], "<u4").tobytes() for x in (0x3F7FFFFF, 0x3F800000))
    difference = np.frombuffer(above, "<u4") - np.frombuffer(below, "<u4")
    assert blocks._zigzag(difference).tolist() == [2]
    assert blocks._zigzag(-difference).tolist() == [1]
    for child, base in ((above, below), (below, above)):
        assert blocks.decode(*blocks.encode(child, base, 4), base, 4) == child


def test_random_bits_cost_no_more_than_themselves() -> None:
    rng = np.random.default_rng(0)
    child, base = rng.bytes(1 << 20), rng.bytes(1 << 20)
    assert len(blocks.encode(child, base, 4)[1]) < 1.001 * len(child)


@given(st.integers(0, 5), st.binary(max_size=60), st.sampled_from([1, 2, 4, 8]))
def test_what_is_no_payload_is_refused_or_decodes_to_a_block(kind: int, payload: bytes, width: int) -> None:
    base = bytes(range(64))
    try:
        assert len(blocks.decode(kind, payload, base, width)) == len(base)
    except blocks.DamagedBlockError:
        return


def test_a_frame_that_claims_another_size_is_refused_before_it_is_unpacked() -> None:
    kind, payload = blocks.encode(bytes(1 << 20), b"\1" * (1 << 20), 1)
    with pytest.raises(blocks.DamagedBlockError, match="another size"):
        blocks.decode(kind, payload, bytes(8), 1)
