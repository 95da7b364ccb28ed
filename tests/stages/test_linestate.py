from pathlib import Path

import pytest

from stages.consumed import consumed_among, write_consumed
from stages.errors import IntegrityError
from stages.linestate import Baseline, LineState


def test_state_survives_a_round_trip(tmp_path: Path) -> None:
    state = LineState(
        baselines={"sha256:a": {"*": Baseline(0.25, 12.0), "rename": Baseline(-1.0, 3.5)}},
        stabiliser={"dual": 0.1},
        latency={"k": [1.0, 2.0]},
    )
    state.save(tmp_path)
    assert LineState.load(tmp_path) == state
    assert not list(tmp_path.glob(".*.tmp"))


def test_saving_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    LineState(monitors={"b": 1, "a": 2}).save(tmp_path / "x")
    LineState(monitors={"a": 2, "b": 1}).save(tmp_path / "y")
    assert (tmp_path / "x/state.json").read_bytes() == (tmp_path / "y/state.json").read_bytes()


def test_files_are_carried(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    LineState().save(old)
    write_consumed(old, ["e2", "e1", "e2"], generation=0)
    (old / "optimizer.safetensors").write_bytes(b"moments")
    LineState(monitors={"n": 1}).save(new, carry=old)
    assert consumed_among(new, ["e1", "e2", "e3"]) == {"e1", "e2"}
    assert (new / "optimizer.safetensors").read_bytes() == b"moments"
    assert LineState.load(new).monitors == {"n": 1}


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b'{"schema": "rtrl-line-state/9"}', b'{"schema": "rtrl-line-state/1", "baselines": 3}'],
)
def test_a_torn_or_foreign_state_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.json").write_bytes(content)
    with pytest.raises(IntegrityError) as caught:
        LineState.load(tmp_path)
    assert caught.value.code == 12
    assert caught.value.hint


def test_a_missing_state_or_masters_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match=r"no state\.json"):
        LineState.load(tmp_path)
    LineState(masters="masters.safetensors").save(tmp_path)
    with pytest.raises(IntegrityError, match=r"masters\.safetensors"):
        LineState.load(tmp_path)
