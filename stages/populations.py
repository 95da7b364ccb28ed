"""Lines of populations: whose requests a line learns from, and how one begins.

An API key fixes a population. Where `[populations.NAME]` names it, its users have a line of their own: it
begins with a checkpoint of the workspace's own line and goes its own way from there. Until it has a live
checkpoint, and while its engine is down, its users are answered by the workspace's own line; what was
sampled there is the population's data all the same (`collect` looks at the key, not at who answered).
Not for: answering (`stages/serving/lines.py`), settings (`stages/population_config.py`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stages.errors import InputMissingError
from stages.population_config import labels_of
from stages.verdicts import Verdicts

if TYPE_CHECKING:
    from stages.config import Settings
    from stages.registry.store import Store
    from stages.stage import Artifact
    from stages.workspace import Workspace

# of a line's checkpoints
FIRST = "`rtrl init PATH --model FOLDER` makes the first one in the workspace at PATH"


@dataclass(frozen=True)
class Whose:
    """The generations that are a line's.

    Attributes:
        lines: on which they may have been answered; None for any.
        labels: populations they are of; None for any.
        without: populations they are not of.
    """

    lines: tuple[str, ...] | None
    labels: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()

    @classmethod
    def of(cls, facts: dict[str, Any] | None, line: str) -> Whose:
        """From `facts()`; of a run from before there were populations, None: whatever `line` answered."""
        if facts is None:
            return cls((line,))
        lines, labels = (None if facts[n] is None else tuple(facts[n]) for n in ("lines", "labels"))
        return cls(lines, labels, tuple(facts["without"]))

    def has(self, line: str, label: str) -> bool:
        """Whether a generation that `line` answered, by a key of population `label`, is one of them."""
        of = label not in self.without if self.labels is None else label in self.labels
        return of and (self.lines is None or line in self.lines)

    def facts(self) -> dict[str, Any]:
        """Plain, for a run's record."""
        return {
            "lines": None if self.lines is None else list(self.lines),
            "labels": None if self.labels is None else list(self.labels),
            "without": list(self.without),
        }


def whose(settings: Settings) -> Whose:
    """The generations that `workspace.line` learns from: a population's whoever answered them, also a line
    that was its own under another name."""
    line = settings.workspace.line
    if line in settings.populations:
        mine = labels_of(line, settings.populations[line])
        return Whose(None, mine)
    apart = {label for name, each in settings.populations.items() for label in labels_of(name, each)}
    return Whose((line,), None, tuple(sorted(apart)))


def verdicts_of(workspace: Workspace) -> list[Verdicts]:
    """What feedback is by the settings of the line worked on, and of each population's."""
    lines = dict.fromkeys((workspace.settings.workspace.line, *workspace.settings.populations))
    return [Verdicts(workspace.on_line(each).settings.collect.metrics) for each in lines]


def begin_line(workspace: Workspace, store: Store) -> bool:
    """Give a population's line its first live checkpoint and anchor, when it has none. Whether it did.

    Raises InputMissingError (exit 5) when there is no such parent.
    """
    settings = workspace.settings
    line = settings.workspace.line
    if not _to_begin(settings, store):
        return False
    parent = store.resolve(settings.populations[line].parent, settings.workspace.serves)
    reason = f"population {line} begins with {parent.ref} of line {settings.workspace.serves}"
    for name in ("anchor", "live"):  # live last: a kill in between begins again
        store.move_alias(line, name, parent.digest, reason=reason)
    return True


@contextmanager
def as_begun(workspace: Workspace, store: Store) -> Iterator[Store]:
    """For a dry run: the store, or where the line has yet to begin a passing copy in which it has.

    Raises as `begin_line`.
    """
    if not _to_begin(workspace.settings, store):
        yield store
        return
    from stages.registry.scratch import passing_scratch

    with passing_scratch(store, "dry-run") as copy:
        begin_line(workspace, copy)
        yield copy


def _to_begin(settings: Settings, store: Store) -> bool:
    line = settings.workspace.line
    return line in settings.populations and store.alias(line, "live") is None


def require_line(store: Store, settings: Settings) -> None:
    """Refuse a line that no setting names, and that has nothing: a misspelt one would look quiet.

    Raises InputMissingError (5).
    """
    from stages.registry.models import ARTIFACT_KINDS

    line, there = settings.workspace.line, store.lines()
    known = sorted({*there, *settings.populations})
    if not there or line in known or any(store.latest(kind, line) for kind in ARTIFACT_KINDS):
        return
    near = difflib.get_close_matches(line, known, n=1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    raise InputMissingError(
        f"nothing was ever deployed on line {line!r}", hint=f"{meant}lines here: {', '.join(known)}"
    )


def require_live(store: Store, settings: Settings) -> Artifact:
    """The live checkpoint of the line worked on.

    Raises InputMissingError (5): there is none, as in a workspace for session logs; or as `require_line`.
    """
    line = settings.workspace.line
    live = store.alias(line, "live")
    if live is None:
        require_line(store, settings)
        raise InputMissingError(f"line {line!r} has no live checkpoint", hint=FIRST)
    return live
