"""What became of an episode's edits: the changes the user's code received, and which of them ended undone.

The one place that decides this, so that the signals cannot disagree. Not here: measuring what is left
(`edit_persistence.py`).

A revert or a refusal is about what its generation had applied to its file by then, or, when it names no
file, about all that its generation had applied. It undoes those edits, up to the horizon after the last of
them. Where its generation had applied nothing there:

- a revert is about every edit of the file so far, as only what was applied can be reverted;
- a refusal is about a proposal: a lost change of its own, beside whatever else was applied to the file.
  It counts up to the horizon after the answer.

What was undone or refused before a later edit of the same file was made good: it is left out, and the
later edit is judged by itself.

Edits of one file that come as whole texts are one change, from the first text to the last, as far as they
ended alike and each begins with a text that the file had before or after one of them (an edit told twice
does, or one told from where the request began): what else stands in between is the user's, and a change of
nobody. Diffs know their hunks only and stay one change each. Among several changes of a file a later one
supersedes: lines it takes away that an earlier one added, or brings back that an earlier one took away,
count in neither.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from posixpath import normpath
from unicodedata import normalize

from cursorbench.sessions.line_ends import code_lines
from cursorbench.sessions.lines import changed, sides_of_diff, written
from stages.distill.order import in_order
from stages.records import Event

UNDOING = ("edit_rejected", "edit_reverted")


@dataclass(frozen=True)
class Change:
    """A change of one file. `before` and `after`: whole texts, a part, or a diff's two sides."""

    path: str
    before: str
    after: str
    whole: bool
    undone: bool
    part: bool = False


@dataclass(frozen=True)
class Edits:
    """What became of an episode's edits.

    Attributes:
        changes: by path, in order; made good, superseded and empty ones are left out.
        refused: refusals of what was never applied, one event each, and not made good.
        undone: an edit or a proposal ended undone.
        ever_undone: one was undone in time, made good or not.
        unseen: files that were changed without anybody telling how, and that were not undone.
    """

    changes: Mapping[str, tuple[Change, ...]]
    refused: tuple[Event, ...]
    undone: bool
    ever_undone: bool
    unseen: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class _Edit:
    path: str
    generation_id: str
    place: int  # among the events, in order
    at: int
    sides: tuple[str, str]
    whole: bool
    part: bool


@dataclass
class _Pile:
    """Edits that a revert or refusal can be about. `at`: of the last; `waiting`: those that none was yet."""

    at: int
    waiting: list[_Edit]

    def take(self) -> list[_Edit]:
        """Those that none was about yet; what becomes of an edit, the first one says for good."""
        taken, self.waiting = self.waiting, []
        return taken


class _SoFar:
    """The edits applied so far, by file and generation and by either alone: an episode may have thousands."""

    def __init__(self) -> None:
        self._piles: dict[tuple[str | None, str | None], _Pile] = {}

    def add(self, edit: _Edit) -> None:
        """One more."""
        for key in product((edit.path, None), (edit.generation_id, None)):
            pile = self._piles.setdefault(key, _Pile(edit.at, []))
            pile.at = max(pile.at, edit.at)
            pile.waiting.append(edit)

    def about(self, event: Event) -> _Pile | None:
        """Those that a revert or refusal is about; None for a refused proposal."""
        path = path_of(event) or None
        own = self._piles.get((path, event.generation_id))
        return self._piles.get((path, None)) if event.type == "edit_reverted" and own is None else own


def edits_of(events: Sequence[Event], answered_at: int, horizon_ms: int) -> Edits:
    """What became of the edits of one episode.

    Args:
        events: the episode's events with their data opened, as they were received.
        answered_at: event time of the last answer (ms): when an edit was proposed that was never applied.
        horizon_ms: how long after the edit the training horizon lies.
    """
    events = in_order(events)
    applied = _applied(events)
    last = {edit.path: edit.place for edit in applied}
    for place, event in enumerate(events):
        if _by_name_alone(event):
            last[path_of(event)] = max(place, last.get(path_of(event), -1))
    undone: set[_Edit] = set()
    made_good: set[_Edit] = set()
    refused: dict[tuple[object, ...], Event] = {}
    in_time: set[int] = set()  # places of what undid or refused something
    so_far, to_come = _SoFar(), deque(applied)
    for place, event in enumerate(events):
        if event.type not in UNDOING:
            continue
        while to_come and to_come[0].place < place:
            so_far.add(to_come.popleft())
        about = so_far.about(event)
        if event.at > (about.at if about else answered_at) + horizon_ms:
            continue
        in_time.add(place)
        path = path_of(event)
        for edit in about.take() if about else ():
            (made_good if last[edit.path] > place else undone).add(edit)
        later = last.get(path, -1) if path else max(last.values(), default=-1)
        if not about and later < place:
            refused[event.generation_id, path, sides_of(event)] = event  # told twice, it counts once
    undone -= made_good
    return Edits(
        changes=_changes([edit for edit in applied if edit not in made_good], undone),
        refused=tuple(refused.values()),
        undone=bool(undone or refused),
        ever_undone=bool(in_time),
        unseen=_unseen(events, in_time),
    )


def _unseen(events: Sequence[Event], in_time: Collection[int]) -> frozenset[str]:
    """Files of edits that are told by name alone, as some logs do, and that stand: what was undone or refused
    `in_time`, at these places, and not edited again does not."""
    standing: dict[str, set[str]] = defaultdict(set)  # whose edits, by file
    made: set[tuple[str, str]] = set()  # file and generation of all edits so far, as `_SoFar` has them
    for place, event in enumerate(events):
        path, whose = path_of(event), event.generation_id
        if event.type == "edit_applied":
            made |= {(path, whose), ("", whose)}
        if _by_name_alone(event):
            standing[path].add(whose)
        elif place in in_time:
            everybodys = event.type == "edit_reverted" and (path, whose) not in made
            for file in (path,) if path else tuple(standing):
                standing[file] -= set(standing[file]) if everybodys else {whose}
    return frozenset(path for path, of in standing.items() if of)


def _by_name_alone(event: Event) -> bool:
    """Whether it is an edit that tells no text: `sides_of` has none of it. No diff is read for that."""
    diff = event.data.get("diff")
    return event.type == "edit_applied" and _texts(event) is None and not isinstance(diff, str)


def path_of(event: Event) -> str:
    """The file an event is about, as it is spelled shortest; "" when it names none.

    Letters with marks are spelled in two ways: models write one, macOS may name the file by the other.
    """
    path = str(event.data.get("path") or "")
    return normalize("NFC", normpath(path)) if path else ""


def sides_of(event: Event) -> tuple[str, str] | None:
    """The text before and after an edit that an event tells, whole, a part's or a diff's; None for none."""
    diff = event.data.get("diff")
    return _texts(event) or (sides_of_diff(diff) if isinstance(diff, str) else None)


def _texts(event: Event) -> tuple[str, str] | None:
    before, after = event.data.get("before"), event.data.get("after")
    return (before, after) if isinstance(before, str) and isinstance(after, str) else None


def _applied(events: Sequence[Event]) -> list[_Edit]:
    """Every edit that changed something, in the order of `events`."""
    found = []
    for n, e in enumerate(events):
        if e.type == "edit_applied" and (sides := sides_of(e)) is not None and changed(*sides):
            texts, part = _texts(e) is not None, bool(e.data.get("part"))
            found.append(
                _Edit(path_of(e), e.generation_id, n, e.at, sides, texts and not part, texts and part)
            )
    return found


def _changes(edits: Sequence[_Edit], undone: set[_Edit]) -> dict[str, tuple[Change, ...]]:
    """The changes of each file that these edits come to."""
    found: dict[str, list[Change]] = defaultdict(list)
    been: dict[str, set[int]] = {}  # what a file has been before and after the edits of its last change
    several = len({edit.path for edit in edits}) < len(edits)
    for edit in edits:
        change = Change(edit.path, *edit.sides, edit.whole, edit in undone, edit.part)
        of = found[edit.path]
        texts = [_text(side) for side in edit.sides] if several and edit.whole else [0, 0]
        alike = bool(of) and of[-1].whole and change.whole and of[-1].undone == change.undone
        if alike and texts[0] in been[edit.path]:
            of[-1] = replace(of[-1], after=change.after)
        else:
            of.append(change)
            been[edit.path] = set()
        been[edit.path].update(texts)
    if not several:  # a file's only edit has changed something
        return {path: tuple(of) for path, of in found.items()}
    net = {path: tuple(c for c in _net(of) if changed(c.before, c.after)) for path, of in found.items()}
    return {path: of for path, of in net.items() if of}


def _text(text: str) -> int:
    """The same for texts that are not `changed`."""
    return hash("\n".join(line for raw in code_lines(text) if (line := raw.rstrip())))


def _net(changes: list[Change]) -> list[Change]:
    """The changes of one file without the lines that a later one superseded, and without its part in that.

    An undone change supersedes none that stands: what it had replaced is the user's code again.
    """
    if len(changes) == 1:
        return changes
    drop = [(Counter[str](), Counter[str]()) for _ in changes]  # lines to leave out before and after
    added: dict[str, list[int]] = defaultdict(list)  # by which changes, while nothing superseded it
    deleted: dict[str, list[int]] = defaultdict(list)
    for n, change in enumerate(changes):
        new, gone = written(change.before, change.after)
        for side, lines, earlier, own in ((0, gone, added, deleted), (1, new, deleted, added)):
            for line in lines:
                if earlier[line] and (changes[earlier[line][-1]].undone or not change.undone):
                    drop[earlier[line].pop()][1 - side][line] += 1
                    drop[n][side][line] += 1
                else:
                    own[line].append(n)
    return [
        replace(change, before=_without(change.before, old), after=_without(change.after, new))
        for change, (old, new) in zip(changes, drop, strict=True)
    ]


def _without(text: str, drop: Counter[str]) -> str:
    """The text without so many of these lines."""
    if not drop:
        return text
    left = drop.copy()
    kept = []
    for line in code_lines(text):
        if left[line.rstrip()] > 0:
            left[line.rstrip()] -= 1
        else:
            kept.append(line)
    return "\n".join(kept)
