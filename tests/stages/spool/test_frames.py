"""Frames: whatever happens to the bytes, what is whole is found and nothing else is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stages.spool import frames

BODIES = st.lists(
    st.one_of(st.binary(max_size=60), st.just(b"rtF1"), st.just(frames.pack(1, 9, b"inner"))), max_size=6
)


def segment(bodies: list[bytes]) -> tuple[bytes, list[int]]:
    """A segment's bytes, and the offset of each frame."""
    data = frames.pack_header(3, 10, 99)
    offsets = []
    for index, body in enumerate(bodies):
        offsets.append(len(data))
        data += frames.pack(1, 10 + index, body)
    return data, offsets


def good(data: bytes) -> list[frames.Frame]:
    return [i for i in frames.scan(data, frames.HEADER.size) if isinstance(i, frames.Frame)]


@given(BODIES)
def test_round_trip(bodies: list[bytes]) -> None:
    data, offsets = segment(bodies)
    found = good(data)
    assert [frame.body for frame in found] == bodies
    assert [frame.offset for frame in found] == offsets
    assert frames.unpack_header(data) == (3, 10, 99)


@given(BODIES, st.integers(0, 1000))
def test_cut_anywhere_the_whole_ones_remain(bodies: list[bytes], cut: int) -> None:
    data, offsets = segment(bodies)
    cut = min(cut, len(data))
    whole = sum(end <= cut for end in [*offsets[1:], len(data)][: len(bodies)])
    items = list(frames.scan(data[:cut], frames.HEADER.size))
    assert [i.body for i in items if isinstance(i, frames.Frame)][:whole] == bodies[:whole]
    bad = [i for i in items if isinstance(i, frames.Bad)]
    assert all(i.tail for i in bad[-1:])


@given(BODIES.filter(lambda b: len(b) > 1), st.data())
def test_a_flipped_byte_costs_one_record(bodies: list[bytes], data: st.DataObject) -> None:
    raw, offsets = segment(bodies)
    place = data.draw(st.integers(frames.HEADER.size, len(raw) - 1))
    broken = bytearray(raw)
    broken[place] ^= 0xFF
    hit = max(i for i, offset in enumerate(offsets) if offset <= place)
    found = {frame.offset for frame in good(bytes(broken))}
    assert set(offsets) - found == {offsets[hit]}


@given(st.binary(max_size=200))
def test_noise_is_no_header_and_scanning_ends(noise: bytes) -> None:
    assert frames.unpack_header(noise) is None
    covered = sum(i.end - i.offset for i in frames.scan(noise, 0))
    assert covered == len(noise)
