"""`rtrl distill --explain EPISODE`: every term of one episode's reward, and what it was read from.

Shows numbers, ids, times and types; never what a user or the model wrote.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from stages import rows, schemas, tables
from stages.distill.order import in_order
from stages.distill.recorded import spec_of
from stages.distill.spec import PRICE
from stages.episode_names import episode_of, no_such
from stages.errors import UsageError
from stages.records import Event
from stages.stage import Artifact
from stages.terms import Term, terms_of
from stages.wording import digits

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.workspace import Workspace


@dataclass(frozen=True)
class Explanation:
    """Everything about one episode's reward."""

    episode_id: str
    user: str
    checkpoint: str
    lag: int
    stratum: str
    reward: float | None
    trainable: bool
    why_not: str
    spec: str
    spec_digest: str
    terms: tuple[Term, ...]
    events: tuple[tuple[str, str], ...]  # (time, type)
    generations: int
    output_tokens: int
    sequences: tuple[tuple[str, ...], ...]  # generation ids trained as one sequence each

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)

    def lines(self) -> list[str]:
        """For people: one screen."""
        found = [
            f"episode {self.episode_id}  user {self.user}  stratum {self.stratum}  lag {self.lag}",
            f"sampled by {self.checkpoint[:19]}  generations {self.generations}  "
            f"tokens {self.output_tokens}  sequences {len(self.sequences)}",
            f"reward spec {self.spec} ({self.spec_digest[:19]})",
            "",
            f"{'signal':24}{'value':>10}{'weight':>10}{'offset':>10}{'term':>10}",
        ]
        for term in self.terms:
            numbers = (term.value, term.weight, term.offset, term.contribution)
            cells = "".join(f"{_number(n):>10}" for n in numbers)
            found.append(f"{term.signal:24}{cells}  {term.note}".rstrip())
        total = _number(self.reward)
        found += [f"{'reward':24}{total:>40}", ""]
        found.append("trained on" if self.trainable else f"not trained on: {self.why_not}")
        found += [f"{at}  {kind}" for at, kind in self.events] or ["no events"]
        return found


def explain(workspace: Workspace, store: Store, experience_ref: str, name: str) -> Explanation:
    """Every term of an episode's reward; `name` is the episode's, or the id of one of its generations.

    Raises:
        UsageError: (exit 2) the reference is of another kind.
        InputMissingError: no such experience, or it does not hold the episode.
        IntegrityError: its files are damaged.
    """
    experience = store.resolve(experience_ref, workspace.settings.workspace.line)
    if experience.kind != "experience":
        raise UsageError(f"{experience.ref} is no experience", hint="name experience@vN")
    spec = spec_of(experience)
    schema = schemas.experience_episodes((*spec.names, PRICE))
    episode_id = episode_of(store, experience, name)
    row = _row(experience, tables.read(experience.path / schemas.EPISODES_FILE, schema), episode_id)
    sequences = tables.read(experience.path / schemas.SEQUENCES_FILE, schemas.SEQUENCES).to_pylist()
    events = in_order(
        event
        for digest in experience.meta["interactions"]
        for event in _events(store.resolve(digest), episode_id)
    )
    return Explanation(
        episode_id=episode_id,
        user=row["user"],
        checkpoint=row["checkpoint"],
        lag=row["lag"],
        stratum=row["stratum"],
        reward=row["reward"],
        trainable=row["trainable"],
        why_not=row["why_not"],
        spec=spec.name,
        spec_digest=spec.digest,
        terms=tuple(terms_of(row, spec, experience.meta["price"])),
        events=tuple((_time(event.at), event.type) for event in events),
        generations=row["n_generations"],
        output_tokens=row["output_tokens"],
        sequences=tuple(tuple(s["generation_ids"]) for s in sequences if s["episode_id"] == episode_id),
    )


def _row(experience: Artifact, table: Any, episode_id: str) -> dict[str, Any]:
    import pyarrow.compute as pc

    found: list[dict[str, Any]] = table.filter(pc.equal(table["episode_id"], episode_id)).to_pylist()
    if not found:
        raise no_such(experience, episode_id)
    return found[0]


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _events(interactions: Artifact, episode_id: str) -> list[Event]:
    """As they were received."""
    found = [
        row
        for part in tables.parts(interactions.path)
        for batch in tables.batches(part / schemas.EVENTS_FILE, schemas.EVENTS)
        for row in rows.events(batch)
        if row.episode == episode_id
    ]
    return [row.event for row in sorted(found, key=lambda row: row.seq)]


def _number(value: float | None) -> str:
    return "-" if value is None else digits(value, 4)
