"""Any sequence of edits: what holds for every change and every history."""

from __future__ import annotations

import difflib
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from cursorbench.history.changes import Change, units_of
from cursorbench.history.follow import follow
from cursorbench.history.repository import Repository
from tests.cursorbench.history.gits import HOUR, Git, change, text

LINE = st.sampled_from(
    ["value_one = 1", "value_two = 2", "value_three = 3", "  value_one = 1", "}", "x = 1", ""]
)
FILE = st.lists(LINE, max_size=7).map(lambda lines: text(*lines))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(FILE, st.sampled_from(["a.py", "b.py"]), st.booleans()), min_size=1, max_size=5))
def test_whatever_was_edited(edits: list[tuple[str, str, bool]]) -> None:
    with TemporaryDirectory() as folder:
        git = Git(Path(folder, "r"))
        state = {"a.py": "", "b.py": ""}
        git.commit(-HOUR, dict(state))
        changes: list[Change] = []
        for n, (after, path, grouped) in enumerate(edits):
            before, state[path] = state[path], after
            sha = git.commit(n * HOUR, {path: after})
            changes.append(
                change(
                    before,
                    after,
                    path,
                    at=n * HOUR,
                    key=str(n),
                    commits=(sha,),
                    session="s" if grouped else "",
                )
            )
            with Repository(git.folder) as repository:
                found = list(follow(repository, changes))
                assert found == list(follow(repository, changes))
            with Repository(git.folder) as repository:
                assert found == list(follow(repository, changes))
            assert [one.key for one in found] == [one.key for one in changes]
            for one, of in zip(found, changes, strict=True):
                for kept in one.kept.values():
                    assert 0 <= kept.added_kept <= kept.added
                    assert 0 <= kept.deleted_kept <= kept.deleted
                    assert 0 <= kept.hunks_kept <= kept.hunks
                    assert kept.units == one.kept["head"].units == one.lines
                units = units_of(of)
                assert one.lines + one.superseded == units.lines or units.short
            last = found[-1]
            if last.commit == sha and "head" in last.kept:
                assert last.kept["head"].kept == last.kept["head"].units


@settings(max_examples=200, deadline=None)
@given(FILE, FILE)
def test_a_diff_is_counted_as_the_texts_are(before: str, after: str) -> None:
    diff = "\n".join(
        difflib.unified_diff(before.splitlines(), after.splitlines(), "a", "b", lineterm="", n=99)
    )
    one, two = units_of(change(before, after)), units_of(change(None, None, diff=diff))
    assert (one.added, one.deleted, one.short) == (two.added, two.deleted, two.short)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200), st.text(max_size=200), st.text(alphabet="@-+ 1,\nx\\", max_size=80))
def test_any_text_makes_units(before: str, after: str, diff: str) -> None:
    for one in (
        change(before, after),
        change(None, after),
        change(before, None),
        change(None, None, diff=diff),
    ):
        units = units_of(one)
        assert units.lines >= 0
        assert not (units.added & units.deleted)
