"""What `train` reads of an experience: its episodes, and exact token sequences out of sealed payloads.

`train` needs to know neither Parquet nor seals. A generation that is not exact is quarantined with its
reason, and so is what extends it. Not for: the joining itself (`stages/sequences.py`), text, gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stages.errors import IntegrityError
from stages.records import Payload, Span
from stages.sequences import GenerationInfo, Record, Sequence, assemble, full_prompts, payload_defect
from stages.spool.codec import decode, generation_aad
from stages.stage import Artifact
from stages.vault import UserForgottenError, Vault

if TYPE_CHECKING:
    import pyarrow as pa

    from stages.registry.store import Store

__all__ = [
    "ExperienceEpisode",
    "GenerationInfo",
    "Sequence",
    "load_episodes",
    "load_sequences",
    "open_payload",
]

_HINT = "its tokens are quarantined; the others are used"
_COLUMNS = [
    "id",
    "episode",
    "user",
    "sampling",
    "spans",
    "prompt_tokens",
    "output_tokens",
    "prompt_base",
    "prompt_prefix",
    "defect",
    "sealed",
]


@dataclass(frozen=True)
class ExperienceEpisode:
    """One episode of an experience.

    `reward` None is unknown; `group` "" means that there are no other rollouts of its task.
    """

    episode_id: str
    user: str
    key_id: str
    stratum: str
    reward: float | None
    trainable: bool
    why_not: str
    group: str


def open_payload(vault: Vault, user: str, generation_id: str, sealed: bytes) -> Payload:
    """The payload of a generation.

    Raises:
        UserForgottenError: its user's key was destroyed.
        IntegrityError: the bytes are not what was sealed under this user and id.
    """
    try:
        return decode(vault.unseal(user, sealed, generation_aad(generation_id)))
    except ValueError as error:
        raise IntegrityError(
            f"generation {generation_id}: its payload cannot be decoded: {error}", hint=_HINT
        ) from error


def load_episodes(experience: Artifact) -> list[ExperienceEpisode]:
    """All episodes of an experience, in its order. Raises IntegrityError when the file is damaged."""
    from stages import schemas, tables

    names = ["episode_id", "user", "key_id", "stratum", "reward", "trainable", "why_not", "group"]
    table = tables.read(experience.path / schemas.EPISODES_FILE, schemas.experience_episodes(()), names)
    return [ExperienceEpisode(**row) for row in table.select(names).to_pylist()]


def load_sequences(
    experience: Artifact,
    store: Store,
    vault: Vault,
    *,
    on_forgotten: Callable[[str], None] | None = None,
    on_quarantine: Callable[[str, str], None] | None = None,
) -> Iterator[Sequence]:
    """The sequences of an experience, in the order its episodes were completed; the same every time.

    Memory is bounded by the episodes that were open at once, not by the window.

    Args:
        on_forgotten: called with the id of an episode whose user has been forgotten since; without it
            UserForgottenError rises.
        on_quarantine: called with (generation id, reason) for tokens that are not exact; their sequence
            is left out. Without it IntegrityError rises.
    """
    from stages import schemas, tables

    planned: dict[str, dict[str, list[list[str]]]] = {}
    for row in tables.read(experience.path / schemas.SEQUENCES_FILE, schemas.SEQUENCES).to_pylist():
        episodes = planned.setdefault(row["interactions"], {})
        episodes.setdefault(row["episode_id"], []).append(row["generation_ids"])
    opener = _Opener(vault, on_forgotten, on_quarantine)
    for digest, episodes in planned.items():
        for part in tables.parts(store.resolve(digest).path):
            for episode_id, rows in _episodes(part, episodes):
                yield from opener.open(episode_id, rows, episodes[episode_id])


@dataclass(frozen=True)
class _Opener:
    vault: Vault
    on_forgotten: Callable[[str], None] | None
    on_quarantine: Callable[[str, str], None] | None

    def open(
        self, episode_id: str, rows: list[dict[str, Any]], sequences: list[list[str]]
    ) -> Iterator[Sequence]:
        records: dict[str, Record] = {}
        for row in rows:
            try:
                records[row["id"]] = _record(row, self.vault)
            except UserForgottenError:
                if self.on_forgotten is None:
                    raise
                self.on_forgotten(episode_id)
                return
            except IntegrityError as error:
                self._quarantine(row["id"], error)
        prompts = full_prompts(records)
        for ids in sequences:
            missing = next((i for i in ids if i not in prompts), None)
            if missing is None:
                yield assemble(episode_id, [(records[i], prompts[i]) for i in ids], records)
            elif missing in records:
                message = f"generation {missing}: what its prompt extends is not there"
                self._quarantine(missing, IntegrityError(message, hint=_HINT))

    def _quarantine(self, generation_id: str, error: IntegrityError) -> None:
        if self.on_quarantine is None:
            raise error
        self.on_quarantine(generation_id, error.message)


def _episodes(part: Path, wanted: Mapping[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """(episode id, rows of all its generations) as soon as the last of them was read."""
    from stages import schemas, tables

    counts = tables.read(part / schemas.EPISODES_FILE, schemas.EPISODES, ["id", "n_generations"])
    expected = dict(zip(counts["id"].to_pylist(), counts["n_generations"].to_pylist(), strict=True))
    unfinished: dict[str, list[dict[str, Any]]] = {}
    path = part / schemas.GENERATIONS_FILE
    for batch in tables.batches(path, schemas.GENERATIONS, _COLUMNS, rows=64):
        for row in _rows_of(batch, wanted):
            rows = unfinished.setdefault(row["episode"], [])
            rows.append(row)
            if len(rows) == expected.get(row["episode"]):
                yield row["episode"], unfinished.pop(row["episode"])
    if unfinished:
        raise IntegrityError(
            f"{path} lacks generations of episode {next(iter(unfinished))}", hint="rtrl verify --full"
        )


def _rows_of(batch: pa.RecordBatch, wanted: Mapping[str, Any]) -> list[dict[str, Any]]:
    keep = [episode in wanted for episode in batch.column("episode").to_pylist()]
    if not any(keep):
        return []
    import pyarrow

    rows: list[dict[str, Any]] = batch.filter(pyarrow.array(keep)).to_pylist()
    return rows


def _record(row: Mapping[str, Any], vault: Vault) -> Record:
    from stages.rows import sampling

    payload = open_payload(vault, row["user"], row["id"], row["sealed"])
    defect = payload_defect(row, payload)
    if defect and (not row["defect"] or defect in ("prompt_length", "output_length")):
        raise IntegrityError(f"generation {row['id']} is not exact: {defect}", hint=_HINT)
    return Record(
        id=row["id"],
        user=row["user"],
        prompt=np.frombuffer(payload.prompt, dtype="<i4"),
        output=np.frombuffer(payload.output, dtype="<i4"),
        logprobs=np.frombuffer(b"" if defect else payload.logprobs, dtype="<f4"),
        prompt_base=row["prompt_base"],
        prompt_prefix=row["prompt_prefix"],
        spans=tuple(Span(**span) for span in row["spans"]),
        sampling=sampling(row["sampling"]),
        request=payload.request,
        experts=None if defect else payload.experts,
    )
