"""What is known of each episode of one part of an interactions artifact, payloads opened in memory.

The only place of `distill` that touches seals. Text goes from here into the signals and nowhere else.
Not for: scoring (`measure.py`), writing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cursorbench.sessions.spoken import words_of
from stages import rows, schemas, tables
from stages.errors import IntegrityError
from stages.reactions import told_again
from stages.recorded_answer import taken_apart
from stages.records import TEXT_ONLY, Event
from stages.sequences import Ends, chains, not_reproducible, payload_defect
from stages.spool.reader import open_event
from stages.tokens import open_payload
from stages.vault import UserForgottenError, Vault
from stages.verdicts import Verdicts, name_of

_COLUMNS = [
    "id",
    "user",
    "episode",
    "at",
    "sampling",
    "spans",
    "finish_reason",
    "prompt_tokens",
    "output_tokens",
    "ttft_ms",
    "duration_ms",
    "tool_calls",
    "invalid_tool_calls",
    "tools_digest",
    "features",
    "prompt_base",
    "prompt_prefix",
    "defect",
    "sealed",
]


@dataclass
class Episode:
    """One episode: its row of episodes.parquet, its generations (rows, capture order), its opened events
    (as they were received).

    `answer` is the last one as it was sampled, `said` what of it is no thought.
    `untrainable` gives, per generation id, why no gradient may come from it.
    """

    row: dict[str, Any]
    generations: list[dict[str, Any]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    request: str = ""
    answer: str = ""
    said: str = ""
    thinking: list[float] = field(default_factory=list)  # share of each answer's characters that is thought
    untrainable: dict[str, str] = field(default_factory=dict)
    forgotten: bool = False
    ends: Ends = field(default_factory=Ends)

    @cached_property
    def chains(self) -> list[list[int]]:
        """Indices of the generations, see `sequences.chains`."""
        return chains(self.generations)

    @cached_property
    def sequences(self) -> list[list[str]]:
        """Generation ids to be trained as one sequence each; what cannot be trained on is left out."""
        if self.forgotten:
            return []
        ids = [row["id"] for row in self.generations]
        found = [[ids[n] for n in chain if ids[n] not in self.untrainable] for chain in self.chains]
        return [chain for chain in found if chain]

    @property
    def why_not(self) -> str:
        """Why nothing of the episode can be trained on; "" when something can."""
        if self.forgotten:
            return "forgotten"
        if self.sequences:
            return ""
        reasons = [self.untrainable[row["id"]] for row in self.generations if row["id"] in self.untrainable]
        return reasons[0] if reasons else "no_tokens"

    @property
    def lost(self) -> dict[str, str]:
        """The calls without gradient of an episode that has one, with why: what it lost of itself.

        Where not a token was sampled (the context was full), there was nothing to lose.
        """
        if self.why_not:
            return {}
        return {call: reason for call, reason in self.untrainable.items() if reason != "no_tokens"}


class PartReader:
    """Reads parts one at a time; what cannot be used is kept in `quarantine` with its reason.

    `verdicts` says what feedback means; `unused` counts, by metric, that of which it says nothing.
    """

    def __init__(self, vault: Vault, verdicts: Verdicts | None = None) -> None:
        self._vault = vault
        self._verdicts = verdicts or Verdicts()
        self.quarantine: list[dict[str, str]] = []
        self.unused: Counter[str] = Counter()

    def episodes(self, part: Path) -> Iterator[Episode]:
        """The episodes of a part, in capture order. Raises IntegrityError on damage."""
        head = tables.read(part / schemas.EPISODES_FILE, schemas.EPISODES).to_pylist()
        found = {row["id"]: Episode(row) for row in head}
        events: dict[str, list[rows.SealedEvent]] = {}
        for batch in tables.batches(part / schemas.EVENTS_FILE, schemas.EVENTS):
            for event in rows.events(batch):
                events.setdefault(event.episode, []).append(event)
        for batch in tables.batches(
            part / schemas.GENERATIONS_FILE, schemas.GENERATIONS, _COLUMNS, rows=1024
        ):
            for row in batch.to_pylist():
                episode = found.get(row["episode"])
                if episode is None:
                    raise IntegrityError(
                        f"{part}: generation {row['id']} belongs to no episode", hint="rtrl verify --full"
                    )
                self._generation(episode, row)
                if len(episode.generations) == episode.row["n_generations"]:
                    self._open_events(episode, events.pop(row["episode"], []))
                    yield found.pop(row["episode"])
        if found:
            raise IntegrityError(
                f"{part}: generations of episode {next(iter(found))} are missing", hint="rtrl verify --full"
            )

    def _generation(self, episode: Episode, row: dict[str, Any]) -> None:
        sealed = row.pop("sealed")
        first = not episode.generations
        episode.generations.append(row)
        episode.thinking.append(0.0)
        try:
            payload = open_payload(self._vault, row["user"], row["id"], sealed)
        except UserForgottenError:
            episode.forgotten = True
            return
        except IntegrityError as error:
            self._leave_out(episode, row["id"], error.kind)
            return
        reason = row["defect"] or payload_defect(row, payload)
        if not reason and episode.row["n_generations"] > 1:
            row["prompt_base"], row["prompt_prefix"] = episode.ends.base(row, payload)
        if reason == TEXT_ONLY:
            episode.untrainable[row["id"]] = reason
        elif reason:
            self._leave_out(episode, row["id"], reason)
        elif reason := not_reproducible(rows.sampling(row["sampling"])):
            episode.untrainable[row["id"]] = reason
        elif not row["output_tokens"]:
            episode.untrainable[row["id"]] = "no_tokens"
        if first:
            episode.request = words_of(payload.request)
        episode.answer = payload.answer
        episode.said = taken_apart(payload.answer, row["features"]).said
        episode.thinking[-1] = 1 - len(episode.said) / len(payload.answer) if payload.answer else 0.0

    def _open_events(self, episode: Episode, sealed: list[rows.SealedEvent]) -> None:
        for row in sorted(sealed, key=lambda row: row.seq):
            try:
                event = open_event(row.event, row.user, row.sealed, self._vault)
            except UserForgottenError:
                episode.forgotten = True
            except (IntegrityError, ValueError):
                self.quarantine.append(
                    {"id": row.event.id, "episode": row.episode, "reason": "event_unreadable"}
                )
            else:
                meant = self._verdicts.resolved(event)
                if meant is None:
                    self.unused[name_of(str(event.data.get("name", "")))] += 1
                else:
                    episode.events.append(meant)
        again = told_again([(event.type, event.data) for event in episode.events])
        if again:
            episode.events = [event for n, event in enumerate(episode.events) if n not in again]

    def _leave_out(self, episode: Episode, generation_id: str, reason: str) -> None:
        episode.untrainable[generation_id] = reason
        self.quarantine.append({"id": generation_id, "episode": episode.row["id"], "reason": reason})
