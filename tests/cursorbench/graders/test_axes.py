"""Estimators, cost and interaction: numbers computed by hand."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorbench.errors import InputMissingError, UsageError
from cursorbench.graders import interaction
from cursorbench.graders.efficiency import Price, Usage, cost, price_of, read_prices
from cursorbench.graders.pass_at import pass_at


def test_pass_at_by_hand() -> None:
    assert pass_at(1, 3, 4) == pytest.approx(0.75)
    assert pass_at(2, 1, 4) == pytest.approx(0.5)  # 1 - C(3,2)/C(4,2)
    assert pass_at(4, 1, 4) == 1.0
    assert pass_at(3, 0, 5) == 0.0
    for wrong in ((0, 1, 4), (5, 1, 4), (1, 5, 4)):
        with pytest.raises(ValueError, match="attempts"):
            pass_at(*wrong)


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_pass_at_is_the_mean_over_all_draws(solved: list[bool], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(solved)))
    assert pass_at(k, sum(solved), len(solved)) == pytest.approx(mean(map(any, combinations(solved, k))))


def test_cost_by_hand(tmp_path: Path) -> None:
    table = tmp_path / "prices.toml"
    table.write_text('["a/b"]\ninput = 2.0\ncached_input = 0.5\noutput = 8.0\n["*"]\ninput = 1\noutput = 1\n')
    prices = read_prices(table)
    used = Usage(prompt_tokens=1_000_000, cached_tokens=400_000, output_tokens=250_000)
    assert cost(used, prices["a/b"]) == pytest.approx(0.6 * 2 + 0.4 * 0.5 + 0.25 * 8)
    assert price_of("other", prices) == Price(1, 1)
    assert price_of("other", {}) is None
    assert cost(used, Price(1, 1)) == pytest.approx(1.25)  # cached as dear as fresh


def test_a_price_table_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputMissingError):
        read_prices(tmp_path / "no.toml")
    wrong = ["[", "[a]\ninput = 1", "[a]\ninput = 1\noutput = 1\nper_call = 2", "a = " + "[" * 9999]
    wrong += [f"[a]\ninput = 1\noutput = {price}" for price in ("nan", "inf", "-1")]
    for text in wrong:
        (tmp_path / "bad.toml").write_text(text)
        with pytest.raises(UsageError):
            read_prices(tmp_path / "bad.toml")


@pytest.mark.parametrize(
    ("diff", "text", "did"),
    [
        ("diff --git a/x b/x\n", "Is that right?", "acted"),
        ("", "Which of the two do you mean?", "asked"),
        ("  \n", "Done.", "answered"),
        ("", "See https://x/?q=1 and `a ? b : c`.", "answered"),
        ("", "Why? " + "Because of this. " * 60, "answered"),
    ],
)
def test_what_the_agent_did(diff: str, text: str, did: str) -> None:
    assert interaction.did(diff, text) == did


def test_asking_is_right_where_the_task_is_ambiguous() -> None:
    assert interaction.right("asked", "feature", ambiguous=True) is True
    assert interaction.right("acted", "feature", ambiguous=True) is False
    assert interaction.right("asked", "debug", ambiguous=False) is False
    assert interaction.right("answered", "debug", ambiguous=False) is False
    assert interaction.right("acted", "debug", ambiguous=False) is True
    assert interaction.right("answered", "investigate", ambiguous=False) is None
