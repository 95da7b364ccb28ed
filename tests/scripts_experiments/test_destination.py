"""Where an experiment's report goes."""

from __future__ import annotations

from pathlib import Path

import pytest
from experiments import PUBLISHED, destination, parse

PART = PUBLISHED / "work/part"


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        ((), PUBLISHED),
        (("--json", "--workers", "1"), PUBLISHED),
        (("--first-seed", "11"), PUBLISHED),
        (("--only", "default", "--seeds", "1"), PART),
        (("--seeds", "1"), PART),
        (("--set", "train.kl=0"), PART),
        (("--spec", "mine.toml"), PART),
        (("--only", "default", "--out", "here"), Path("here")),
    ],
)
def test_a_part_does_not_take_the_place_of_what_is_published(asked: tuple[str, ...], place: Path) -> None:
    assert destination(parse(["hacks", *asked])) == place
