"""Numbers in sentences."""

from __future__ import annotations

from stages.wording import count


def test_one_is_in_the_singular() -> None:
    assert [count(n, "file") for n in (0, 1, 2)] == ["0 files", "1 file", "2 files"]
