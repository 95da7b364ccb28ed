"""What a line remembers of the episodes it was trained on: enough, and no more with every cycle."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.consumed import KEPT, consumed_among, generation_of, listed_from, reach, write_consumed
from stages.errors import IntegrityError
from stages.linestate import LineState
from stages.stage import Artifact
from tests.stages.world import consumed_episodes


def checkpoint(generation: int | None) -> Artifact:
    meta = {} if generation is None else {"generation": generation}
    return Artifact("checkpoint", f"sha256:{generation}", 1, "auto", 0, "", "run", meta, Path("/no"))


def update(folder: Path, before: Path | None, generation: int, ids: list[str], max_lag: int = 1) -> LineState:
    """The line state of the child, as `train` writes it."""
    since = listed_from(checkpoint(generation), max_lag)
    folder.mkdir()
    write_consumed(folder, ids, generation=generation, before=before, since=since)
    known = LineState.load(before).consumed_from if before is not None else 0
    state = LineState(consumed_from=max(known, since))
    state.save(folder)
    return state


def test_of_a_new_line_there_is_nothing_and_damage_is_found(tmp_path: Path) -> None:
    assert consumed_among(tmp_path, ["a"]) == set()
    write_consumed(tmp_path, ["a", "b", "a"], generation=3)
    assert consumed_among(tmp_path, ["b", "c"]) == {"b"}
    path = tmp_path / "consumed.parquet"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(IntegrityError, match=r"consumed\.parquet cannot be read"):
        consumed_among(tmp_path, ["a"])
    with pytest.raises(IntegrityError, match=r"consumed\.parquet cannot be read"):
        write_consumed(tmp_path / "..", ["a"], generation=4, before=tmp_path)


def test_a_line_begins_with_nothing_before_it(tmp_path: Path) -> None:
    """A root has no generation, and a line state of before the first update no file."""
    assert generation_of(checkpoint(None)) == listed_from(checkpoint(None), 1) == 0
    first = tmp_path / "first"
    first.mkdir()
    write_consumed(first, ["a"], generation=0, before=tmp_path)
    assert consumed_episodes(first) == {"a"}
    assert (
        reach(LineState(consumed_from=12), checkpoint(11), 5) == 0
    )  # all of it is older than what is listed


def test_the_same_ids_give_the_same_bytes(tmp_path: Path) -> None:
    for name, ids in (("one", ["b", "a"]), ("two", ["a", "b", "b"])):
        (tmp_path / name).mkdir()
        write_consumed(tmp_path / name, ids, generation=0)
    one, two = (tmp_path / name / "consumed.parquet" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


def test_a_line_of_many_cycles_lists_the_last_ones(tmp_path: Path) -> None:
    before: Path | None = None
    for generation in range(KEPT + 12):
        folder = tmp_path / str(generation)
        state = update(folder, before, generation, [f"e{generation}"])
        before = folder
    assert consumed_episodes(folder) == {f"e{n}" for n in range(12, KEPT + 12)}
    assert state.consumed_from == 12
    child = checkpoint(KEPT + 12)
    assert [reach(state, child, lag) for lag in (1, KEPT, KEPT + 1, 100)] == [1, KEPT, KEPT, KEPT]


def test_a_larger_max_lag_lists_as_many_and_reaches_them_bit_by_bit(tmp_path: Path) -> None:
    before: Path | None = None
    for generation in range(40):
        folder = tmp_path / str(generation)
        state = update(folder, before, generation, [f"e{generation}"], 1 if generation < 20 else 12)
        before = folder
        if generation == 21:
            assert reach(state, checkpoint(22), 12) == 22 - 12  # from 12 on all were listed at 20
    assert consumed_episodes(folder) == {f"e{n}" for n in range(28, 40)}
    assert reach(state, checkpoint(40), 12) == 12


def test_files_of_before_are_kept_for_as_long_as_what_came_last(tmp_path: Path) -> None:
    old = tmp_path / "old"
    LineState().save(old)
    pq.write_table(pa.table({"episode_id": ["x", "y"]}), old / "consumed.parquet")
    assert consumed_among(old, ["x", "z"]) == {"x"}
    before = old
    for generation in range(30, 30 + KEPT):
        assert consumed_among(before, ["x", "y"]) == {"x", "y"}
        folder = tmp_path / str(generation)
        update(folder, before, generation, [f"e{generation}"])
        before = folder
    assert consumed_episodes(folder) == {f"e{n}" for n in range(30, 30 + KEPT)}


@settings(max_examples=20)
@given(st.data())
def test_nothing_that_can_be_taken_is_taken_twice(data: st.DataObject) -> None:
    """Rejected candidates, rollbacks, a `max_lag` that changes: beside a line that forgets nothing."""
    parents: list[int | None] = [None]  # of each checkpoint
    generations, consumed = [0], [set[str]()]
    sampled: list[tuple[str, int]] = []  # episode, its sampler
    live = 0

    def up(number: int) -> list[int]:
        path = [number]
        while (above := parents[path[-1]]) is not None:
            path.append(above)
        return path

    def distance(one: int, other: int) -> int:
        a, b = up(one), up(other)
        common = len(set(a) & set(b))
        return len(a) + len(b) - 2 * common

    with TemporaryDirectory() as root:
        folders: list[Path] = [Path(root) / "0"]
        LineState().save(folders[0])
        for step in range(data.draw(st.integers(KEPT + 2, 2 * KEPT + 4))):
            by = data.draw(st.sampled_from([live, *range(max(0, len(parents) - 3), len(parents))]))
            sampled += [(f"e{step}-{n}", by) for n in range(2)]
            state = LineState.load(folders[live])
            for max_lag in (1, 2, KEPT + 3):
                far = reach(state, checkpoint(generations[live]), max_lag)
                near = [episode for episode, sampler in sampled if distance(sampler, live) <= far]
                listed = consumed_among(folders[live], near)
                assert listed == consumed[live] & set(near)
            fresh = sorted(set(near) - listed)
            new = set(fresh[:: data.draw(st.integers(1, 3))])
            max_lag = data.draw(st.sampled_from([1, 1, 2, KEPT + 3]))
            folder = Path(root) / str(len(parents))
            update(folder, folders[live], generations[live], sorted(new), max_lag)
            folders.append(folder)
            parents.append(live)
            generations.append(generations[live] + 1)
            consumed.append(consumed[live] | new)
            kind = data.draw(st.sampled_from(["promote"] * 6 + ["reject", "rollback"]))
            above = parents[live]
            if kind == "promote":
                live = len(parents) - 1
            elif kind == "rollback" and above is not None:
                live = above
