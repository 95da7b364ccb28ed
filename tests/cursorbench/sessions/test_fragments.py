"""Where a part of a file stands in it."""

from __future__ import annotations

import pytest

from cursorbench.sessions.fragments import places


@pytest.mark.parametrize(
    ("part", "text", "other", "found"),
    [
        ("=30", "a=30\nb=30\n", "", [1, 6]),
        ("30", "a=30\nb=301\n30", "", [2, 11]),  # not within a number
        ("a", "a ba ab a_ (a)", "", [0, 12]),
        ("(x", "f(x, g(xy)", "", [1]),  # begins with no letter, ends with one
        ("aa", "aa-aa", "", [0, 3]),
        ("--", "-----", "", [0, 2]),  # none twice
        ("=3", "t=30 t=3", "=30", [6]),  # not as a piece of what it replaced
        (" \n", "a \n", "", []),
        ("a\nb", "a\nb\na\nbc\n", "", [0]),
    ],
)
def test_places(part: str, text: str, other: str, found: list[int]) -> None:
    assert places(part, text, other) == found
