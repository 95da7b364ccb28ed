"""What of a change stands in a later commit.

With A and D the lines that the change added and deleted (multisets), B, T and N the lines of the file in the
taking commit's parent, in the taking commit and at the horizon:

    kept_l = clip(N_l - b_l, 0, A_l)            b_l = B_l, or T_l - A_l when that is less (and not below 0)
    kept_l = clip(max(B_l, D_l) - N_l, 0, D_l)

This is `cursorbench.sessions.lines.persistence` where the log tells only a part of the file. Added lines that
are missing then count when a block of them moved to another file of the same suffix, see `_moved`. Changes of
short lines alone are compared as whole hunks in the file's full texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from cursorbench.history.branch import Branch, Changed
from cursorbench.history.changes import Piece, Units, bare, significant
from cursorbench.history.submodules import in_submodule
from cursorbench.history.tracked import Tracked, suffix_of
from cursorbench.sessions.blocks import joined, occurrences, place_of
from cursorbench.sessions.line_ends import code_lines
from cursorbench.sessions.lines import Kept, persistence

MOVED = 20  # letters and digits a block of lines must have to be known again elsewhere (git's --color-moved)
MOVING = 86_400_000  # ms between the commit that takes a block away and the one that has it elsewhere
_MOST_FILES = 50  # candidates for one move
_MOST_PLACES = 100  # of a line in a file at which a block is looked for


def standing(units: Units, taken: Changed, commit: str, branch: Branch, tracked: Tracked) -> Kept | None:
    """What stands in `commit`, which comes after the taking one; None when it has no text to tell it by."""
    repository = branch.repository
    path = branch.path_at(commit, taken.path, taken.commit)
    root = repository.root(commit)
    now = repository.find(root, path) if path else ""
    if not now and in_submodule(repository, commit, taken.path):  # its folder became one
        return None
    if units.short:
        found = _short(units, *(repository.text(blob) for blob in (taken.old, taken.new, now)))
        return found if repository.textless.isdisjoint((*taken.blobs, now)) else None
    was, new, is_ = tracked.before(taken), tracked.of_blob(taken.new), tracked.of_blob(now)
    if not repository.textless.isdisjoint((*taken.blobs, now)):
        return None
    added = units.minus(was)
    kept = Counter(
        {line: min(n, max(0, is_[line] - _before(n, was[line], new[line]))) for line, n in added.items()}
    )
    missing = added - kept
    if missing and commit != taken.commit:
        missing -= _moved(units.order, missing, path, taken, root, branch, tracked)
    deleted = units.deleted
    return Kept(
        added=added.total(),
        added_kept=added.total() - missing.total(),
        deleted=deleted.total(),
        deleted_kept=sum(min(n, max(0, max(was[line], n) - is_[line])) for line, n in deleted.items()),
    )


def _short(units: Units, old: str, new: str, now: str) -> Kept | None:
    """What of a change of short lines stands `now`; None when `new` has it not, as told or by its hunks."""
    if sides := whole(units.pieces, old, new):
        return persistence(*sides, now)
    if not taken_by_hunks(units, old, new):
        return None
    after, later = joined(bare(new)), joined(bare(now))
    kept = sum(
        occurrences(put, later) >= occurrences(put, after)
        and occurrences(gone, later) <= occurrences(gone, after)
        for gone, put in units.hunks
    )
    return Kept(hunks=len(units.hunks), hunks_kept=kept)


def _before(added: int, was: int, new: int) -> int:
    """How many of a line stand without the change: those of the parent that the commit left."""
    return min(was, new - added) if new >= added else was


def _moved(
    order: Sequence[str],
    missing: Counter[str],
    path: str,
    taken: Changed,
    root: str,
    branch: Branch,
    tracked: Tracked,
) -> Counter[str]:
    """The missing lines that stand elsewhere: consecutive in the change and in a file that gained them.

    A block needs `MOVED` letters and digits: single common lines turn up somewhere sooner or later. And the
    file must have gained it when the other lost it, or else a chat history that is committed a month later
    keeps every line alive.
    """
    if weight(missing.elements()) < MOVED:
        return Counter()
    suffix = suffix_of(taken.path)
    parent = branch.repository.root(branch.parent(taken.commit))
    files: list[tuple[int, str, str, Counter[str]]] = []
    for other, blob in tracked.files_with(root, missing.keys(), suffix):
        before = branch.repository.find(parent, other)
        if other == path or before == blob:
            continue
        now, was = tracked.of_blob(blob), tracked.of_blob(before)
        more = {line: now.get(line, 0) - was.get(line, 0) for line in missing}
        if gained := Counter({line: min(n, more[line]) for line, n in missing.items() if more[line] > 0}):
            files.append((-gained.total(), other, blob, gained))
    # after the change, and only where some file has the lines: every version of this one is read for it
    lost = [
        branch.times[one.commit]
        for one in (branch.changes_of(taken.path.rpartition("/")[2]) if files else ())
        if branch.order[one.commit] < branch.order[taken.commit] and tracked.loses(one, missing)
    ]
    found: Counter[str] = Counter()
    for _, other, blob, gained in sorted(files, key=lambda file: file[:3])[:_MOST_FILES]:
        left = (missing - found) & gained
        if weight(left.elements()) >= MOVED and _together(other, left, lost, branch, tracked):
            found += _blocks(order, left, branch.repository.text(blob))
    return found


def _together(path: str, lines: Counter[str], lost: Sequence[int], branch: Branch, tracked: Tracked) -> bool:
    """Whether a file gained some of these lines at about one of the times that they were lost elsewhere."""
    return any(
        any(abs(branch.times[one.commit] - time) <= MOVING for time in lost) and tracked.gains(one, lines)
        for one in branch.changes_of(path.rpartition("/")[2])
    )


def _blocks(order: Sequence[str], left: Counter[str], text: str) -> Counter[str]:
    """Of the lines `left` those that stand in `text` in blocks as they do in `order`, each once."""
    lines = [line for raw in code_lines(text) if significant(line := raw.strip())]
    places: dict[str, list[int]] = {}
    for n, line in enumerate(lines):
        if line in left and len(places.setdefault(line, [])) < _MOST_PLACES:
            places[line].append(n)
    found, left, at = Counter[str](), left.copy(), 0
    while at < len(order):
        longest = max(
            (_alike(order, at, lines, place, left) for place in places.get(order[at], ())), default=0
        )
        block = order[at : at + longest]
        if weight(block) >= MOVED:
            found.update(block)
            left.subtract(block)
        at += max(1, longest)
    return found


def _alike(order: Sequence[str], at: int, lines: Sequence[str], place: int, left: Mapping[str, int]) -> int:
    """How many lines from `at` on are those from `place` on, each as often as it is `left`."""
    size, used = 0, Counter[str]()
    while at + size < len(order) and place + size < len(lines):
        line = order[at + size]
        if line != lines[place + size] or used[line] >= left.get(line, 0):
            break
        used[line] += 1
        size += 1
    return size


def weight(lines: Iterable[str]) -> int:
    """How many letters and digits some lines have."""
    return sum(letter.isalnum() for line in lines for letter in line)


def whole(pieces: Sequence[Piece], old: str, new: str) -> tuple[str, str] | None:
    """The file before and after a change that the log tells a part of; None where the part is not found.

    The part after the change is looked for in the file after the commit, else the part before in the file
    before it. Blank lines and trailing blanks do not count.
    """
    for text, wanted, other in ((new, 1, 0), (old, 0, 1)):
        lines = list(bare(text))
        found = list(lines)
        for piece in pieces:
            at = place_of(piece[wanted], found)
            if at < 0 and (piece[wanted] or found):
                break
            at = max(at, 0)
            found[at : at + len(piece[wanted])] = piece[other]
        else:
            texts = "\n".join(found), "\n".join(lines)
            return texts if wanted else (texts[1], texts[0])
    return None


def taken_whole(units: Units, old: str, new: str) -> bool:
    """Whether a commit that changed `old` to `new` took all of a change of short lines."""
    sides = whole(units.pieces, old, new)
    if sides is None:
        return False
    before, after = persistence(*sides, old), persistence(*sides, new)
    return after.units > 0 and after.kept == after.units and before.kept == 0


def taken_by_hunks(units: Units, old: str, new: str) -> bool:
    """Whether a commit that changed `old` to `new` has each hunk of a change of short lines, whatever else is
    about them: what is told by whole texts stands in no commit as told when it took other edits, too.
    """
    before, after = joined(bare(old)), joined(bare(new))
    return bool(units.hunks) and all(
        occurrences(put, after) > occurrences(put, before)
        if put
        else occurrences(gone, after) < occurrences(gone, before)
        for gone, put in units.hunks
    )
