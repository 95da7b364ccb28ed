"""Parquet files of artifacts: written in row groups as rows come, read with their checksums checked.

For interactions and experience. Damage is an IntegrityError (exit 12) that names the file and says
what to do, never a traceback of the reader. Not for: what the columns mean (`stages/schemas.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq

from stages.errors import IntegrityError
from stages.schemas import part_name

ROW_GROUP_ROWS = 65_536
ROW_GROUP_BYTES = 32 << 20
_HINT = "the file is damaged: `rtrl verify --full` says which artifacts are; make it again from its inputs"


class TableWriter:
    """One Parquet file, written row group by row group; memory is bounded by one row group.

    zstd for everything but `sealed`, which is ciphertext. Pages carry checksums.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        plain = [name for name in schema.names if name == "sealed"]
        self._schema = schema
        self._writer = pq.ParquetWriter(
            path,
            schema,
            compression={name: "NONE" if name in plain else "ZSTD" for name in _leaves(schema)},
            use_dictionary=[leaf for leaf in _leaves(schema) if leaf not in plain],
            write_statistics=False,
            write_page_checksum=True,
        )
        self._pending: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0
        self.rows = 0

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add rows; columns in the schema's order and types."""
        for part in batch.to_batches() if isinstance(batch, pa.Table) else [batch]:
            self._pending.append(part)
            self._rows += part.num_rows
            self._bytes += part.nbytes
            self.rows += part.num_rows
            if self._rows >= ROW_GROUP_ROWS or self._bytes >= ROW_GROUP_BYTES:
                self._flush()

    def close(self) -> None:
        """Write what is pending and the footer."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._pending:
            table = pa.Table.from_batches(self._pending, schema=self._schema)
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))
            self._pending, self._rows, self._bytes = [], 0, 0

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()


def write(path: Path, table: pa.Table) -> int:
    """Write a whole table; returns its number of rows."""
    with TableWriter(path, table.schema) as writer:
        writer.write(table)
    return writer.rows


def read(path: Path, schema: pa.Schema, columns: Sequence[str] | None = None) -> pa.Table:
    """The named columns (default all) of a Parquet file.

    Raises:
        IntegrityError: the file is missing, damaged, or its columns are not those of `schema`.
    """
    with _open(path, schema) as file, _damage(path):
        return file.read(columns=list(columns) if columns is not None else None)


def batches(
    path: Path, schema: pa.Schema, columns: Sequence[str] | None = None, rows: int = 4096
) -> Iterator[pa.RecordBatch]:
    """The same in batches of at most `rows` rows, so that one row group at most is in memory."""
    with _open(path, schema) as file:
        iterator = file.iter_batches(batch_size=rows, columns=list(columns) if columns is not None else None)
        while True:
            with _damage(path):
                batch = next(iterator, None)
            if batch is None:
                return
            yield batch


def parts(folder: Path) -> list[Path]:
    """The part folders of an interactions artifact, in capture order. Raises IntegrityError on a gap."""
    found = sorted(path for path in folder.glob("part-*") if path.is_dir())
    if [path.name for path in found] != [part_name(n) for n in range(len(found))]:
        raise IntegrityError(f"{folder} lacks one of its parts", hint=_HINT)
    return found


def names(path: Path) -> list[str]:
    """Its columns, from the footer."""
    with _open(path, pa.schema([])) as file:
        return list(file.schema_arrow.names)


@contextmanager
def _open(path: Path, schema: pa.Schema) -> Iterator[pq.ParquetFile]:
    if not path.is_file():
        raise IntegrityError(f"{path.name} is missing from {path.parent}", hint=_HINT)
    with _damage(path):
        file = pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False)
        found = file.schema_arrow
    with file:
        for field in schema:
            index = found.get_field_index(field.name)
            if index < 0 or found.field(index).type != field.type:
                raise IntegrityError(
                    f"{path} has no column {field.name} of type {field.type}",
                    hint="written by another version, or damaged (`rtrl verify --full` tells): make it again",
                )
        yield file


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise IntegrityError(f"{path} cannot be read: {error}", hint=_HINT) from error


def _leaves(schema: pa.Schema) -> list[str]:
    """Column paths as Parquet names them (`spans.list.element.start`)."""
    return [leaf for field in schema for leaf in _paths(field.name, field.type)]


def _paths(prefix: str, kind: pa.DataType) -> list[str]:
    if pa.types.is_map(kind):
        return [
            *_paths(f"{prefix}.key_value.key", kind.key_type),
            *_paths(f"{prefix}.key_value.value", kind.item_type),
        ]
    if pa.types.is_list(kind):
        return _paths(f"{prefix}.list.element", kind.value_type)
    if pa.types.is_struct(kind):
        return [leaf for field in kind for leaf in _paths(f"{prefix}.{field.name}", field.type)]
    return [prefix]
