"""Recent requests of the live arm, as exact tokens. In memory only.

Taken newest first, one user after the other, so that a busy user does not stand for everybody. Left out,
and counted by reason: requests without consent (their content was never written), users who were
forgotten, answers that were cut short, tokens that are not exact, and sampling that cannot be asked for
again. Tool results are part of the prompt, as they were. Not for: asking anybody (`replay.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from stages.errors import RtrlError
from stages.populations import Whose
from stages.records import LIVE, Generation, Sampling
from stages.spool import Damage, Spool
from stages.spool.chains import ChainReader
from stages.vault import UserForgottenError, Vault

LOOKED_AT = 50  # records looked at for each that is wanted
CUT = "abort"  # finish reason of an answer that was not let finish


@dataclass(frozen=True, eq=False)
class Recorded:
    """One request; `prompt` are token ids as the engine read them.

    What was answered then is not part of it: under another load, from another prefix cache.
    """

    id: str
    user: str
    prompt: list[int]
    sampling: Sampling
    tools_digest: str


@dataclass
class Found:
    """What was chosen, newest first, and how many were left out, by reason."""

    requests: list[Recorded] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def recent(spool_dir: Path, keys_dir: Path, whose: Whose, wanted: int) -> Found:
    """At most `wanted` of a line's requests that a live arm answered last."""
    found = Found()
    if not spool_dir.is_dir():
        return found
    spool, vault = Spool.open(spool_dir), Vault.open(keys_dir)
    try:
        reader = spool.chains(vault)
        for generation, sealed in _spread(spool, whose, wanted, found.left_out):
            if len(found.requests) >= wanted:
                break
            if opened := _open(reader, generation, sealed, found.left_out):
                found.requests.append(opened)
    finally:
        vault.close()
        spool.close()
    return found


def _spread(
    spool: Spool, whose: Whose, wanted: int, left_out: Counter[str]
) -> Iterator[tuple[Generation, bytes]]:
    """The newest records by turns: each user's last one, then each user's last but one, ..."""
    of_user: dict[str, list[tuple[Generation, bytes]]] = {}
    count = 0
    for row in reversed(spool.segments()):
        rows = list(spool.generations(row.first_seq, row.last_seq, on_damage=_skip))
        for _, generation, sealed in reversed(rows):
            if generation.arm != LIVE or not whose.has(generation.line, generation.population):
                continue
            if reason := _unfit(generation):
                left_out[reason] += 1
                continue
            of_user.setdefault(generation.user, []).append((generation, sealed))
            count += 1
        if count >= wanted * LOOKED_AT:
            break
    while of_user:
        for user in list(of_user):
            yield of_user[user].pop(0)
            if not of_user[user]:
                del of_user[user]


def _skip(_damage: Damage) -> None:
    """Damage is collect's to tell; there are other requests."""


def _unfit(generation: Generation) -> str:
    """Why a record cannot be asked again; "" when it can."""
    if generation.no_train:
        return "no_train"
    if generation.defect or not generation.prompt_tokens:
        return "not_exact"
    if generation.finish_reason == CUT:
        return "cut_short"
    return "unknown_sampling" if generation.sampling.unknown else ""


def _open(
    reader: ChainReader, generation: Generation, sealed: bytes, left_out: Counter[str]
) -> Recorded | None:
    try:
        _, tokens = reader.open(generation, sealed)
    except UserForgottenError:
        left_out["forgotten"] += 1
        return None
    except RtrlError:  # what its prompt extends was deleted or is damaged
        left_out["not_exact"] += 1
        return None
    return Recorded(
        id=generation.id,
        user=generation.user,
        prompt=tokens.prompt.tolist(),
        sampling=generation.sampling,
        tools_digest=generation.tools_digest,
    )
