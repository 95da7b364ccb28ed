"""Which commits were taken back by another one, by what `git revert` and GitHub write."""

from __future__ import annotations

from pathlib import Path

import pytest

from cursorbench.history.repository import Repository
from cursorbench.history.reverts import _gone, reverted
from tests.cursorbench.history.gits import HOUR, T0, Git


def test_a_revert_is_told_by_its_message_and_a_revert_of_it_takes_it_back(tmp_path: Path) -> None:
    git = Git(tmp_path / "r")
    kept, gone, back = (git.commit(n, {f"{n}.py": "x = 1"}) for n in range(3))
    git.commit(HOUR, {"1.py": None}, f'Revert "m"\n\nThis reverts commit {gone}.')
    git.commit(2 * HOUR, {"1.py": "x = 2"}, f"again\n\nThis reverts commit {gone[:9]}, more or less.")
    undo = git.commit(3 * HOUR, {"2.py": None}, f"This reverts commit {back}.")
    git.commit(4 * HOUR, {"2.py": "x = 1"}, f'Reapply "m"\n\nThis reverts commit {undo}.')
    git.commit(5 * HOUR, {"9.py": "y"}, f"As he said, This reverts commit {kept} is what git writes.")
    git.commit(6 * HOUR, {"9.py": "z"}, "This reverts commit 0123456789abcdef.")
    with Repository(git.folder) as repository:
        assert reverted(repository) == {gone: T0 + HOUR, undo: T0 + 4 * HOUR}


def test_whether_a_revert_stands_is_decided_to_the_end_of_the_chain(tmp_path: Path) -> None:
    """The change taken back, put there again, and taken back again."""
    git = Git(tmp_path / "r")
    first = git.commit(0, {"1.py": "x = 1"})
    revert = git.commit(HOUR, {"1.py": None}, f"This reverts commit {first}.")
    again = git.commit(2 * HOUR, {"1.py": "x = 1"}, f"This reverts commit {revert}.")
    git.commit(3 * HOUR, {"1.py": None}, f"This reverts commit {again}.")
    with Repository(git.folder) as repository:
        assert reverted(repository) == {first: T0 + HOUR, again: T0 + 3 * HOUR}


def test_long_chains_and_circles_of_reverts_end() -> None:
    chain = {str(n): [str(n + 1)] for n in range(3_001)}  # the last, 3001, stands
    assert _gone(chain) == {str(n) for n in range(0, 3_001, 2)}
    assert _gone({"a": ["b"], "b": ["a"]}) == {"b"}
    assert _gone({"a": ["b", "c"], "b": ["d"]}) == {"a", "b"}


def test_a_merge_that_is_taken_back_takes_back_what_it_brought(tmp_path: Path) -> None:
    git = Git(tmp_path / "r")
    before = git.commit(0, {"1.py": "x = 1"})
    git("checkout", "-q", "-b", "feature")
    brought = [git.commit(n, {"2.py": f"x = {n}"}) for n in (1, 2)]
    git("checkout", "-q", "main")
    git.commit(3, {"3.py": "x = 1"})
    git("merge", "-q", "--no-ff", "feature")
    merge = git("rev-parse", "HEAD")
    git.time = T0 + HOUR
    git("revert", "--no-edit", "-m", "1", merge)
    with Repository(git.folder) as repository:
        assert reverted(repository) == dict.fromkeys([merge, *brought], T0 + HOUR)
        assert before not in reverted(repository)


def test_a_pull_request_that_is_taken_back_is_told_by_its_number(tmp_path: Path) -> None:
    git = Git(tmp_path / "r")
    squashed = git.commit(0, {"1.py": "x = 1"}, "Faster (#12)")
    git.commit(1, {"2.py": "x = 1"}, "Faster still (#112)")
    back = git.commit(HOUR, {"1.py": None}, 'Revert "Faster (#12)" (#13)\n\nReverts some-one/shop#12\n')
    git.commit(2 * HOUR, {"3.py": "x"}, "Reverts to the old name\n\nReverts #99\nReverts nothing#12 else")
    with Repository(git.folder) as repository:
        assert reverted(repository) == {squashed: T0 + HOUR}
    git.commit(3 * HOUR, {"1.py": "x = 1"}, 'Reapply "Faster (#12)" (#14)\n\nReverts some-one/shop#13\n')
    with Repository(git.folder) as repository:
        assert reverted(repository) == {back: T0 + 3 * HOUR}


GITLAB = (
    "Merge branch 'faster' into 'main'\n\nFaster\n\nCloses #12\n\nSee merge request group/sub/shop!12",
    "Revert \"Merge branch 'faster' into 'main'\"\n\nThis reverts merge request !12",
)
BITBUCKET = (
    "Merged in faster (pull request #12)\n\nFaster",
    'Revert "Faster (pull request #12)"\n\nThis reverts pull request #12.\n\n> Faster',
)

GITHUB = (
    "Merge pull request #12 from some-one/faster\n\nFaster",
    'Revert "Faster"\n\nReverts some-one/shop#12',
)


@pytest.mark.parametrize(("told", "back"), [GITLAB, BITBUCKET, GITHUB])
def test_a_merge_that_is_taken_back_is_told_by_its_requests_number(
    tmp_path: Path, told: str, back: str
) -> None:
    """Their merges and reverts; the number of an issue is another."""
    git = Git(tmp_path / "r")
    git.commit(0, {"1.py": "x = 1"}, "Start, which closes #12")
    git("checkout", "-q", "-b", "faster")
    brought = git.commit(1, {"2.py": "x = 1"})
    git("checkout", "-q", "main")
    git("merge", "-q", "--no-ff", "-m", told, "faster")
    merge = git("rev-parse", "HEAD")
    git.commit(HOUR, {"2.py": None}, back)
    git.commit(2 * HOUR, {"3.py": "x"}, "Merge\n\nSee merge request !13\n\nThis reverts merge request !99")
    with Repository(git.folder) as repository:
        assert reverted(repository) == dict.fromkeys([merge, brought], T0 + HOUR)
