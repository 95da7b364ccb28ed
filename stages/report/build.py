"""A report as plain data: everything that the terminal, the page and `--json` show, computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from stages import schemas
from stages.errors import InputMissingError, UsageError
from stages.report.episodes import LABELS, Loaded, load
from stages.report.examples import Example, examples
from stages.report.figures import Figure, Reading, headline
from stages.report.left_out import LeftOut, left_out
from stages.report.populations import Group, Population, by_calendar, group, population
from stages.stage import Artifact

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.workspace import Workspace

BY = ("agent", "model", "repository", "work")
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

    ref: str
    digest: str
    line: str
    made: str
    interactions: tuple[str, ...]
    spec: str
    served: bool  # captured by the gateway; else read from session logs
    episodes: int
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

    def to_json(self) -> dict[str, Any]:
        """Plain fields, for `--json`."""
        plain = {**self.__dict__, "figures": ()}
        found: dict[str, Any] = asdict(Report(**plain))
        found["figures"] = [
            {"name": f.name, "title": f.title, "about": f.about, "unit": f.unit, "better": f.better}
            for f in self.figures
        ]
        return found


def resolve(store: Store, ref: str | None, line: str) -> Artifact:
    """The experience that is meant: REF, the newest one made from interactions REF, or the newest.

    Raises:
        InputMissingError: (exit 5) there is none.
        UsageError: (exit 2) REF is of another kind, or no reference.
    """
    if ref is None:
        found = store.latest("experience", line)
        if found is None:
            raise InputMissingError(
                "there is no experience to report on",
                hint="`rtrl collect` (with paths of session logs, or after some use), then `rtrl distill`",
            )
        return found
    named = store.resolve(ref, line)
    if named.kind == "experience":
        return named
    if named.kind != "interactions":
        raise UsageError(
            f"a report is about an experience; {named.ref} is none",
            hint="name experience@vN, or interactions@vN for the newest experience made from them",
        )
    made = (one for one in store.all_of("experience") if named.digest in one.meta["interactions"])
    experience = next(made, None)
    if experience is None:
        raise InputMissingError(
            f"no experience was made from {named.ref}", hint=f"rtrl distill --input {named.ref}"
        )
    return experience


def parse_by(text: str) -> tuple[str, ...]:
    """The populations of `--by`, each once. Raises UsageError."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if strange := [name for name in names if name not in LABELS]:
        raise UsageError(f"--by {strange[0]}: no such population", hint=f"there are {', '.join(LABELS)}")
    return names


def build(
    workspace: Workspace,
    store: Store,
    experience: Artifact,
    *,
    by: Sequence[str] = BY,
    last: int = LAST,
    texts: bool = True,
) -> Report:
    """Compute a report.

    Args:
        by: populations, of `episodes.LABELS`.
        last: how many experiences of the line to show over time.
        texts: open the texts of the examples.

    Raises:
        InputMissingError: (exit 5) the experience was distilled by a version that told less.
        IntegrityError: (exit 12) an artifact is damaged.
    """
    loaded = load(store, experience)
    episodes = loaded.episodes
    figures = headline(episodes)
    over_time, untimed = _over_time(store, loaded, figures, last)
    best, worst = examples(workspace, store, experience, loaded.table, texts=texts)
    timed = episodes.at[episodes.at > 0]
    return Report(
        ref=experience.ref,
        digest=experience.digest,
        line=experience.line,
        made=experience.created_at,
        interactions=tuple(_name(store, digest) for digest in experience.meta["interactions"]),
        spec=str(experience.meta["spec_name"]),
        served=bool(experience.meta["checkpoint"]),
        episodes=len(episodes),
        users=len(np.unique(episodes.user)),
        sessions=len(np.unique(episodes.session)),
        first_at=int(timed.min(initial=np.iinfo(np.int64).max)) if len(timed) else 0,
        last_at=int(timed.max(initial=0)),
        figures=figures,
        readings={one.name: one.read(episodes) for one in figures},
        populations=tuple(population(name, episodes, figures) for name in by),
        over_time=over_time,
        left_out=left_out(store, experience, loaded.forgotten, untimed),
        best=tuple(best),
        worst=tuple(worst),
    )


def _name(store: Store, digest: str) -> str:
    found = store.artifact(digest)
    return found.ref if found is not None else f"{digest[:19]} (removed)"


def _over_time(store: Store, loaded: Loaded, figures: Sequence[Figure], last: int) -> tuple[OverTime, int]:
    """By experience of the line where there are several, else by calendar; and how many have no time."""
    past = _line_of(store, loaded.artifact, last) if loaded.artifact.meta["checkpoint"] else []
    readable = [one for one in past if one.meta.get("schema") == schemas.EXPERIENCE_SCHEMA]
    skipped = [
        f"{one.ref} was distilled by another version: rtrl distill --input {_name(store, digest)}"
        for one in past
        if one not in readable
        for digest in one.meta["interactions"]
    ]
    if len(readable) > 1:
        windows = []
        for one in readable:
            of = loaded if one.digest == loaded.artifact.digest else load(store, one)
            windows.append(group(f"v{one.version}", of.episodes, figures_of(of, figures)))
        return OverTime("experience", tuple(windows), tuple(skipped)), 0
    unit, groups, not_shown = by_calendar(loaded.episodes, figures)
    return OverTime(unit, tuple(groups), tuple(skipped)), not_shown


def figures_of(loaded: Loaded, figures: Sequence[Figure]) -> list[Figure]:
    """Those of the figures that these episodes have columns for."""
    own = {one.name for one in headline(loaded.episodes)}
    return [one for one in figures if one.name in own]


def _line_of(store: Store, experience: Artifact, last: int) -> list[Artifact]:
    """The last experiences of the line up to this one, one for each interactions, oldest first."""
    found: dict[tuple[str, ...], Artifact] = {}
    for one in store.all_of("experience", experience.line):
        made_from = tuple(one.meta["interactions"])
        if one.version <= experience.version and one.meta["checkpoint"] and made_from not in found:
            found[made_from] = one
    return sorted(islice(found.values(), last), key=lambda one: one.version)
