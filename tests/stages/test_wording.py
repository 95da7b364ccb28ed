"""Numbers in sentences."""

from __future__ import annotations

from stages.wording import count, digits, exit_status, percent


def test_one_is_in_the_singular() -> None:
    assert [count(n, "file") for n in (0, 1, 2)] == ["0 files", "1 file", "2 files"]


def test_a_share_is_told_as_it_was_set() -> None:
    """A canary of half a percent was told as one of 0%, and bounds at 1 - 0.001 as of 100%."""
    told = [percent(share) for share in (0.1, 0.005, 0.0125, 1 - 0.001, 0.07, 2 / 300)]
    assert told == ["10%", "0.5%", "1.25%", "99.9%", "7%", "0.6667%"]


def test_no_number_is_told_by_its_exponent() -> None:
    """1,234 tokens an episode were `1.23e+03`."""
    told = [digits(n) for n in (0.03124, 31.24, 999.4, 999.6, 1234.5, -12345.6, 0)]
    assert told == ["0.0312", "31.2", "999", "1000", "1234", "-12346", "0"]
    assert [digits(n, 4) for n in (0.03124, 9999.4, 9999.6)] == ["0.03124", "9999", "10000"]


def test_a_process_that_was_killed_is_told_with_who_mostly_does_it() -> None:
    assert [exit_status(code) for code in (0, 3, -15, -9)] == ["0", "3", "-15", "-9 (killed: out of memory?)"]
