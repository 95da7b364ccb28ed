"""Exact replacements: an edit does what it says or nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorbench.harness.editing import Replacement, replace_all
from cursorbench.harness.results import RefusedError, cut_middle, printable

TEXT = st.text(alphabet="ab\n", max_size=30)


@given(TEXT, st.lists(st.builds(Replacement, TEXT, TEXT, st.booleans()), min_size=1, max_size=4))
def test_an_edit_is_made_where_its_text_stands_once_or_everywhere_or_refused(before, edits):
    now = before
    expected = None
    for one in edits:
        places = now.count(one.old) if one.old else 0
        if places == 0:
            expected = "not_found"
        elif places > 1 and not one.everywhere:
            expected = "ambiguous"
        elif now.replace(one.old, one.new) == now:
            expected = "no_change"
        else:
            now = one.new.join(now.split(one.old))
            continue
        break
    if expected is None and now == before:
        expected = "no_change"
    if expected is None:
        assert replace_all(before, edits) == now
        return
    with pytest.raises(RefusedError) as refused:
        replace_all(before, edits)
    assert refused.value.error == expected


@given(st.text(max_size=300), st.integers(2, 100))
def test_cutting_keeps_both_ends_and_counts_the_rest(text, limit):
    cut = cut_middle(text, limit)
    if len(text) <= limit:
        assert cut == text
        return
    head, tail = text[: limit - limit // 2], text[len(text) - limit // 2 :]
    assert cut.startswith(head)
    assert cut.endswith(tail)
    assert f"[{len(text) - limit} characters, " in cut


@given(st.text(alphabet=st.characters(exclude_categories=[]), max_size=20))
def test_whatever_json_holds_can_be_sent(text):
    sent = printable(text).encode().decode()
    assert len(sent) == len(text)
    assert all(a == b for a, b in zip(sent, text, strict=True) if not "\ud800" <= b <= "\udfff")
