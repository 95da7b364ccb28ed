"""What became of the changes an agent made: which commit took each, and what of it stands at fixed horizons.

    with Repository(path) as repository:
        for survival in follow(repository, changes):
            survival.kept["24h"].rate

Method and limits: docs/persistence.md. Not for: deciding what counts for a reward.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from cursorbench.errors import UsageError
from cursorbench.history.branch import Branch, Changed, branch_of
from cursorbench.history.changes import HEAD, HORIZONS, Change, Survival, Units, forms, units_of
from cursorbench.history.matching import WINDOW, Claims, Match, Matcher
from cursorbench.history.repository import Repository
from cursorbench.history.standing import standing
from cursorbench.history.submodules import in_submodule, leads_into
from cursorbench.history.superseding import Taken, supersede
from cursorbench.history.tracked import Tracked, suffix_of
from cursorbench.history.within_lines import in_whole_lines
from cursorbench.sessions.lines import Kept

__all__ = [
    "AMISS",
    "HEAD",
    "HORIZONS",
    "LOST",
    "SUPERSEDED",
    "Change",
    "Repository",
    "Survival",
    "follow",
    "follow_all",
    "text_at",
]

SUPERSEDED = "superseded by later changes of the session"
_UNDONE = "undone, as the log tells"
_GONE = "its commit is not in the history: undone"
_UNTAKEN = "no commit took it"
LOST = frozenset((_UNDONE, _GONE, _UNTAKEN))  # nothing of these stands; of others nobody knows
_STRANGERS = "the history has none of the commits that the log names"
_NO_FILE = "the history has no file of this name"
_TOO_OLD = "the history ends before the change"
AMISS = frozenset((_STRANGERS, _NO_FILE, _TOO_OLD, _UNTAKEN))  # where all are so, it is another repository
_HEX = re.compile(r"[0-9a-f]{4,64}")
_UNREAD = "git has no text of its file here: data, over 4 MiB, of LFS, or not in this clone"
_NOT_AS_TOLD = "its short lines are not in the commit as the log has them"
_IN_SUBMODULE = "its file is in a submodule"
_NO_NAME = "no commit took it, and the log names no file"
_NO_TEXT = "the log has no text of the change (of a notebook its cell's alone), or it changes nothing"


def follow(repository: Repository, changes: Iterable[Change], head: str = "HEAD") -> Iterator[Survival]:
    """What became of each change, in the order given.

    Give all changes of a repository at once: a line of a commit is one change's only, and changes of a
    session supersede one another.

    Raises:
        InputMissingError: (exit 5) the repository has no commit `head`.
        IntegrityError: (exit 12) git cannot read its history.
    """
    every = list(changes)
    named = [name for change in every for name in change.commits]
    for _, found in follow_all(repository, [every], head, named=named):
        yield from found


def follow_all(
    repository: Repository,
    batches: Iterable[Sequence[Change]],
    head: str = "HEAD",
    *,
    named: Iterable[str],
    asked: Callable[[], None] = lambda: None,
    followed: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Sequence[Change], list[Survival]]]:
    """The same of more changes than fit into memory: each list with what became of it.

    A line of a commit is one change's only over all lists: what an earlier one took is not there for a
    later one. Changes of one session and file belong into one list, and of equal attempts the last one
    into the earlier list.

    Args:
        named: what the logs of all lists call the commits that took a change.
        asked: called for each change of a list when it was looked for in the commits, which takes longest.
        followed: called for each change when it is known what became of it, for whoever waits.

    Raises:
        as `follow`.
    """
    branch = branch_of(repository, head)
    ours = any(branch.named(name) for name in named)
    claims: Claims = {}
    for changes in batches:
        units = [units_of(change) for change in in_whole_lines(changes, partial(_committed, branch))]
        lines = {line for one in units for side in (one.added, one.deleted) for line in side}
        tracked = Tracked(repository, lines, {suffix_of(one.change.path) for one in units})
        matcher = Matcher(branch, tracked, units, claims)
        matches = matcher.match(units, asked)
        pairs = zip(units, matches, strict=True)
        supersede(units, [match and _taken(one, match.file, tracked) for one, match in pairs])
        matcher.again(units, matches)
        found = []
        for one, match in zip(units, matches, strict=True):
            found.append(
                _followed(one, match, branch, tracked) if match else _not_taken(one, matcher, tracked, ours)
            )
            followed()
        yield changes, found


def _taken(units: Units, file: Changed, tracked: Tracked) -> Taken | None:
    """None where the commit, which the log names, has no line of the change: it was undone before that."""
    (added, deleted), before = (tracked.gained(file), tracked.lost(file)), tracked.before(file)
    if not units.short and not units.minus(before) & added and not units.deleted & deleted:
        return None
    return Taken((file.commit, file.path), (added, deleted), before)


def text_at(repository: Repository, survival: Survival, path: str, horizon: str, head: str = "HEAD") -> str:
    """The file's text at a horizon, its renames followed; "" when it is gone.

    `path` is the file as the log or the repository names it.

    Raises:
        UsageError: (exit 2) there is no such horizon, or the history does not reach it (`survival.kept`).
    """
    if horizon != HEAD and horizon not in HORIZONS:
        raise UsageError(f"there is no horizon {horizon!r}", hint=f"one of {', '.join([*HORIZONS, HEAD])}")
    branch = branch_of(repository, head)
    commit = _commit_at(branch, survival.commit, survival.since, horizon)
    if not commit:
        raise UsageError(f"the history has not reached {horizon} after {survival.key}", hint="see its `kept`")
    name = branch.path_at(commit, survival.path, survival.commit) if survival.path else ""
    name = name or _path_in(branch, commit, path)
    return repository.text(repository.find(repository.root(commit), name)) if name else ""


def _followed(units: Units, match: Match, branch: Branch, tracked: Tracked) -> Survival:
    file = match.file
    since = branch.times[file.commit]
    kept, reason = {}, ""
    if not units.lines and not (units.short and units.pieces):
        reason = SUPERSEDED if units.superseded else _NO_TEXT
    else:
        at = {name: _commit_at(branch, file.commit, since, name) for name in (*HORIZONS, HEAD)}
        found = {commit: standing(units, file, commit, branch, tracked) for commit in {*at.values()} - {""}}
        kept = {name: stands for name, commit in at.items() if (stands := found.get(commit)) is not None}
        if len(kept) < sum(map(bool, at.values())):
            reason = _not_kept(units, file, branch, at.values())
    return Survival(
        key=units.change.key,
        commit=file.commit,
        how=match.how,
        committed_at=since,
        kept=kept,
        lines=kept[HEAD].units if HEAD in kept else units.lines,
        reason=reason,
        path=file.path,
        since=since,
        superseded=units.superseded,
    )


def _not_kept(units: Units, file: Changed, branch: Branch, commits: Iterable[str]) -> str:
    """Why nothing is known of a change that a commit took, of one at least of these commits."""
    if any(in_submodule(branch.repository, commit, file.path) for commit in commits):
        return _IN_SUBMODULE
    read = branch.repository.textless.isdisjoint(file.blobs)
    return _NOT_AS_TOLD if units.short and read else _UNREAD


def _not_taken(units: Units, matcher: Matcher, tracked: Tracked, ours: bool) -> Survival:
    """No commit of the branch has the change. `ours`: some commit that the log names is of this branch."""
    change, branch, repository = units.change, matcher.branch, matcher.branch.repository
    gone, made = "", None
    for name in matcher.unknown(units):
        gone = gone or name
        if _HEX.fullmatch(name) and (made := repository.commit_time(name)) is not None:
            gone = repository.commit(name)
            break
    since = change.at if made is None else made
    size = _size(units, branch, tracked, since)
    kept = {}
    if units.whole and not size.units:
        reason = SUPERSEDED if units.superseded else _NO_TEXT
    elif not (reason := _unknown(units, matcher, ours, gone, made is not None, since)):
        reason = _UNDONE if change.undone else _GONE if gone else _UNTAKEN
        kept = {name: size.lost() for name in HORIZONS if _commit_at(branch, "", since, name)}
        kept[HEAD] = size.lost()
    return Survival(
        key=change.key,
        commit=gone,
        how="sha" if gone else "",
        committed_at=made,
        kept=kept,
        lines=size.units,
        reason=reason,
        since=since,
        superseded=units.superseded,
    )


def _size(units: Units, branch: Branch, tracked: Tracked, since: int | None) -> Kept:
    """All of a change that no commit took; of a file written whole what did not stand in it at the time."""
    added = units.added
    if units.whole and since is not None and (commit := branch.at_time(since)):
        path = _path_in(branch, commit, units.change.path)
        added = units.minus(tracked.of_blob(branch.repository.find(branch.repository.root(commit), path)))
    return Kept(added=added.total(), deleted=units.deleted.total(), hunks=len(units.hunks))


def _unknown(units: Units, matcher: Matcher, ours: bool, gone: str, made: bool, since: int | None) -> str:
    """Why nothing can be said of a change that no commit took; "" when it is lost.

    `gone`: the commit that the log names and the branch has not; `made`: the repository has its object.
    """
    branch, name = matcher.branch, units.change.path.replace("\\", "/").rpartition("/")[2]
    if not units.pieces or not (units.lines or units.short):
        reason = SUPERSEDED if units.superseded else _NO_TEXT
    elif units.change.undone:
        reason = ""
    elif made and (where := branch.elsewhere(gone)):
        reason = f"its commit is on {where}, which is not merged"
    elif branch.repository.shallow:
        reason = "a shallow clone: its commit may be older than the clone"
    elif since is not None and since > branch.newest:
        reason = _TOO_OLD
    elif gone and not made and not ours:
        reason = _STRANGERS
    elif not gone and since is None:
        reason = "no commit took it, and the log has no time of it"
    elif not made and (place := _no_file(branch, units.change.path, since)):
        reason = place
    elif not gone and not branch.changes_of(name):
        reason = _NO_FILE if name else _NO_NAME
    elif not made and matcher.unread(units):
        reason = _UNREAD
    elif since is not None and branch.newest < since + WINDOW and (not made or branch.put_by(gone)):
        reason = "no commit took it so far"
    else:
        reason = ""
    return reason


def _no_file(branch: Branch, told: str, since: int | None) -> str:
    """What else than a file of the history a log's path names; "" when it is none of these."""
    then = "" if since is None else branch.at_time(since)
    if leads_into(branch, told, [then, branch.head]):
        return _IN_SUBMODULE
    return "its file is a symbolic link: what that leads to was changed" if branch.link(told) else ""


def _commit_at(branch: Branch, commit: str, since: int | None, horizon: str) -> str:
    """The commit that the branch's users had at a horizon; "" when the history has not reached it."""
    if horizon == HEAD:
        return branch.head
    if since is None:
        return ""
    until = since + HORIZONS[horizon]
    found = branch.at(commit, until) if commit in branch else branch.at_time(until)
    # nothing follows the head: it has not reached what is later than itself
    return "" if found == branch.head and branch.times[found] < until else found


def _committed(branch: Branch, path: str, time: int) -> tuple[str, str]:
    """The last commit at a time, and the text that a log's path has in it; "" for none."""
    commit = branch.at_time(time)
    name = _path_in(branch, commit, path) if commit else ""
    root = branch.repository.root(commit) if name else ""
    return commit, branch.repository.text(branch.repository.find(root, name)) if name else ""


def _path_in(branch: Branch, commit: str, told: str) -> str:
    """The file of a commit's tree that a log's path means: the longest end of it that is there."""
    repository = branch.repository
    root = repository.root(commit)
    told = told.replace("\\", "/").strip("/")
    names = (form.split("/", n)[-1] for form in forms(told) for n in range(told.count("/") + 1))
    return next((name for name in names if repository.find(root, name)), "")
