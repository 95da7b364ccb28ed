"""Search by meaning: pieces of files as vectors, the nearest to a query's. An option of the task tools.

The index of a tree is kept by the digest of its files; a tree that differs in some files takes the vectors
of the pieces they share. Vectors are in memory, and in a folder when one is given. What is indexed is what
`search` looks at: text files up to a size, no `.git`.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cursorbench.harness.embedders import Embedder
from cursorbench.harness.results import RefusedError
from cursorbench.harness.workplace import Workplace

if TYPE_CHECKING:
    from cursorbench.harness.embedders import Floats

MAX_FILES = 5000
MAX_FILE_BYTES = 256 * 1024
MAX_PIECES = 20_000
PIECE_LINES, OVERLAP = 40, 8
SHOWN, SHOWN_LINES = 8, 12
KEPT_TREES = 8


@dataclass(frozen=True)
class Piece:
    """Some lines of a file; `first` from 1."""

    path: str
    first: int
    text: str

    @property
    def digest(self) -> str:
        """Of what is embedded: the same lines in another file of that name have the same vector."""
        return hashlib.sha256(self._said().encode("utf-8", "replace")).hexdigest()

    def _said(self) -> str:
        return f"{self.path}\n{self.text}"


@dataclass(frozen=True)
class _Tree:
    pieces: tuple[Piece, ...]
    vectors: Floats
    left_out: int


class SemanticIndex:
    """Indexes of trees, for any number of threads.

    Args:
        embedder: texts to vectors.
        folder: where vectors are kept between processes; None for memory only.
    """

    def __init__(self, embedder: Embedder, folder: Path | None = None) -> None:
        self.name = embedder.name
        self._embedder = embedder
        self._folder = folder
        self._lock = threading.Lock()
        self._trees: OrderedDict[str, _Tree] = OrderedDict()

    def search(self, place: Workplace, query: str, left_s: float) -> str:
        """Places that fit the query, the best first. Raises RefusedError (provider, timeout)."""
        deadline = time.monotonic() + left_s
        with self._lock:
            tree = self._tree(place, deadline)
        if not tree.pieces:
            return "no match"
        asked = self._embedder.embed([query])[0]
        scores = tree.vectors @ asked
        best = scores.argsort(kind="stable")[::-1][:SHOWN]
        parts = [_shown(tree.pieces[index], float(scores[index])) for index in best]
        if tree.left_out:
            parts.append(f"[{tree.left_out} files were too many or too large to be looked at]")
        return "\n\n".join(parts)

    def _tree(self, place: Workplace, deadline: float) -> _Tree:
        texts, left_out = _read(place, deadline)
        total = hashlib.sha256(self._embedder.name.encode())
        for path, text in texts.items():
            total.update(f"{path}\0{len(text)}\0{text}".encode("utf-8", "replace"))
        digest = total.hexdigest()
        if digest not in self._trees:
            pieces = tuple(_pieces(texts))
            self._trees[digest] = _Tree(pieces, self._vectors(digest, pieces), left_out)
            if len(self._trees) > KEPT_TREES:
                self._trees.popitem(last=False)
        self._trees.move_to_end(digest)
        return self._trees[digest]

    def _vectors(self, digest: str, pieces: Sequence[Piece]) -> Floats:
        """The pieces' vectors [pieces, dimensions]: those kept for the tree, of other trees, or new."""
        import numpy as np

        kept = self._load(digest, len(pieces))
        if kept is not None:
            return kept
        known = {
            piece.digest: row
            for tree in self._trees.values()
            for piece, row in zip(tree.pieces, tree.vectors, strict=True)
        }
        new = [piece for piece in pieces if piece.digest not in known]
        rows = self._embedder.embed([f"{piece.path}\n{piece.text}" for piece in new])
        known.update(zip((piece.digest for piece in new), rows, strict=True))
        found = (
            np.stack([known[piece.digest] for piece in pieces]) if pieces else np.zeros((0, 1), np.float32)
        )
        self._save(digest, found)
        return found

    def _load(self, digest: str, count: int) -> Floats | None:
        import numpy as np

        if self._folder is None:
            return None
        try:
            found: Floats = np.load(self._folder / f"{digest}.npy", allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None  # not there, or cut short: it is made again
        good = found.ndim == 2 and len(found) == count and found.dtype == np.float32
        return found if good else None

    def _save(self, digest: str, vectors: Floats) -> None:
        """Kept whole or not at all: written beside, then renamed."""
        import numpy as np

        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        beside = self._folder / f".{digest}.{threading.get_ident()}.{time.monotonic_ns()}.npy"
        np.save(beside, vectors, allow_pickle=False)
        beside.replace(self._folder / f"{digest}.npy")


def _read(place: Workplace, deadline: float) -> tuple[dict[str, str], int]:
    """The texts of the tree by path, and how many files were left out. Raises RefusedError (timeout)."""
    paths = place.files()
    left_out = max(0, len(paths) - MAX_FILES)
    texts: dict[str, str] = {}
    for path in paths[:MAX_FILES]:
        if time.monotonic() > deadline:
            raise RefusedError("timeout", "reading the files takes too long")
        try:
            content = place.read(path, MAX_FILE_BYTES)
        except RefusedError as refused:
            left_out += refused.error == "too_large"
            continue
        if b"\0" not in content:
            texts[path] = content.decode("utf-8", "replace")
    return texts, left_out


def _pieces(texts: dict[str, str]) -> Iterator[Piece]:
    """Overlapping runs of lines, at most MAX_PIECES; those without a word are left out."""
    count = 0
    for path, text in texts.items():
        lines = text.splitlines()
        for first in range(0, max(1, len(lines) - OVERLAP), PIECE_LINES - OVERLAP):
            part = "\n".join(line[:400] for line in lines[first : first + PIECE_LINES])
            if part.strip():
                count += 1
                if count > MAX_PIECES:
                    return
                yield Piece(path, first + 1, part)


def _shown(piece: Piece, score: float) -> str:
    lines = piece.text.split("\n")
    head = f"{piece.path}:{piece.first}-{piece.first + len(lines) - 1} ({score:.2f})"
    return "\n".join([head, *lines[:SHOWN_LINES]])
