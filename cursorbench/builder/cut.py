"""A repository as it was at a commit, without anything of what came after: no object, no name, no trace.

`cut` makes the bundle of a task and looks at what comes out of it: every object of its work tree is walked
(`assert_cut`). Should a blob of the kept change stand in the older history, or half of the lines that it
adds, because it was made, reverted and made again, the bundle ends at the base commit alone. Not for: the
installed environment, which has a check of its own (`installed.py`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cursorbench.errors import IntegrityError
from cursorbench.graders import patch
from cursorbench.history.changes import recognisable
from cursorbench.tasks import bundle

DEPTH = 50  # commits of history that a task's repository keeps
_PLAIN = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-renames")
_KNOWN = frozenset({"HEAD", "config", "index", "shallow", "objects", "refs", "info"})
_FILES = frozenset({f"refs/heads/{bundle.BRANCH}", "info/exclude", "objects/info/packs"})


@dataclass(frozen=True)
class Cut:
    """What was made.

    Attributes:
        tree: git's id of the base commit's tree.
        depth: of the history; 1 where older commits held the kept change.
        objects: how many were walked.
        commits: how many of them are commits.
    """

    tree: str
    depth: int
    objects: int
    commits: int


class FutureLeftError(IntegrityError):
    """A cut repository holds something of what came after its base."""

    kind = "future_left"


def cut(
    source: Path,
    base: str,
    out: Path,
    forbidden: Collection[str],
    depth: int = DEPTH,
    *,
    added: Mapping[str, Iterable[str]] | None = None,
) -> Cut:
    """Write the bundle of a task to `out`, and check out and walk what is in it.

    Args:
        source: any git repository that has `base`; only read.
        forbidden: objects that must not be in it: the kept commit, its blobs.
        depth: commits of history to try with first; 0 for all.
        added: the lines that the kept change adds, by file.

    Raises:
        FutureLeftError: (exit 12) one of them is in the base's own tree, or anything else is left.
        InputMissingError, IntegrityError: as `bundle.write` and `bundle.checkout`.
    """
    for deep in dict.fromkeys((depth, 1)):
        for path in (out, bundle.beside(out)):
            path.unlink(missing_ok=True)
        tree = bundle.write(source, base, out, depth=deep)
        with tempfile.TemporaryDirectory(prefix="rtrl-cut-") as scratch:
            folder = Path(scratch, "tree")
            bundle.checkout(out, folder, tree=tree)
            try:
                found = Cut(tree, deep, *assert_cut(folder, tree, forbidden))
            except FutureLeftError:
                if deep == 1:
                    raise
            else:
                if deep == 1 or not made_before(folder, added or {}):
                    return found
    raise AssertionError("no depth was tried")


def made_before(folder: Path, added: Mapping[str, Iterable[str]]) -> bool:
    """Whether the history of a work tree took out half of these lines again, or more: it tells them.

    Of lines that can be recognised, and of the same files.
    """
    telling = {line for lines in added.values() for line in recognisable("\n".join(lines))}
    if not telling:
        return False
    named = [f":(top,literal){path}" for path in added]
    log = bundle.git(folder, "log", "-p", "--full-history", "--format=", *_PLAIN, "HEAD", "--", *named)
    gone = {line.strip() for one in patch.files(log) for line in one.deleted}
    return 2 * len(telling & gone) >= len(telling)


def assert_cut(folder: Path, tree: str, forbidden: Collection[str]) -> tuple[int, int]:
    """Walk all objects and all names of a cut work tree. Returns how many objects and commits it has.

    Raises:
        FutureLeftError: (exit 12) an object that HEAD does not reach, a forbidden one, a name besides HEAD
            and its branch, a file in the git folder that a fresh repository has not, or another tree.
    """
    _no_other_file(folder / ".git")
    refs = bundle.git(folder, "for-each-ref", "--format=%(refname)").split()
    if refs != [f"refs/heads/{bundle.BRANCH}"]:
        raise FutureLeftError(f"{folder} has other refs than {bundle.BRANCH}: {', '.join(refs)}")
    if bundle.git(folder, "rev-parse", "HEAD^{tree}").strip() != tree:
        raise FutureLeftError(f"HEAD of {folder} is not the base")
    listed = bundle.git(
        folder, "cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)", "--unordered"
    )
    present = {line.split(" ")[0]: line.split(" ")[1] for line in listed.splitlines()}
    reached = {
        line.split(" ", 1)[0] for line in bundle.git(folder, "rev-list", "--objects", "HEAD").splitlines()
    }
    if unreached := present.keys() - reached:
        raise FutureLeftError(f"{len(unreached)} objects of {folder} do not belong to its base")
    if left := present.keys() & set(forbidden):
        raise FutureLeftError(f"{folder} holds {len(left)} objects of the kept change: {min(left)}")
    return len(present), sum(kind == "commit" for kind in present.values())


def _no_other_file(git: Path) -> None:
    """No reflog, alternates, packed refs, stash, notes, worktree, hook or fetched head; no link."""
    for path in sorted(git.rglob("*")):
        name = path.relative_to(git).as_posix()
        allowed = name.split("/", 1)[0] in _KNOWN
        if path.is_file() and name.startswith(("refs/", "info/", "objects/info/")):
            allowed = name in _FILES
        if not allowed or path.is_symlink():
            raise FutureLeftError(f"{git} holds {name}, which a cut repository does not need")
