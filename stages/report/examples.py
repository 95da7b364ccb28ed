"""The best and the worst episodes of an experience: the terms of their reward, and a bit of their texts.

Texts are opened in memory with the vault and shown through redaction only, a few hundred characters each:
the beginning of the request, and the end of the answer without the thought before it.
The user of an episode may have been forgotten since: then there is no text, and it says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cursorbench.redaction import Kind, Redactor, by_kind
from stages import schemas, tables
from stages.distill.recorded import spec_of
from stages.distill.spec import RewardSpec
from stages.errors import InputMissingError, IntegrityError
from stages.recorded_answer import taken_apart
from stages.report.episodes import told_times
from stages.report.load import ORIGIN
from stages.report.populations import shown_name
from stages.report.text import fit, fit_end
from stages.stage import Artifact
from stages.terms import Term, terms_of
from stages.tokens import open_payload
from stages.vault import UserForgottenError, Vault

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.workspace import Workspace

EACH = 3  # best and worst
SHOWN = 300  # characters of a text
_LOOKED_AT = 1000  # of the extremes, for episodes of different sessions
_SHOWN_COLUMNS = ("agent", "model", "repository", "work")
SHOWN_STATE, FORGOTTEN, GONE, UNREADABLE, WITHHELD = "shown", "forgotten", "gone", "unreadable", "withheld"


@dataclass(frozen=True)
class Example:
    """One episode, the terms of its reward by size.

    `state` says whether its texts are here: shown, forgotten, gone, unreadable, withheld. `masked`: what
    redaction took out of the two texts, by kind, cut off parts included.
    """

    episode_id: str
    at: int
    about: dict[str, str]
    reward: float
    terms: tuple[Term, ...]
    state: str
    request: str = ""
    answer: str = ""
    masked: dict[Kind, int] = field(default_factory=dict)


def extremes(table: pa.Table, each: int = EACH) -> tuple[list[int], list[int]]:
    """Rows of the best and of the worst episodes by reward, of different sessions where there are some.

    Among equals the newest first. A row is in one list only; a reward that is not known in none.
    """
    reward = np.asarray(table["reward"].to_numpy(), dtype=np.float64)
    at = np.asarray(table["at"].to_numpy(), dtype=np.int64)
    known = np.flatnonzero(~np.isnan(reward))
    upward = known[np.lexsort((-at[known], reward[known]))]
    downward = known[np.lexsort((-at[known], -reward[known]))]
    upper = (len(known) + 1) // 2  # a bad one is not among the best for its session
    lower = upward[~np.isin(upward, downward[:upper])]
    return _apart(table, downward[:upper], each), _apart(table, lower, each)


def _apart(table: pa.Table, order: np.ndarray[Any, Any], wanted: int) -> list[int]:
    candidates = [int(row) for row in order[:_LOOKED_AT]]
    sessions = table["session"].take(pa.array(candidates, pa.int64())).to_pylist()
    found: list[int] = []
    met: set[str] = set()
    for row, session in zip(candidates, sessions, strict=True):
        if session not in met and len(found) < wanted:
            met.add(session)
            found.append(row)
    found += [row for row in candidates if row not in found][: wanted - len(found)]
    return sorted(found, key=candidates.index)


def examples(
    workspace: Workspace, store: Store, experiences: Sequence[Artifact], table: pa.Table, *, texts: bool
) -> tuple[list[Example], list[Example]]:
    """(best, worst) of experiences of one reward spec. Without `texts` none is opened.

    Raises:
        IntegrityError: (exit 12) an artifact is damaged.
    """
    best, worst = extremes(table)
    spec = spec_of(experiences[-1])
    rows = table.take(pa.array(best + worst, pa.int64())).to_pylist()
    found = [_example(row, spec, experiences[row[ORIGIN]].meta["price"]) for row in rows]
    for place in {row[ORIGIN] for row in rows} if texts else ():
        mine = [n for n, row in enumerate(rows) if row[ORIGIN] == place]
        opened = _open(workspace, store, experiences[place], {found[n].episode_id for n in mine})
        for n in mine:
            found[n] = _with_texts(found[n], opened.get(found[n].episode_id, (GONE, "", "")))
    return found[: len(best)], found[len(best) :]


def _with_texts(example: Example, opened: tuple[str, str, str]) -> Example:
    state, request, answer = opened
    redactor = Redactor()
    request, answer = fit(request, SHOWN, redactor), fit_end(answer, SHOWN, redactor)
    return replace(example, state=state, request=request, answer=answer, masked=by_kind(redactor.counts))


def _example(row: dict[str, Any], spec: RewardSpec, price: float | None) -> Example:
    terms = [term for term in terms_of(row, spec, price) if term.contribution is not None]
    return Example(
        episode_id=row["episode_id"],
        at=int(told_times(np.array([row["at"]]))[0]),
        about={name: shown_name(row[name]) for name in _SHOWN_COLUMNS},
        reward=row["reward"],
        terms=tuple(sorted(terms, key=lambda term: -abs(term.contribution or 0.0))),
        state=WITHHELD,
    )


def _open(
    workspace: Workspace, store: Store, experience: Artifact, wanted: set[str]
) -> dict[str, tuple[str, str, str]]:
    """Per episode (state, request, answer): the request of its first generation, the answer of its last."""
    try:
        vault = Vault.open(workspace.keys_dir)
    except InputMissingError:
        return dict.fromkeys(wanted, (UNREADABLE, "", ""))
    found: dict[str, tuple[str, str, str]] = {}
    try:
        for row in _generations(store, experience, wanted):
            state, request, answer = found.get(row["episode"], ("", "", ""))
            try:
                payload = open_payload(vault, row["user"], row["id"], row["sealed"])
            except UserForgottenError:
                found[row["episode"]] = (FORGOTTEN, "", "")
                continue
            except IntegrityError:
                found[row["episode"]] = (state or UNREADABLE, request, answer)
                continue
            if state != FORGOTTEN:
                said = taken_apart(payload.answer, row["features"]).said if payload.answer else answer
                found[row["episode"]] = (SHOWN_STATE, request or payload.request, said)
    finally:
        vault.close()
    return found


def _generations(store: Store, experience: Artifact, wanted: set[str]) -> Iterable[dict[str, Any]]:
    """Rows of the wanted episodes. A part that holds none is not read but for its column of episodes."""
    values = pa.array(sorted(wanted))
    columns = ["id", "user", "episode", "features", "sealed"]
    for digest in experience.meta["interactions"]:
        interactions = store.artifact(digest)
        for part in tables.parts(interactions.path) if interactions is not None else ():
            path = part / schemas.GENERATIONS_FILE
            ids = tables.read(path, schemas.GENERATIONS, ["episode"])["episode"]
            left = int(pc.sum(pc.is_in(ids, value_set=values)).as_py() or 0)
            if not left:
                continue
            for batch in tables.batches(path, schemas.GENERATIONS, columns, rows=1024):
                rows = batch.filter(pc.is_in(batch["episode"], value_set=values)).to_pylist()
                yield from rows
                left -= len(rows)
                if not left:
                    break
