"""A report as plain data: everything that the terminal, the page and `--json` show, computed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from cursorbench.redaction import Kind, by_kind
from stages import schemas
from stages.errors import UsageError
from stages.forget.since import Since
from stages.report.chosen import distill_commands, in_order, not_here
from stages.report.episodes import LABELS
from stages.report.examples import Example, examples
from stages.report.figures import Figure, Reading, headline
from stages.report.left_out import LeftOut, left_out
from stages.report.load import Gone, Loaded, load, unseen
from stages.report.populations import Group, Population, by_calendar, group, population
from stages.rewarded import rewarded_by
from stages.stage import Artifact

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.workspace import Workspace

BY = ("agent", "model", "repository", "work")
_NAMED = 4  # experiences that a head line names
LAST = 20  # experiences of a line shown over time


@dataclass(frozen=True)
class OverTime:
    """The figures by window. `unit`: experience, day, week or month; `skipped`: what is not shown, said."""

    unit: str
    windows: tuple[Group, ...]
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """Everything a report says. Times are ms since the epoch, 0 where none is told."""

    refs: tuple[str, ...]  # the experiences it is about, the oldest first
    digests: tuple[str, ...]
    line: str
    made: str
    interactions: tuple[str, ...]
    spec: str
    served: bool  # captured by the gateway; else read from session logs
    episodes: int
    repeated: int  # rows of earlier experiences whose episode a later one has too
    users: int
    sessions: int
    first_at: int
    last_at: int
    figures: tuple[Figure, ...]
    readings: dict[str, Reading]
    populations: tuple[Population, ...]
    over_time: OverTime
    left_out: LeftOut
    best: tuple[Example, ...]
    worst: tuple[Example, ...]

    @property
    def ref(self) -> str:
        """The experiences by name; many by how many they are."""
        few = len(self.refs) <= _NAMED
        return ", ".join(self.refs) if few else f"{len(self.refs)} experiences up to {self.refs[-1]}"

    @property
    def masked(self) -> dict[Kind, int]:
        """What redaction took out of the texts of the examples, by kind."""
        counts: Counter[Kind] = Counter()
        for one in (*self.best, *self.worst):
            counts.update(one.masked)
        return by_kind(counts)

    def to_json(self) -> dict[str, Any]:
        """Plain fields, for `--json`."""
        plain = {**self.__dict__, "figures": ()}
        found: dict[str, Any] = asdict(Report(**plain))
        found["ref"], found["masked"] = self.ref, self.masked
        found["figures"] = [
            {"name": f.name, "title": f.title, "about": f.about, "unit": f.unit, "better": f.better}
            for f in self.figures
        ]
        return found


def parse_by(text: str) -> tuple[str, ...]:
    """The populations of `--by`, each once. Raises UsageError."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UsageError("--by names no population", hint=f"there are {', '.join(LABELS)}")
    if strange := [name for name in names if name not in LABELS]:
        raise UsageError(f"--by {strange[0]}: no such population", hint=f"there are {', '.join(LABELS)}")
    return names


def build(
    workspace: Workspace,
    store: Store,
    *experiences: Artifact,
    by: Sequence[str] = BY,
    last: int = LAST,
    texts: bool = True,
) -> Report:
    """Compute a report.

    Args:
        experiences: what it is about, as `chosen.choose` gives them; several are joined.
        by: populations, of `episodes.LABELS`.
        last: how many experiences of the line to show over time.
        texts: open the texts of the examples.

    Raises:
        InputMissingError: (exit 5) an experience was distilled by a version that told less.
        IntegrityError: (exit 12) an artifact is damaged.
    """
    gone = Since(store, workspace.keys_dir).lost
    loaded = load(store, *experiences, gone=gone)
    newest = experiences[-1]
    episodes = loaded.episodes
    figures = headline(episodes)
    over_time, untimed = _over_time(store, experiences, loaded, figures, last, gone)
    best, worst = examples(workspace, store, experiences, loaded.table, texts=texts)
    timed = episodes.at[episodes.at > 0]
    return Report(
        refs=tuple(one.ref for one in experiences),
        digests=tuple(one.digest for one in experiences),
        line=newest.line,
        made=newest.created_at,
        interactions=_interactions(store, experiences),
        spec=str(newest.meta["spec_name"]),
        served=bool(newest.meta["checkpoint"]),
        episodes=len(episodes),
        repeated=loaded.repeated,
        users=len(np.unique(episodes.user)),
        sessions=len(np.unique(episodes.session)),
        first_at=int(timed.min(initial=np.iinfo(np.int64).max)) if len(timed) else 0,
        last_at=int(timed.max(initial=0)),
        figures=figures,
        readings={one.name: one.read(episodes) for one in figures},
        populations=tuple(population(name, episodes, figures) for name in by),
        over_time=over_time,
        left_out=_all_left_out(store, experiences, loaded, untimed, gone),
        best=tuple(best),
        worst=tuple(worst),
    )


def _all_left_out(
    store: Store, experiences: Sequence[Artifact], loaded: Loaded, untimed: int, gone: Gone
) -> LeftOut:
    """What distill left out, after what did not get that far."""
    left = left_out(store, experiences, loaded.table["why_not"], loaded.forgotten, untimed)
    return replace(left, rows=(*not_here(store, experiences, loaded.table, gone), *left.rows))


def _interactions(store: Store, experiences: Sequence[Artifact]) -> tuple[str, ...]:
    return tuple(_name(store, digest) for one in experiences for digest in one.meta["interactions"])


def _name(store: Store, digest: str) -> str:
    found = store.artifact(digest)
    return found.ref if found is not None else f"{digest[:19]} (removed)"


def _over_time(
    store: Store,
    experiences: Sequence[Artifact],
    loaded: Loaded,
    figures: Sequence[Figure],
    last: int,
    gone: Gone,
) -> tuple[OverTime, int]:
    """By experience of the line where there are several, else by calendar; and how many have no time.

    What was not trained on is collected again with what came after it: each window has the episodes that none
    before it has. One by another reward spec has no reward here.
    """
    only = experiences[0] if len(experiences) == 1 else None
    past = _line_of(store, only, last + 1) if only and only.meta["checkpoint"] else []
    skipped = [
        f"{one.ref} was distilled by another version: rtrl distill --input {_name(store, digest)}"
        for one in past[-last:]
        if one.meta.get("schema") != schemas.EXPERIENCE_SCHEMA
        for digest in one.meta["interactions"]
    ]
    windows, again, others, seen = [], [], [], pa.array([], pa.string())
    for place, one in enumerate(past):
        if one.meta.get("schema") != schemas.EXPERIENCE_SCHEMA:
            continue
        of = loaded if only and one.digest == only.digest else load(store, one, gone=gone)
        new, seen = unseen(of, seen)
        if place < len(past) - last:  # not shown; what it has is no news of the one after it
            continue
        if len(new):
            told = figures_of(of, figures)
            if only and rewarded_by(one) != rewarded_by(only):
                told = [
                    figure for figure in told if figure.name not in {"reward", *(only.meta.get("own") or {})}
                ]
                others.append(one)
            windows.append(group(f"v{one.version}", new, told))
        else:
            again.append(f"{one.ref} has no episode that those before it do not have")
    if len(windows) > 1:
        return OverTime("experience", tuple(windows), (*skipped, *again, *_of_other_specs(store, others))), 0
    unit, groups, not_shown = by_calendar(loaded.episodes, figures)
    return OverTime(unit, tuple(groups), tuple(skipped)), not_shown


def _of_other_specs(store: Store, experiences: Sequence[Artifact]) -> list[str]:
    """Says whose rewards are not comparable, and how they become so."""
    if not experiences:
        return []
    named = ", ".join(one.ref for one in experiences[:_NAMED]) + (
        ", ..." if len(experiences) > _NAMED else ""
    )
    found = [store.artifact(digest) for one in experiences for digest in one.meta["interactions"]]
    again = distill_commands([one for one in found if one is not None])
    return [f"rewards of {named}: by another reward spec, whose horizons may be others, too: {again}"]


def figures_of(loaded: Loaded, figures: Sequence[Figure]) -> list[Figure]:
    """Those of the figures that these episodes have columns for."""
    own = {one.name for one in headline(loaded.episodes)}
    return [one for one in figures if one.name in own]


def _line_of(store: Store, experience: Artifact, last: int) -> list[Artifact]:
    """The last experiences of the line up to this one, one for each interactions, in the order of these."""
    newest = {tuple(experience.meta["interactions"]): experience}
    for one in store.all_of("experience", experience.line):
        if one.meta["checkpoint"]:
            newest.setdefault(tuple(one.meta["interactions"]), one)
    found = in_order(store, newest.values())
    return found[: found.index(experience) + 1][-last:]
