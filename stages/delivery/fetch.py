"""The weights of a checkpoint in a folder of this machine, whole, from a store of deltas.

    CACHE/<digest>/    whole checkpoints, as an engine loads them; the last KEEP that were asked for
    CACHE/tmp-*/       on their way, of whoever holds CACHE's lock; what a kill left the next fetch removes

Only what is not here is fetched: down the chain to the first checkpoint that is. What is here is given
without asking the store, so that going back to an earlier checkpoint needs no network.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cursorbench.files import sync
from stages import locks
from stages.delivery.depot import Depot
from stages.delta import LONGEST, SUFFIX
from stages.delta.file import delta_files
from stages.delta.rebuild import rebuild
from stages.delta.source import DeltaWeights, Weights, WholeWeights
from stages.errors import IntegrityError
from stages.registry.objects import files_of

KEEP = 4  # whole checkpoints: what is served, what was before, and what is coming, with one to spare
WORK = "tmp-"

Link = tuple[str, str | None]  # of a chain: digest and base


@dataclass(frozen=True)
class Fetched:
    """Where the checkpoint is, how many bytes came for it, and how many deltas that was."""

    path: Path
    bytes: int
    links: int


def fetch(url: str, digest: str, cache: Path) -> Fetched:
    """The checkpoint's folder in `cache`. Helpers that share a cache fetch one after the other.

    Raises:
        DependencyDownError (13): it is not here and the store cannot be reached.
        IntegrityError (12): it is not in the store, damaged there, or does not rebuild to its sha256.
    """
    if (found := held(digest, cache)) is not None:
        return found
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locks.occupy(cache).held():
        return held(digest, cache) or _new(url, digest, cache)  # another helper's may have come meanwhile


def held(digest: str, cache: Path) -> Fetched | None:
    """The checkpoint's folder, where it is here: for that nobody waits, whatever the store does."""
    here = cache / digest.removeprefix("sha256:")
    if not here.is_dir():
        return None
    os.utime(here)
    return Fetched(here, 0, 0)


def _new(url: str, digest: str, cache: Path) -> Fetched:
    """One that is not in the cache, which nobody else works in."""
    here = cache / digest.removeprefix("sha256:")
    for left in cache.glob(f"{WORK}*"):
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(dir=cache, prefix=WORK, ignore_cleanup_errors=True) as name:
        work = Path(name)
        whole = work / "whole"
        moved, links = _made(Depot(url), digest, cache, work, whole)
        for path in files_of(whole):
            sync(path)
        whole.rename(here)
    _prune(cache, here)
    return Fetched(here, moved, sum(base is not None for _, base in links))


def _made(depot: Depot, digest: str, cache: Path, work: Path, whole: Path) -> tuple[int, list[Link]]:
    """The wanted checkpoint in `whole`: bytes that came for it, and its links.

    What comes is checked against its digest, what lies here was checked when it came. Where a copy here was
    changed since, the chain is fetched down to its whole checkpoint, and the copy is gone.
    """
    moved, links = _download(depot, digest, work, cache)
    changed = links[-1][1]
    try:
        _put_together(work, links, cache, whole)
    except IntegrityError:
        if changed is None:
            raise
        shutil.rmtree(whole, ignore_errors=True)
        more, below = _download(depot, changed, work)
        moved, links = moved + more, links + below
        _put_together(work, links, cache, whole)
        _remove(cache / changed.removeprefix("sha256:"))
    return moved, links


def _download(depot: Depot, digest: str, work: Path, cache: Path | None = None) -> tuple[int, list[Link]]:
    """What is not in `cache`: bytes, and the links of the chain, the wanted one first."""
    links: list[Link] = []
    moved, wanted = 0, digest
    while True:
        manifest = depot.manifest(wanted)
        moved += depot.get(wanted, manifest, work / wanted.removeprefix("sha256:"))
        base = manifest.get("base")
        links.append((wanted, base))
        if base is None or (cache is not None and (cache / base.removeprefix("sha256:")).is_dir()):
            return moved, links
        if len(links) > LONGEST:
            raise IntegrityError(
                f"{digest} is a chain of more than {LONGEST} deltas", hint="publish it whole"
            )
        wanted = base


def _put_together(work: Path, links: list[Link], cache: Path, whole: Path) -> None:
    """The wanted checkpoint's whole folder, from the links downloaded and the one below them."""
    top = work / links[0][0].removeprefix("sha256:")
    bottom, base = links[-1]
    if base is None and len(links) == 1:
        top.rename(whole)
        return
    below = work / bottom.removeprefix("sha256:") if base is None else cache / base.removeprefix("sha256:")
    weights: Weights = WholeWeights(sorted(below.glob("*.safetensors")))
    deltas = [link for link in reversed(links) if link[1] is not None]
    found: DeltaWeights | None = None
    for link, _ in deltas:
        found = DeltaWeights(delta_files(work / link.removeprefix("sha256:")), found or weights)
    assert found is not None
    whole.mkdir()
    rebuild(found, whole)
    for path in files_of(top):
        name = path.relative_to(top)
        if path.suffix != SUFFIX:
            (whole / name).parent.mkdir(parents=True, exist_ok=True)
            path.rename(whole / name)


def _prune(cache: Path, keep: Path) -> None:
    """Remove the checkpoints that were asked for longest ago."""
    folders = [path for path in cache.iterdir() if path.is_dir() and not path.name.startswith(WORK)]
    folders.sort(key=lambda path: (path == keep, path.stat().st_mtime), reverse=True)
    for old in folders[KEEP:]:
        _remove(old)


def _remove(old: Path) -> None:
    """A checkpoint from the cache; never half of it, also when killed."""
    gone = old.with_name(f"{WORK}{old.name}")
    old.rename(gone)
    shutil.rmtree(gone)
