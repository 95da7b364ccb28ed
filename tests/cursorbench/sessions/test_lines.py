"""Edit persistence by hand, and what must hold for any three texts."""

from __future__ import annotations

import difflib
import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorbench.sessions import lines as lines_module
from cursorbench.sessions.blocks import joined, occurrences
from cursorbench.sessions.lines import (
    Kept,
    changed,
    persistence,
    persistence_of_all,
    sides_of_diff,
    written,
)

BEFORE = """\
def total(prices):
    result = 0
    for price in prices:
        result = result - price
    return result
"""
AFTER = BEFORE.replace("result - price", "result + price")


def test_kept_as_proposed() -> None:
    assert persistence(BEFORE, AFTER, AFTER) == Kept(added=1, added_kept=1, deleted=1, deleted_kept=1)


def test_undone() -> None:
    kept = persistence(BEFORE, AFTER, BEFORE)
    assert kept == Kept(added=1, added_kept=0, deleted=1, deleted_kept=0)
    assert kept.rate == 0.0


@pytest.mark.parametrize("blank", ["\f", "\v", "\x1c", "\x85", "\u2028"])
def test_a_blank_within_a_line_does_not_end_it(blank: str) -> None:
    """Cut there, the change fell into pieces of under eight characters, and nothing of it was lost."""
    after = BEFORE.replace("result - price", f"result{blank}+{blank}price")
    assert persistence(BEFORE, after, BEFORE) == Kept(added=1, deleted=1)


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_the_ends_of_lines_are_no_part_of_them(end: str) -> None:
    told = (text.replace("\n", end) for text in (BEFORE, AFTER))
    assert persistence(*told, AFTER) == Kept(added=1, added_kept=1, deleted=1, deleted_kept=1)
    assert persistence("", f"\ufeffusing System;{end}", "using System;") == Kept(added=1, added_kept=1)


def test_rewritten_line_keeps_only_the_deletion() -> None:
    now = BEFORE.replace("result - price", "result + price * 2")
    assert persistence(BEFORE, AFTER, now).rate == 0.5


def test_moved_and_reindented_lines_are_found_again() -> None:
    after = BEFORE + "\ndef describe(prices):\n    return f'{total(prices):.2f} in total'\n"
    now = (
        "class Basket:\n"
        "    def describe(prices):\n"
        "        return f'{total(prices):.2f} in total'\n\n" + BEFORE
    )
    assert persistence(BEFORE, after, now) == Kept(added=2, added_kept=2)


def test_a_line_added_twice_and_left_once() -> None:
    after = "log.flush()\nlog.flush()\nwork = begin()\n"
    assert persistence("work = begin()\n", after, "log.flush()\nwork = begin()\n") == Kept(
        added=2, added_kept=1
    )


def test_an_added_copy_of_an_existing_line_must_be_there_once_more() -> None:
    before = "first = compute()\n"
    after = "first = compute()\nfirst = compute()\n"
    assert persistence(before, after, before).rate == 0.0
    assert persistence(before, after, after).rate == 1.0


def test_deleted_lines_count_while_absent() -> None:
    before = "import logging\nimport tempfile\nmain = start\n"
    after = "main = start\n"
    assert persistence(before, after, "import tempfile\nmain = start\n") == Kept(deleted=2, deleted_kept=1)


def test_short_lines_do_not_count_beside_long_ones() -> None:
    before = "if ready:\n    go()\n"
    after = "if ready:\n    go()\nelse:\n    report_waiting(queue)\n"  # "else:" is short
    assert persistence(before, after, after) == Kept(added=1, added_kept=1)
    assert persistence(before, after, before + "    report_waiting(queue)\n").rate == 1.0


def test_short_lines_alone_are_one_hunk() -> None:
    before, after = "a = 1\nb = 2\n", "a = 7\nb = 2\n"
    assert persistence(before, after, after) == Kept(hunks=1, hunks_kept=1)
    assert persistence(before, after, before) == Kept(hunks=1)
    assert persistence(before, after, "a = 8\nb = 2\n") == Kept(hunks=1)
    assert persistence(before, after, "z = 0\na = 7\nb = 2\nc = 3\n") == Kept(hunks=1, hunks_kept=1)


def test_two_short_hunks_one_lost() -> None:
    before, after = "a = 1\nkeep_this_line_here\nb = 2\n", "a = 7\nkeep_this_line_here\nb = 9\n"
    now = "a = 7\nkeep_this_line_here\nb = 2\n"
    assert persistence(before, after, now) == Kept(hunks=2, hunks_kept=1)


def test_reindenting_is_a_change_of_its_own() -> None:
    before = "for item in items:\n    use(item)\n    report(items)\n"
    after = "for item in items:\n    use(item)\nreport(items)\n"
    assert persistence(before, after, after) == Kept(hunks=1, hunks_kept=1)
    assert persistence(before, after, before) == Kept(hunks=1)


def test_nothing_changed_has_no_rate() -> None:
    assert persistence(BEFORE, BEFORE + "\n\n", AFTER).rate is None
    assert not changed(BEFORE, BEFORE + "   \n")
    assert changed(BEFORE, AFTER)


def test_file_deleted_keeps_only_deletions() -> None:
    assert persistence(BEFORE, AFTER, "") == Kept(added=1, added_kept=0, deleted=1, deleted_kept=1)


def test_new_file() -> None:
    assert persistence("", BEFORE, BEFORE) == Kept(added=5, added_kept=5)


def test_sum_over_files_weighs_by_lines() -> None:
    assert (Kept(added=3, added_kept=3) + Kept(added=1)).rate == 0.75


def test_sides_of_a_diff() -> None:
    diff = (
        "--- a/x.sql\n+++ b/x.sql\n@@ -1,3 +1,2 @@\n select 1;\n--- dropped comment\n-select 2;\n+select 3;\n"
        "\\ No newline at end of file\n"
    )
    before, after = sides_of_diff(diff)
    assert before == "select 1;\n-- dropped comment\nselect 2;"
    assert after == "select 1;\nselect 3;"


@pytest.mark.parametrize(
    "nothing", ["\xad", "\u200b", "\u2060", "\ufeff", "\u202e", "\ufe0f", "\u3164", "\u2800", "\U000e0041"]
)
def test_what_nobody_sees_makes_no_other_line(nothing: str) -> None:
    """Behind a line it was a change that stayed whole: nobody could take it out."""
    before, shown = "a = first(1)\nb = second(2)\n", "a = first(1)\nb = third(3)\n"
    unseen = before.replace("(2)", f"(2){nothing}") + 9 * nothing + "\n"
    assert not changed(before, unseen)
    assert persistence(before, unseen, unseen) == Kept()
    assert written(before, unseen) == ([], [])
    # nor is a change another one for it: one line for one, and all of it found, or gone, without the mark
    marked = shown.replace("third", f"th{nothing}ird")
    assert changed(before, marked)
    assert persistence(before, marked, shown) == Kept(added=1, added_kept=1, deleted=1, deleted_kept=1)
    assert persistence(before, marked, unseen) == Kept(added=1, deleted=1)


@pytest.mark.parametrize("end", ["\f", "\v", "\x1c", "\x85", "\u2028", "\r"])
def test_only_a_newline_ends_a_line_of_a_diff(end: str) -> None:
    """Sources have form feeds between their parts; what stood behind one was taken for a line of context."""
    diff = f"@@ -1,2 +1,3 @@\n one = 1\n+{end}two_hundred = 200\n-three_hundred = 300\n+four_hundred = 400\n"
    before, after = sides_of_diff(diff)
    assert before == "one = 1\nthree_hundred = 300"
    assert after == f"one = 1\n{end}two_hundred = 200\nfour_hundred = 400"
    assert sides_of_diff(diff.replace("\n", "\r\n")) == (before, after)
    assert sides_of_diff(f"-a{end}b\n+c") == (f"a{end}b", "c")


@pytest.mark.parametrize("where", ["-{n} +1", "-1,{n} +1", "-1 +{n}", "-1 +1,{n}"])
def test_a_number_without_end_in_a_diff_is_no_hunk_header(where: str) -> None:
    """Python reads 4300 digits at most: one such event ended every distill, for everybody."""
    header = f"@@ {where.format(n='9' * 5000)} @@"
    assert sides_of_diff(f"{header}\n-old\n+new") == (f"{header[1:]}\nold", f"{header[1:]}\nnew")


def test_sides_of_a_bare_diff() -> None:
    assert sides_of_diff(" same\n-old\n+new") == ("same\nold", "same\nnew")


@pytest.mark.parametrize("header", ["", "@@\n", "@@ ... @@\n"])
def test_the_names_of_a_files_sides_are_no_lines_of_it(header: str) -> None:
    """As models write diffs, without numbers: the names were lines that the agent had written and lost."""
    diff = f"--- a/sum.py\n+++ b/sum.py\n{header}-old\n+new\n"
    assert [side.splitlines()[-1] for side in sides_of_diff(diff)] == ["old", "new"]
    assert not any("sum.py" in side for side in sides_of_diff(diff))
    assert not any("sum.py" in side for side in sides_of_diff(diff.replace("\n", "\r\n")))
    assert sides_of_diff("--- a/sum.py\n+++ b/sum.py\n") == ("", "")
    assert sides_of_diff("--- a comment\n+new") == ("-- a comment", "new")


@pytest.mark.parametrize("size", [3000])
def test_many_short_lines_are_compared_in_reasonable_time(size: int) -> None:
    before = "\n".join(f"a{i}" for i in range(size))
    after = "\n".join(f"b{i}" for i in range(size))
    assert persistence(before, after, after) == Kept(hunks=1, hunks_kept=1)


lines = st.lists(
    st.sampled_from(
        ["x", "}", "else:", "return value", "  return value", "count = 0", "a = 1", "", "print(total)"]
    )
    | st.text(alphabet="ab =()\t", max_size=14),
    max_size=9,
)
texts = lines.map("\n".join)


@given(texts, texts, texts)
def test_rates_are_rates(before: str, after: str, now: str) -> None:
    kept = persistence(before, after, now)
    assert 0 <= kept.kept <= kept.units
    assert (kept.rate is None) == (not changed(before, after) or kept.units == 0)


@given(texts, texts)
def test_untouched_is_one_and_undone_is_zero(before: str, after: str) -> None:
    assert persistence(before, after, after).rate in (None, 1.0)
    assert persistence(before, after, before).rate in (None, 0.0)
    assert (persistence(before, after, after).units > 0) == changed(before, after)


@given(
    texts, texts, texts, st.lists(st.integers(1000, 9999).map(lambda i: f"unrelated_{i} = {i}"), max_size=4)
)
def test_other_peoples_new_lines_change_nothing(before: str, after: str, now: str, more: list[str]) -> None:
    grown = "\n".join([*more, now])
    assert persistence(before, after, grown).added_kept == persistence(before, after, now).added_kept
    assert persistence(before, after, grown).deleted_kept == persistence(before, after, now).deleted_kept


@given(texts, texts, st.randoms(use_true_random=False))
def test_shuffled_lines_are_moved_lines(before: str, after: str, random: object) -> None:
    kept = persistence(before, after, after)
    shuffled = after.split("\n")
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    if not kept.hunks:
        assert persistence(before, after, "\n".join(shuffled)) == kept


@given(texts, texts, texts)
def test_the_size_of_a_change_does_not_depend_on_what_came_of_it(before: str, after: str, now: str) -> None:
    assert persistence(before, after, "").added_kept == 0
    assert persistence(before, after, now).units == persistence(before, after, after).units


@given(texts, st.lists(st.tuples(texts, texts), max_size=3))
def test_many_changes_are_the_sum_of_each_and_none_keeps_anothers_line(
    now: str, changes: list[tuple[str, str]]
) -> None:
    total = sum((persistence(before, after, now) for before, after in changes), Kept())
    found = persistence_of_all(changes, now)
    assert (found.units, found.hunks_kept) == (total.units, total.hunks_kept)
    assert found.added_kept <= total.added_kept
    assert found.deleted_kept >= total.deleted_kept


def test_a_line_that_is_left_once_is_kept_once_in_however_many_edits_it_came() -> None:
    """Ten edits that each put in the same line kept ten of ten where one was left."""
    line, now = "    amount = sum(prices)", "def f():\n    amount = sum(prices)\n"
    assert persistence_of_all([("", line)] * 10, now) == Kept(added=10, added_kept=1)
    assert persistence_of_all([(line, "")] * 10, now) == Kept(deleted=10, deleted_kept=9)
    assert persistence_of_all([("", line)] * 2, f"{now}{line}\n{line}") == Kept(added=2, added_kept=2)


def test_an_edits_context_may_be_what_another_edit_put_in() -> None:
    """Two tests, the second put behind the last line of the first, both there: 5 of 6 lines were kept."""
    same = "    assert answer.status == 200"
    first, second = (f"def test_{name}():\n    answer = client.get('/{name}')\n{same}" for name in "ab")
    changes = [("import client", f"import client\n\n{first}"), (same, f"{same}\n\n{second}")]
    for order in (changes, changes[::-1]):
        found = persistence_of_all(order, f"import client\n\n{first}\n\n{second}\n")
        assert found == Kept(added=6, added_kept=6)


def test_what_came_back_is_not_taken_from_what_was_added() -> None:
    """Three lines moved into a function of their own with another indentation: 0.25 of it or all was kept,
    by which edit came first. The deleted lines are there, re-indented."""
    body = ["total = compute(x)", "save_total(total)", "notify_owner(total)"]
    inner, outer = ("\n".join(f"{blanks}{line}" for line in body) for blanks in ("        ", "    "))
    changes = [(inner, "        record(x)"), ("", f"def record(x):\n{outer}\n")]
    now = f"def record(x):\n{outer}\n\ndef f(x):\n    if x:\n        record(x)\n"
    for order in (changes, changes[::-1]):
        assert persistence_of_all(order, now) == Kept(added=5, added_kept=5, deleted=3)


_same = st.integers(0, 4).map(lambda n: "a = compute(b)\n" * n)


@given(_same, st.lists(st.tuples(_same, _same), min_size=2, max_size=4))
def test_the_order_of_edits_does_not_matter(now: str, changes: list[tuple[str, str]]) -> None:
    assert persistence_of_all(changes, now) == persistence_of_all(changes[::-1], now)


_few = st.lists(st.sampled_from(["", "a", "b", "ab"]), max_size=24)


@given(_few, _few)
def test_a_block_is_found_wherever_it_stands(block: list[str], lines: list[str]) -> None:
    places = range(len(lines) - len(block) + 1)
    found = sum(lines[n : n + len(block)] == block for n in places) if block else 0
    assert occurrences(block, joined(lines)) == found
    assert occurrences(lines, joined(lines)) == (1 if lines else 0)


@pytest.mark.parametrize("period", [1, 997])
def test_a_list_of_forty_thousand_numbers_takes_no_minutes(period: int) -> None:
    """It took the square of its lines: 50 s of these, hours of a million."""
    numbers = [str(n % period) for n in range(40_000)]
    others = [*numbers[:20_000], *(f"{n % period}," for n in range(20_000))]
    texts = ["\n".join(lines) for lines in (numbers, others, ["9", *others, "9"])]
    began = time.process_time()
    assert persistence(*texts) == Kept(hunks=1, hunks_kept=1)
    assert time.process_time() - began < 5


SHORT = st.lists(st.sampled_from(["a", "b", "}", " }"]), max_size=12)


def stands(block: list[str], lines: list[str]) -> int:
    return sum(lines[n : n + len(block)] == block for n in range(len(lines))) if block else 0


def alike(some: list[str], others: list[str]) -> int:
    return next(
        (n for n, (a, b) in enumerate(zip(some, others, strict=False)) if a != b), min(len(some), len(others))
    )


@given(SHORT, SHORT, SHORT)
def test_a_hunk_is_kept_that_stands_as_often_as_the_change_left_it(
    was: list[str], new: list[str], now: list[str]
) -> None:
    """As it is defined, line by line; the code looks for it in the text."""
    start = alike(was, new)
    end = alike(was[start:][::-1], new[start:][::-1])
    old, put = was[start : len(was) - end], new[start : len(new) - end]
    changes = difflib.SequenceMatcher(None, old, put, autojunk=False).get_opcodes()
    hunks = [(old[i:j], put[k:m]) for tag, i, j, k, m in changes if tag != "equal"]
    kept = [stands(b, now) >= stands(b, new) and stands(a, now) <= stands(a, new) for a, b in hunks]
    found = persistence(*("\n".join(lines) for lines in (was, new, now)))
    assert found == Kept(hunks=len(hunks), hunks_kept=0 if now == was else sum(kept))


def test_lines_that_are_alike_are_compared_in_bounded_time() -> None:
    """A diff of 11 KiB of braces took half a minute, and what stood in a text of 800 KiB an hour."""
    began = time.process_time()
    assert persistence("}\n" * 900, "}\n{\n" * 900, "}\n" * 900).hunks == 1
    many, more = "b\n" * 100_000, "b\n" * 200_000
    assert persistence("a\n" * 100_000, many, more) == Kept(hunks=1, hunks_kept=1)
    assert time.process_time() - began < 10


def test_a_long_text_is_put_together_once_for_all_changes_of_short_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was anew for each of them, so that a client's many small edits of a long file took hours."""
    sizes = []

    def counted(block: Sequence[str]) -> str:
        sizes.append(len(block))
        return joined(block)

    monkeypatch.setattr(lines_module, "joined", counted)
    changes = [(f"{n}", f"{n},") for n in range(100)]
    assert persistence_of_all(changes, "x = 1\n" * 100 + "9,") == Kept(hunks=100, hunks_kept=1)
    assert sizes.count(101) == 1


def test_two_changes_of_a_long_file_with_many_braces_are_two_hunks() -> None:
    """What is bounded is work, not likeness: all of the file lies between the two."""
    before = ["x = 0"] + [line for n in range(450) for line in (f"f{n}", "{", "}")] + ["y = 0"]
    after = ["x = 1", *before[1:-1], "y = 1"]
    now = ["x = 1", *before[1:]]
    assert persistence(*("\n".join(lines) for lines in (before, after, now))) == Kept(hunks=2, hunks_kept=1)
