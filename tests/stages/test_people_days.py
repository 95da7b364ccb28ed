"""Which days the simulated people of a workspace have lived."""

from __future__ import annotations

from pathlib import Path

import pytest

from stages.errors import IntegrityError
from stages.people_days import FILE, lived, next_day


def test_days_follow_one_another_by_split_and_seed(tmp_path: Path) -> None:
    assert next_day(tmp_path, "train", 0) == 0
    lived(tmp_path, "train", 0, 0)
    lived(tmp_path, "train", 0, 4)
    assert [next_day(tmp_path, "train", seed) for seed in (0, 1)] == [5, 0]
    assert next_day(tmp_path, "heldout", 0) == 0


@pytest.mark.parametrize("text", ["", "\0\0", "[]", "3", '{"train-0": "x"}', '{"train-0": null}'])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    """A list in it, or a day that is no number, was a bug (exit 1)."""
    (tmp_path / FILE).write_text(text)
    with pytest.raises(IntegrityError, match="is no table of days"):
        next_day(tmp_path, "train", 0)
