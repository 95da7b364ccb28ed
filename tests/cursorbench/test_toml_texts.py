"""A stranger's TOML is read, or refused in linear time and memory."""

from __future__ import annotations

import pytest

from cursorbench import toml_texts
from cursorbench.builder import declared


@pytest.mark.parametrize(
    "text",
    [
        "a." * 30_000 + "a = 1",
        "[" + "a . " * 30_000 + "a]",
        "x = {" + '"a b".' * 30_000 + "a = 1}",
        "'a'." * 30_000 + "a = 1",
        '"\\"".' * 30_000 + "a = 1",
    ],
)
def test_a_key_of_very_many_parts_is_refused(text: str) -> None:
    """tomllib takes the square of them: gigabytes."""
    with pytest.raises(ValueError, match="more than 200 parts"):
        toml_texts.loads(text)
    assert declared.toml(text) == {}


def test_whatever_else_has_dots_is_read() -> None:
    text = 'a.b."c.d" = "' + "1.2 " * 1000 + '"\nx = [' + '"a>=1.2.3", ' * 500 + "]\ny = '" + "." * 5000 + "'"
    assert toml_texts.loads(text)["a"]["b"]["c.d"].startswith("1.2 1.2")


@pytest.mark.parametrize("unit", ["a", '"', "'", "\\", '"a', "a.", '"\\"', "'a'.b "])
def test_looking_takes_no_time(unit: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  whatever is wrong with it
        toml_texts.loads(unit * (400_000 // len(unit)))
