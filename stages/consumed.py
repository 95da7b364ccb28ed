"""Episodes that the ancestry of a checkpoint was trained on: `consumed.parquet` in its line state.

    episode_id  string, each once
    generation  int32, that of the checkpoint from which the update that took the episode began

Not all that there ever were, or a line that takes a million episodes a cycle would have to remember, and to
read each time, a hundred million after three weeks. What is sampled by a checkpoint cannot have been taken
by an update that ended before, and what was sampled farther than `max_lag` from the parent is not taken at
all: so an update older than that has nothing left to say. `LineState.consumed_from` tells the generation from
which on all are listed; from what is farther nothing is taken, should `max_lag` be raised (`reach`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cursorbench.files import write_whole
from stages.errors import IntegrityError

if TYPE_CHECKING:
    import pyarrow

    from stages.linestate import LineState
    from stages.stage import Artifact

CONSUMED_FILE: Final = "consumed.parquet"
KEPT: Final = 8  # generations at least, so that `max_lag` can be raised so far at once
_BATCH = 1 << 20  # rows: for each batch, what is asked for is hashed once


def generation_of(checkpoint: Artifact) -> int:
    """How many updates lie between a checkpoint and the root of its tree."""
    return int(checkpoint.meta.get("generation", 0))


def listed_from(parent: Artifact, max_lag: int) -> int:
    """The oldest generation whose episodes the child of `parent` has to list."""
    return max(0, generation_of(parent) + 1 - max(KEPT, max_lag))


def reach(state: LineState, checkpoint: Artifact, max_lag: int) -> int:
    """`max_lag`, or the largest distance from `checkpoint` at which all that was consumed is listed."""
    if not state.consumed_from:
        return max_lag
    return max(0, min(max_lag, generation_of(checkpoint) - state.consumed_from))


def consumed_among(folder: Path, episode_ids: Iterable[str]) -> set[str]:
    """Those of `episode_ids` that were trained on in the ancestry of the line state in `folder`.

    Raises IntegrityError when its file cannot be read.
    """
    import pyarrow
    import pyarrow.compute as pc

    wanted = pyarrow.array(sorted(set(episode_ids)), type=pyarrow.string())
    found: set[str] = set()
    for ids in _ids(folder / CONSUMED_FILE):
        found.update(ids.filter(pc.is_in(ids, value_set=wanted)).to_pylist())
    return found


def write_consumed(
    folder: Path, episode_ids: Iterable[str], *, generation: int, before: Path | None = None, since: int = 0
) -> None:
    """Write the file of the line state in `folder`. The same ids give the same bytes.

    Args:
        episode_ids: what an update took that began from a checkpoint of `generation`.
        before: the line state before it, whose ids are carried on.
        since: from older generations nothing is.

    Raises IntegrityError when the file before cannot be read.
    """
    import pyarrow
    import pyarrow.compute as pc
    import pyarrow.parquet

    ids = pyarrow.array(sorted(set(episode_ids)), type=pyarrow.string())
    table = _table(ids, generation)
    if before is not None and (before / CONSUMED_FILE).is_file():
        old = _listed(before / CONSUMED_FILE, generation - 1)
        again = pc.is_in(old["episode_id"], value_set=ids)
        kept = old.filter(pc.and_(pc.greater_equal(old["generation"], since), pc.invert(again)))
        table = pyarrow.concat_tables([kept, table])
    table = table.sort_by([("generation", "ascending"), ("episode_id", "ascending")])
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink, compression="zstd", use_dictionary=["generation"])
    write_whole(folder / CONSUMED_FILE, sink.getvalue().to_pybytes())


def _table(ids: pyarrow.Array | pyarrow.ChunkedArray, generation: int) -> pyarrow.Table:
    import pyarrow

    numbers = pyarrow.repeat(pyarrow.scalar(generation, pyarrow.int32()), len(ids))
    return pyarrow.table({"episode_id": ids, "generation": numbers})


def _listed(path: Path, newest: int) -> pyarrow.Table:
    """All rows. Older files do not tell the generation: it was `newest` at most, and is taken for that."""
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
        ids = table["episode_id"]
    except (pyarrow.ArrowException, KeyError) as error:
        raise _damaged(path, error) from error
    if "generation" not in table.column_names:
        return _table(ids, newest)
    return table.select(["episode_id", "generation"])


def _ids(path: Path) -> Iterator[pyarrow.Array]:
    import pyarrow
    import pyarrow.parquet

    if not path.is_file():
        return
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH, columns=["episode_id"]):
                yield batch.column("episode_id")
    except (pyarrow.ArrowException, KeyError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> IntegrityError:
    return IntegrityError(f"{path} cannot be read: {error}", hint="rtrl verify --full")
