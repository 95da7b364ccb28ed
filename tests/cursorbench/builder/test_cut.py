"""Nothing of the future is in a task's repository, whatever the history looks like."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cursorbench.builder.cut import FutureLeftError, assert_cut, cut
from cursorbench.tasks import bundle
from tests.cursorbench.history.gits import Git

NAMES = ("a.py", "b.py", "pkg/c.py")
TEXTS = ("one = 1\n", "two = 2\n", "three = 3\n", None)
Step = tuple[str, str | None, str]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from(TEXTS),
        st.sampled_from(["", "branch", "tag", "stash", "note"]),
    ),
    min_size=3,
    max_size=7,
)


def history(folder: Path, steps: list[Step]) -> tuple[Git, list[str]]:
    """A repository in which things happen: branches merged, tags, notes and stashes of later states."""
    git = Git(folder)
    commits = [git.commit(0, {"start.py": "start = 0\n"})]
    for n, (name, text, also) in enumerate(steps):
        if also == "branch":
            git("checkout", "-q", "-b", f"side{n}")
            commits.append(git.commit(10 * n + 1, {f"side{n}.py": f"side = {n}\n"}))
            git("checkout", "-q", "main")
            git("merge", "-q", "--no-ff", "-m", "merge", f"side{n}")
        files = {name: text} if text is not None or (folder / name).exists() else {}
        commits.append(git.commit(10 * n + 5, files, message=f"step {n}"))
        if also == "tag":
            git("tag", "-a", f"v{n}", "-m", "released")
        elif also == "stash":
            (folder / "start.py").write_text(f"stashed = {n}\n")
            git("stash", "-q")
        elif also == "note":
            git("notes", "add", "-m", f"note {n}", "HEAD")
    return git, commits


def reachable(git: Git, commit: str) -> set[str]:
    return {line.split(" ")[0] for line in git("rev-list", "--objects", commit).splitlines()}


@settings(max_examples=8, deadline=None)
@given(STEPS, st.data())
def test_nothing_of_the_future_is_present(steps: list[Step], data: st.DataObject) -> None:
    """Every object of the cut is one that the base reaches, and none is the kept commit's own."""
    with TemporaryDirectory() as scratch:
        git, commits = history(Path(scratch, "repo"), steps)
        git("pack-refs", "--all")
        kept = data.draw(st.sampled_from(commits[1:]), label="kept")
        base = git("rev-parse", f"{kept}^1")
        stood = set(git("ls-tree", "-r", "--format=%(objectname)", base).split())
        new = {line.split()[3] for line in git("diff-tree", "-r", "--no-commit-id", kept).splitlines()}
        forbidden = {kept, git("rev-parse", f"{kept}^{{tree}}"), *new} - stood - {"0" * 40}
        forbidden -= {git("rev-parse", f"{base}^{{tree}}")}
        out = Path(scratch, "task.bundle")
        made = cut(
            git.folder, base, out, forbidden, depth=data.draw(st.sampled_from([0, 1, 3]), label="depth")
        )
        tree = Path(scratch, "tree")
        bundle.checkout(out, tree, tree=made.tree)
        listed = bundle.git(tree, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
        assert set(listed) <= reachable(git, base)
        assert not set(listed) & forbidden
        assert len(listed) == made.objects
        assert bundle.git(tree, "rev-parse", "HEAD").strip() == base
        assert bundle.git(tree, "status", "--porcelain") == ""


def test_a_change_that_was_made_before_costs_the_history(tmp_path: Path) -> None:
    """Made, reverted, made again: the second time the first one's blob stands in the base's history."""
    git = Git(tmp_path / "repo")
    git.commit(0, {"a.py": "a = 1\n"})
    git.commit(1, {"a.py": "a = 2\n"})
    base = git.commit(2, {"a.py": "a = 1\n"})
    kept = git.commit(3, {"a.py": "a = 2\n"})
    forbidden = {kept, git("rev-parse", "HEAD:a.py")}
    made = cut(git.folder, base, tmp_path / "task.bundle", forbidden)
    assert (made.depth, made.objects, made.commits) == (1, 3, 1)


@pytest.mark.parametrize(("again", "depth"), [("three = three(3)\n", 50), ("two = two(2, 2)\n", 1)])
def test_lines_that_were_there_before_are_no_history(tmp_path: Path, again: str, depth: int) -> None:
    """Made again with a difference it has other blobs, and `git revert` of the revert was the solution."""
    git = Git(tmp_path / "repo")
    git.commit(0, {"a.py": "one = one(1)\n"})
    git.commit(1, {"a.py": "one = one(1)\ntwo = two(2, 2)\n", "b.py": "three = three(3)\n"})
    git.commit(2, {"a.py": "one = one(1)\n"})
    base = git.commit(3, {"a.py": "# why\none = one(1)\n"})
    added = {"a.py": [again, "four = four(4, 4)"], "other.py": []}
    made = cut(git.folder, base, tmp_path / "task.bundle", (), added=added)
    assert (made.depth, made.commits) == (depth, 4 if depth > 1 else 1)


def test_what_the_base_has_itself_cannot_be_cut(tmp_path: Path) -> None:
    git = Git(tmp_path / "repo")
    base = git.commit(0, {"a.py": "a = 1\n"})
    with pytest.raises(FutureLeftError, match="1 objects of the kept change"):
        cut(git.folder, base, tmp_path / "task.bundle", {git("rev-parse", "HEAD:a.py")})


@pytest.mark.parametrize(
    "name",
    ["logs/HEAD", "packed-refs", "objects/info/alternates", "FETCH_HEAD", "refs/stash", "refs/tags/v1",
     "hooks/x", "refs/notes/commits", "worktrees/w/HEAD", "modules/m/HEAD", "ORIG_HEAD", "info/grafts"],
)  # fmt: skip
def test_any_trace_is_seen(tmp_path: Path, name: str) -> None:
    folder, tree = cut_tree(tmp_path)
    path = folder / ".git" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{bundle.git(folder, 'rev-parse', 'HEAD').strip()}\n")
    with pytest.raises(FutureLeftError, match=f"holds {name.partition('/')[0]}"):
        assert_cut(folder, tree, ())


def test_a_loose_object_of_nowhere_is_seen(tmp_path: Path) -> None:
    folder, tree = cut_tree(tmp_path)
    (tmp_path / "solution.txt").write_text("the solution")
    bundle.git(folder, "hash-object", "-w", str(tmp_path / "solution.txt"))
    with pytest.raises(FutureLeftError, match=r"1 objects of .* do not belong"):
        assert_cut(folder, tree, ())


def cut_tree(tmp_path: Path) -> tuple[Path, str]:
    git = Git(tmp_path / "repo")
    base = git.commit(0, {"a.py": "a = 1\n"})
    made = cut(git.folder, base, tmp_path / "task.bundle", ())
    bundle.checkout(tmp_path / "task.bundle", tmp_path / "tree", tree=made.tree)
    assert assert_cut(tmp_path / "tree", made.tree, ()) == (3, 1)
    return tmp_path / "tree", made.tree
