"""Which experts of a mixture-of-experts model each token went to, as engines report it and as it is kept.

An engine that is told to (vLLM 0.32: `--enable-return-routed-experts`) adds to an answer the experts of
every token it has forwarded: prompt and output but for the last token, which is sampled and never read.
They are kept with the tokens, sealed like them, in as few bytes as the ids need; what a generation's
base already holds is not kept twice. Lengths are checked, never mended.

    rows     [n, layers, top_k], uint8 or uint16; row i is of the token at position first + i
    Routing  the same for a whole sequence of T tokens, with what is not known marked

Not here: running a model with them (`stages/train/routing.py`).
Source: Ma et al. 2025, "Stabilizing MoE Reinforcement Learning by Aligning Training and Inference
Routers" (rollout routing replay), arXiv 2510.11370.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from stages.errors import IntegrityError
from stages.records import RoutedExperts

Experts = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]

LENGTH = "routed_experts_length"
MALFORMED = "routed_experts_malformed"
_WIDTHS = {1: "<u1", 2: "<u2"}


def read(field: object) -> Experts:
    """Rows out of an engine's `routed_experts`: base64 of a .npy file, [n, layers, top_k] integers.

    Raises ValueError for anything else.
    """
    if not isinstance(field, str):
        raise ValueError("not a string")
    data = io.BytesIO(base64.b64decode(field, validate=True))
    rows: npt.NDArray[Any] = np.lib.format.read_array(data, allow_pickle=False)  # type: ignore[no-untyped-call]
    if rows.dtype.kind not in "iu" or rows.ndim != 3 or 0 in rows.shape[1:]:
        raise ValueError("not whole numbers of three dimensions")
    if rows.size and (rows.min() < 0 or rows.max() > np.iinfo(np.uint16).max):
        raise ValueError("expert ids are out of range")
    narrow = not rows.size or rows.max() <= np.iinfo(np.uint8).max
    found: Experts = rows.astype("<u1" if narrow else "<u2", copy=False)
    return found


def packed(rows: Experts, first: int) -> RoutedExperts:
    """What is kept of `rows`, those of all tokens: the rows from position `first` on."""
    width = rows.dtype.itemsize
    data = rows[first:].astype(_WIDTHS[width], copy=False).tobytes()
    return RoutedExperts(data, first, rows.shape[1], rows.shape[2], width)


def unpacked(kept: RoutedExperts) -> Experts:
    """The rows that are kept. Raises IntegrityError when the bytes are not whole rows."""
    size = kept.layers * kept.top_k * kept.width
    if (
        kept.width not in _WIDTHS
        or min(kept.layers, kept.top_k) < 1
        or kept.first < 0
        or len(kept.rows) % size
    ):
        raise IntegrityError("routed experts are cut off inside a token", hint="quarantine the record")
    rows: Experts = np.frombuffer(kept.rows, _WIDTHS[kept.width]).reshape(-1, kept.layers, kept.top_k)
    return rows


def defect(kept: RoutedExperts | None, tokens: int, prompt_prefix: int) -> str:
    """Why what is kept cannot belong to a generation of `tokens` (prompt and output), "" when it can."""
    if kept is None:
        return ""
    try:
        rows = len(unpacked(kept))
    except IntegrityError:
        return LENGTH
    fits = kept.first <= max(prompt_prefix - 1, 0) and kept.first + rows == tokens - 1
    return "" if fits else LENGTH


def joined(kept: RoutedExperts | None, base: Experts | None) -> Experts | None:
    """The rows of all tokens of a generation, from its own and those of all tokens of its base.

    Raises IntegrityError when the base does not hold what is missing.
    """
    if kept is None:
        return None
    rows = unpacked(kept)
    if kept.first == 0:
        return rows
    if base is None or len(base) < kept.first or base.shape[1:] != rows.shape[1:]:
        raise IntegrityError(
            "the routed experts extend rows that are not there", hint="quarantine the record"
        )
    whole: Experts = np.concatenate(
        (base[: kept.first], rows), dtype=np.promote_types(base.dtype, rows.dtype)
    )
    return whole


@dataclass(frozen=True, eq=False)
class Routing:
    """The experts of a sequence's T tokens.

    Attributes:
        experts: [T, layers, top_k].
        known: [T] bool; where it is False the row means nothing. The last token's is never known.
    """

    experts: Experts
    known: npt.NDArray[np.bool_]

    def cut(self, tokens: int) -> Routing:
        """That of the first `tokens` tokens."""
        return Routing(self.experts[:tokens], self.known[:tokens])


class Generation(Protocol):
    """What `of_chain` reads of a generation (`stages.sequences.Record`)."""

    @property
    def id(self) -> str: ...
    @property
    def prompt_base(self) -> str: ...
    @property
    def experts(self) -> RoutedExperts | None: ...


def of_chain(chain: Sequence[Generation], records: Mapping[str, Any], tokens: int) -> Routing | None:
    """The routing of a sequence of `tokens` tokens, None when no generation of it has any.

    A token that several generations forwarded (each reads what the one before wrote) keeps the
    experts it had first. Raises IntegrityError when shapes differ or a base is not there.
    """
    found: Routing | None = None
    for generation in chain:
        end, link = tokens, generation
        while link.experts is not None:
            rows, first = unpacked(link.experts), link.experts.first
            if found is None:
                found = Routing(np.zeros((tokens, *rows.shape[1:]), rows.dtype), np.zeros(tokens, np.bool_))
            found = _filled(found, rows[: max(0, end - first)], first)
            end = min(end, first)
            if end == 0:
                break
            if link.prompt_base not in records or records[link.prompt_base].experts is None:
                raise IntegrityError(
                    f"the routed experts of generation {link.id} extend rows that are not there",
                    hint="run `rtrl verify --full`, then `rtrl collect` again",
                )
            link = records[link.prompt_base]
    return found


def _filled(found: Routing, rows: Experts, first: int) -> Routing:
    if rows.shape[1:] != found.experts.shape[1:]:
        raise IntegrityError(
            f"routed experts of shapes {rows.shape[1:]} and {found.experts.shape[1:]} in one sequence",
            hint="its generations are of different models",
        )
    experts = found.experts.astype(np.promote_types(rows.dtype, found.experts.dtype), copy=False)
    new = np.flatnonzero(~found.known[first : first + len(rows)])
    experts[first + new] = rows[new]
    found.known[first + new] = True
    return Routing(experts, found.known)


def common_prefix(left: Routing | None, right: Routing | None, tokens: int) -> int:
    """How many of the first `tokens` tokens have the same routing in both; None is nowhere known."""
    if left is None and right is None:
        return tokens
    if left is None or right is None:
        known = (left or right).known[:tokens]  # type: ignore[union-attr]
        return int(known.argmax()) if known.any() else tokens
    a, b = left.cut(tokens), right.cut(tokens)
    differ = (a.known != b.known) | (a.known & (a.experts != b.experts).any(axis=(1, 2)))
    return int(differ.argmax()) if differ.any() else tokens


def sort_key(ids: npt.NDArray[np.int32], routing: Routing) -> bytes:
    """Of a sequence: sorted by it, neighbours have most first tokens in common, ids and experts alike."""
    rows = routing.experts.reshape(len(ids), -1).astype(np.uint32) + np.uint32(1)
    factors = np.random.default_rng(0).integers(1, 1 << 32, rows.shape[1], dtype=np.uint32) | np.uint32(1)
    digests = (rows * routing.known[:, None]) @ factors  # modulo 2^32; equal ones cost order, not exactness
    return np.stack([ids.astype(np.uint32), digests], axis=1).astype(">u4").tobytes()
