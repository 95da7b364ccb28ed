"""What of a solution a prompt has, counted by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cursorbench.builder.leak import RUN, Leak, leak, longest_run

SOLUTION = [
    "def total(rows, *, skip=None):",
    "    kept = [row for row in rows if row != skip]",
    "    return sum(row.price * row.count for row in kept)",
    "",
    "    }",
]


def measured(prompt: str, lines: list[str] | None = None) -> Leak:
    return leak(prompt, {"shop/total.py": SOLUTION if lines is None else lines})


def test_a_wish_is_none() -> None:
    """Three added lines have eight characters and more; the wish names things and has none of them."""
    assert measured("total() should leave out rows that are equal to `skip`, None by default") == Leak(
        "", 0, 3, 0
    )


@pytest.mark.parametrize(
    "pasted",
    [
        "please apply\ndiff --git a/x.py b/x.py\n",
        "> @@ -1,2 +1,3 @@ def f",
        "@@ -1 +1 @@",
        "*** Begin Patch\n*** Update File: x.py",
    ],
)
def test_a_pasted_patch_is_one_whatever_it_says(pasted: str) -> None:
    assert measured(pasted).kind == "patch"


def test_two_lines_of_three_are_half_and_more() -> None:
    prompt = f"make it like\n{SOLUTION[0]}\n   {SOLUTION[1].strip()}\nplease"
    assert measured(prompt) == Leak("lines", 2, 3, 26)


def test_one_line_of_three_is_not() -> None:
    """A signature is what a user names who knows what they want: 12 tokens, below a run."""
    found = measured(f"I'd like {SOLUTION[0]}")
    assert (found.kind, found.lines, found.run) == ("", 1, 0)


def test_the_only_line_is_all_there_is_to_it() -> None:
    only = ["    return text.split()"]
    assert measured("should be `return text.split()`, not split(' ')", only) == Leak("lines", 1, 1, 0)
    assert measured("split by any white space", only) == Leak("", 0, 1, 0)


def test_a_line_of_words_within_prose_is_none() -> None:
    """`return None` is two words: it counts as a line of its own only."""
    assert measured("it must return None then", ["return None"]).kind == ""
    assert measured("it must\nreturn None\nthen", ["return None"]).kind == "lines"


def test_lines_count_once() -> None:
    assert measured("x = compute(a, b)", ["x = compute(a, b)"] * 5 + ["y = other(a, b)"] * 5) == Leak(
        "", 1, 2, 0
    )


def test_a_run_over_line_ends() -> None:
    """The code joined in one line of prose: 24 tokens of it, no line of it whole in the prompt."""
    code = [
        "kept = [row for row in rows",
        "        if row != skip and row.price > 0",
        "        and row.count]",
    ]
    joined = " ".join(line.strip() for line in code)
    said = "kept = [ row for row in rows if row ! = skip and row . price > 0 and row . count ]"
    assert longest_run(f"so {joined} it is", "\n".join(code)) == said.count(" ") + 1 == 24


def test_prose_that_both_have_is_no_code() -> None:
    prose = (
        "the quick brown fox jumps over the lazy dog and then goes home to sleep until the next day, to wake"
    )
    assert longest_run(prose, f'"""{prose}"""') == 0


def test_runs_are_of_one_file() -> None:
    half = "a = f(b[0], c.d) + g(h"
    prompt = f"{half} {half}"
    assert leak(prompt, {"a.py": [half], "b.py": [half]}).run == 0
    assert leak(prompt, {"a.py": [half, half]}).run == 34


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300), st.lists(st.text(max_size=60), max_size=12))
def test_any_text_can_be_measured(prompt: str, lines: list[str]) -> None:
    found = measured(prompt, lines)
    assert 0 <= found.lines <= found.of
    assert found.run == 0 or found.run >= RUN


CODE = st.lists(
    st.sampled_from(["x", "y", "total", "(", ")", "[", "]", "=", "+", ".", ",", ":", "1", "if", "return"]),
    min_size=RUN + 20,
    max_size=80,
)


@settings(max_examples=60, deadline=None)
@given(CODE, st.text(alphabet="abc \n", max_size=40), st.integers(0, 20), st.integers(1, 20))
def test_a_pasted_piece_is_found(tokens: list[str], around: str, start: int, more: int) -> None:
    """Any run of code of RUN tokens and more is found, as long as it is, whatever stands round it."""
    piece = tokens[start : start + RUN + more]
    marks = [not token.isalnum() for token in piece]
    if any(4 * sum(marks[n : n + RUN]) < RUN for n in range(len(piece) - RUN + 1)):
        return
    assert longest_run(f"{around} {' '.join(piece)} {around}", " ".join(tokens)) >= min(
        len(piece), RUN + more
    )
