"""Which episodes are the best and the worst, and that their texts go through redaction or stay shut."""

from __future__ import annotations

import pyarrow as pa
import pytest

from stages.report import examples
from stages.report.examples import SHOWN, Example, extremes
from stages.report.text import fit, fit_end, identifier


def table(*rows: tuple[float | None, str, int]) -> pa.Table:
    reward, session, at = zip(*rows, strict=True)
    return pa.table({"reward": pa.array(reward, pa.float64()), "session": session, "at": at})


def test_best_and_worst_are_of_different_sessions_and_in_one_list_only() -> None:
    found = table((5.0, "a", 1), (4.0, "a", 1), (3.0, "b", 1), (None, "c", 1), (-1.0, "d", 1), (-2.0, "d", 1))
    assert extremes(found, 2) == ([0, 2], [5, 4])  # not a again while there is another
    assert extremes(found, 5) == ([0, 1, 2], [5, 4])
    assert extremes(table((None, "a", 1))) == ([], [])
    assert extremes(table((1.0, "a", 1))) == ([0], [])


def test_among_equals_the_newest() -> None:
    assert extremes(table((1.0, "a", 1), (1.0, "b", 3), (1.0, "c", 2)), 1) == ([1], [0])
    assert extremes(table((0.0, "a", 1), (0.0, "b", 3), (1.0, "c", 2), (1.0, "d", 4)), 1) == ([3], [1])


def test_text_is_cut_and_nothing_invisible_is_left() -> None:
    assert fit("a\x00b\u202ec\u200b\x1b", 10) == "abc"
    assert fit("x y " * 100, 300) == ("x y " * 75).strip() + "…"
    assert fit("one\n\ttwo\n", 300) == "one\n\ttwo"
    assert fit("half\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "surrogatepass"), 9) == "half"


def test_a_secret_is_masked_though_invisibly_split_or_cut() -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    split = secret[:9] + "\u200b" + secret[9:]
    assert "D4e5" not in fit(f"my key is {split} thanks", 300)
    assert "ghp_" not in fit("word " * 58 + secret, 300)
    assert "D4e5" not in fit_end(f"my key is {split} thanks", 300)
    assert "N4o5" not in fit_end(secret + " word" * 58, 300)


def test_an_id_shows_nobody_and_can_be_looked_up() -> None:
    """Clients name sessions after people and folders, and the page left the workspace with these names."""
    assert identifier("ada@corp.io@x1f2e3d4c5b6a7f8x/gen-1") == "[redacted:email]@x1f2e3d4c5b6a7f8x/gen-1"
    assert identifier("/home/ada/shop\u202e@x1x/2") == "/home/[redacted:home_path]/shop@x1x/2"
    for name in (
        "claude-code:8da4591f71e90712fd32de08:0",
        "V1StGXR8_Z5jdHi6BqmyT:3",
        "shop-1@x1f2e3d4c5b6a7f8x/g",
    ):
        assert identifier(name) == name


def test_the_end_of_a_text() -> None:
    assert fit_end("one two three", 8) == "…wo three"
    assert fit_end("one two three", 6) == "…three"
    assert fit_end(" short\n", 5) == "short"


@pytest.mark.parametrize(
    ("answer", "shown"), [("Done.", "Done."), ("y" * SHOWN + "end", "…" + "y" * (SHOWN - 3) + "end")]
)
def test_of_an_answer_its_end(answer: str, shown: str) -> None:
    example = Example("e", 0, {}, 1.0, (), examples.WITHHELD)
    found = examples._with_texts(example, (examples.SHOWN_STATE, "z" * 900, answer))
    assert (found.answer, found.request) == (shown, "z" * SHOWN + "…")
