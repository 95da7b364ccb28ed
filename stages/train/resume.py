"""Micro-checkpoints: a killed run goes on from its last optimizer step, with the same result.

In the run's scratch folder (kept between attempts with the same fingerprint, removed on success):

    scores.sealed        logprobs of the batch's tokens under parent and anchor: with the checkpoint at hand,
                         the tokens can be read off them, so they are encrypted as the tokens are
    step-N/              trained weights and Adam moments after N steps, as torch.distributed.checkpoint
                         writes them (every process its shards), and about.json: what was logged so far

Both appear whole, by write, fsync, rename. Steps carry the digest of the batch, scores open with a key that
is made of it; of another batch they are ignored. Scores are as large as the batch: they go to their file and
come from it in small pieces, as the memory is the models'. A step is read by another number of processes
than wrote it. Float32 throughout: what is read back is bit for bit what was written.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from cursorbench.files import sync
from stages import faults, interrupts
from stages.train import ranks
from stages.vault_files import aesgcm
from stages.vault_writing import NONCE

SCORES = "scores.sealed"
_UNSEALED = "scores.safetensors"
STEP = "step"
ABOUT = "about.json"
_PIECE = 1 << 22  # bytes that are encrypted at once: as much of the scores is in memory twice
_LENGTH = 8  # bytes that tell how long the head is
_TAG = 16  # bytes of AES-GCM's


def save(path: Path, key: bytes, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Replace the file `path` atomically and durably, encrypted. `about` is small JSON kept with them."""
    name = path.name.partition(".")[0]
    temporary = path.with_name(f".{path.name}.tmp")
    faults.point(f"train.{name}.write.before")
    kinds = {name: [str(value.dtype), list(value.shape)] for name, value in tensors.items()}
    head = json.dumps([kinds, about], sort_keys=True).encode()
    sizes = [_LENGTH, len(head), *(value.nbytes for _, value in sorted(tensors.items()))]
    total = sum(size + -(-size // _PIECE) * (NONCE + _TAG) for size in sizes)
    with temporary.open("wb") as file:
        _seal(file, key, total, len(head).to_bytes(_LENGTH))
        _seal(file, key, total, head)
        for _, value in sorted(tensors.items()):
            _seal(file, key, total, _bytes_of(value.detach().cpu().contiguous()))
    faults.point(f"train.{name}.fsync.before")
    sync(temporary)
    faults.point(f"train.{name}.rename.before")
    temporary.replace(path)
    sync(path.parent)
    faults.point(f"train.{name}.rename.after")


def load(path: Path, key: bytes) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """(tensors, about) of a file that was saved with this key; None when there is none.

    A file that cannot be read is none: it only saves time.
    """
    from cryptography.exceptions import InvalidTag

    tensors: dict[str, Tensor] = {}
    try:
        with path.open("rb") as file:
            total = os.fstat(file.fileno()).st_size
            _open(file, key, total, length := bytearray(_LENGTH))
            _open(file, key, total, head := bytearray(int.from_bytes(length)))
            kinds, about = json.loads(head)
            for name, (dtype, shape) in sorted(kinds.items()):
                tensors[name] = torch.empty(shape, dtype=getattr(torch, dtype.removeprefix("torch.")))
                _open(file, key, total, _bytes_of(tensors[name]))
    except (OSError, InvalidTag, ValueError):
        return None
    return tensors, about


def remove_unsealed(store_dir: Path) -> None:
    """Remove the scores that a version before kept in the clear, in the scratch folders of all runs."""
    for left in (store_dir / "scratch").glob(f"*/*{_UNSEALED}*"):  # one that was being written is among them
        left.unlink(missing_ok=True)


def _bytes_of(value: Tensor) -> memoryview:
    """The memory of a contiguous tensor on the CPU, not a copy of it."""
    return memoryview(value.reshape(-1).view(torch.uint8).numpy())


def _seal(file: BinaryIO, key: bytes, total: int, plain: bytes | memoryview) -> None:
    """Piece by piece, so that there is no second copy of it all; each is bound to its place in the file."""
    for start in range(0, len(plain), _PIECE):
        nonce, place = os.urandom(NONCE), f"{file.tell()}/{total}".encode()
        file.write(nonce)
        file.write(aesgcm(key).encrypt(nonce, plain[start : start + _PIECE], place))


def _open(file: BinaryIO, key: bytes, total: int, plain: bytearray | memoryview) -> None:
    """Fill `plain` with what `_seal` sealed here. Raises InvalidTag, or ValueError, when it is not that."""
    for start in range(0, len(plain), _PIECE):
        place, size = f"{file.tell()}/{total}".encode(), min(_PIECE, len(plain) - start)
        nonce = file.read(NONCE)
        plain[start : start + size] = aesgcm(key).decrypt(nonce, file.read(size + _TAG), place)


def save_step(scratch: Path, number: int, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Write `step-<number>` and remove those before it. Every rank calls it, with its shards."""
    from torch.distributed.checkpoint import FileSystemWriter
    from torch.distributed.checkpoint import save as save_shards

    partial, path = scratch / f".{STEP}.partial", scratch / f"{STEP}-{number}"
    faults.point("train.step.write.before")
    if ranks.is_first():
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        (partial / ABOUT).write_text(json.dumps(about, sort_keys=True), encoding="utf-8")
        sync(partial / ABOUT)
    ranks.meet()
    values = {name: value.detach() for name, value in tensors.items()}
    try:
        with interrupts.heeded(), _quiet_alone(), _own_errors():
            writer = FileSystemWriter(partial, sync_files=True)
            save_shards(values, storage_writer=writer, no_dist=ranks.count() == 1)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)  # it filled the disk, on which the gateway has to record
        raise
    if ranks.is_first():
        faults.point("train.step.fsync.before")
        sync(partial)
        faults.point("train.step.rename.before")
        shutil.rmtree(path, ignore_errors=True)  # of another batch
        partial.rename(path)
        sync(scratch)
        faults.point("train.step.rename.after")
        for other in _steps(scratch):
            if other != path:
                shutil.rmtree(other, ignore_errors=True)
    ranks.meet()


def load_step(scratch: Path, batch: str, into: Mapping[str, Tensor]) -> dict[str, Any] | None:
    """Fill `into` (in place) from the last step saved for this batch digest; what was said `about` it.

    None, and `into` is not to be used, when there is none. One that cannot be read is none. Every rank
    calls it; all get the same answer.
    """
    chosen = ranks.told(_last(scratch, batch) if ranks.is_first() else None)
    if chosen is None:
        return None
    path, about = chosen
    read = ranks.gathered(_read(path, into))
    return about if all(read) else None


def _read(path: Path, into: Mapping[str, Tensor]) -> bool:
    from torch.distributed.checkpoint import FileSystemReader
    from torch.distributed.checkpoint import load as load_shards
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        with interrupts.heeded(), _quiet_alone():
            load_shards(dict(into), storage_reader=FileSystemReader(path), no_dist=ranks.count() == 1)
    except (OSError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError, CheckpointException):
        return False
    return True


@contextmanager
def _quiet_alone() -> Iterator[None]:
    """A single process is what is meant, and needs no warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        yield


@contextmanager
def _own_errors() -> Iterator[None]:
    """A full disk is the OSError that some rank met, not what wraps it."""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        yield
    except CheckpointException as error:
        for failure in error.failures.values():
            met: BaseException | None = failure[0]
            while met is not None:  # torch's zip writer fails once more at its end, and wraps what it met
                if isinstance(met, OSError):
                    raise met from error
                met = met.__cause__ or met.__context__
        raise RuntimeError(f"a micro-checkpoint was not written: {error}") from error


def _last(scratch: Path, batch: str) -> tuple[Path, dict[str, Any]] | None:
    for path in _steps(scratch):
        try:
            about: dict[str, Any] = json.loads((path / ABOUT).read_bytes())
        except (OSError, ValueError):
            continue
        if about.get("batch") == batch:
            return path, about
    return None


def _steps(scratch: Path) -> list[Path]:
    """The folders of steps, the last one first."""
    found = [path for path in scratch.glob(f"{STEP}-*") if path.name[len(STEP) + 1 :].isdigit()]
    return sorted(found, key=lambda path: -int(path.name[len(STEP) + 1 :]))
