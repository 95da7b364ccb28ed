"""Micro-checkpoints: a killed run goes on from its last optimizer step, with the same result.

In the run's scratch folder (kept between attempts with the same fingerprint, removed on success):

    scores.sealed        logprobs of the batch's tokens under parent and anchor: with the checkpoint at hand,
                         the tokens can be read off them, so they are encrypted as the tokens are
    step-N/              trained weights and Adam moments after N steps, as torch.distributed.checkpoint
                         writes them (every process its shards), and about.json: what was logged so far

Both appear whole, by write, fsync, rename. Steps carry the digest of the batch, scores open with a key that
is made of it; of another batch they are ignored. A step is read by another number of processes than wrote
it. Float32 throughout: what is read back is bit for bit what was written.
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
from typing import Any

from torch import Tensor

from stages import faults, interrupts
from stages.train import ranks
from stages.vault_files import aesgcm
from stages.vault_writing import NONCE

SCORES = "scores.sealed"
_UNSEALED = "scores.safetensors"
STEP = "step"
ABOUT = "about.json"
_PIECE = 1 << 30  # bytes that are encrypted at once
_TAG = 16  # bytes of AES-GCM's


def save(path: Path, key: bytes, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Replace the file `path` atomically and durably, encrypted. `about` is small JSON kept with them."""
    from safetensors.torch import save as packed

    name = path.name.partition(".")[0]
    temporary = path.with_name(f".{path.name}.tmp")
    faults.point(f"train.{name}.write.before")
    values = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
    plain = json.dumps(about, sort_keys=True).encode() + b"\n" + packed(values)
    with temporary.open("wb") as file:
        file.writelines(_sealed(plain, key))
    faults.point(f"train.{name}.fsync.before")
    _fsync(temporary)
    faults.point(f"train.{name}.rename.before")
    temporary.replace(path)
    _fsync(path.parent)
    faults.point(f"train.{name}.rename.after")


def load(path: Path, key: bytes) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """(tensors, about) of a file that was saved with this key; None when there is none.

    A file that cannot be read is none: it only saves time.
    """
    from cryptography.exceptions import InvalidTag
    from safetensors.torch import load as unpacked

    try:
        plain = _opened(path.read_bytes(), key)
    except (OSError, InvalidTag, ValueError):
        return None
    about, _, tensors = plain.partition(b"\n")
    return unpacked(tensors), json.loads(about)


def remove_unsealed(store_dir: Path) -> None:
    """Remove the scores that a version before kept in the clear, in the scratch folders of all runs."""
    for left in (store_dir / "scratch").glob(f"*/*{_UNSEALED}*"):  # one that was being written is among them
        left.unlink(missing_ok=True)


def _sealed(plain: bytes, key: bytes) -> Iterator[bytes]:
    """Piece by piece, as AES-GCM takes less than 2 GiB at once; each is bound to its place among them all."""
    for start in range(0, len(plain), _PIECE):
        nonce, place = os.urandom(NONCE), f"{start}/{len(plain)}".encode()
        yield nonce + aesgcm(key).encrypt(nonce, plain[start : start + _PIECE], place)


def _opened(data: bytes, key: bytes) -> bytes:
    """What `_sealed` sealed. Raises InvalidTag, or ValueError, when it is not that, and all of it."""
    if not data:
        raise ValueError("an empty file")
    whole = NONCE + _PIECE + _TAG
    total = len(data) - -(-len(data) // whole) * (NONCE + _TAG)
    return b"".join(
        aesgcm(key).decrypt(
            data[at : at + NONCE], data[at + NONCE : at + whole], f"{number * _PIECE}/{total}".encode()
        )
        for number, at in enumerate(range(0, len(data), whole))
    )


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
        _fsync(partial / ABOUT)
    ranks.meet()
    values = {name: value.detach() for name, value in tensors.items()}
    with interrupts.heeded(), _quiet_alone(), _own_errors():
        writer = FileSystemWriter(partial, sync_files=True)
        save_shards(values, storage_writer=writer, no_dist=ranks.count() == 1)
    if ranks.is_first():
        faults.point("train.step.fsync.before")
        _fsync(partial)
        faults.point("train.step.rename.before")
        shutil.rmtree(path, ignore_errors=True)  # of another batch
        partial.rename(path)
        _fsync(scratch)
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


def _fsync(path: Path) -> None:
    """Of a file or a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
