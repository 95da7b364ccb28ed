"""A spec that contradicts itself fails when it is resolved, and says where."""

from __future__ import annotations

from pathlib import Path

import pytest

from stages.distill.spec import load, parse
from stages.errors import InputMissingError, UsageError

GOOD = """
schema = "rtrl-reward/1"
name = "x"
[signals.edit_persistence]
weight = 1.0
unknown = 0.0
"""


def test_the_digest_is_of_the_meaning() -> None:
    other_order = GOOD.replace("weight = 1.0\nunknown = 0.0", "unknown = 0 # comment\nweight = 1.0")
    assert parse(GOOD, "x").digest == parse(other_order, "x").digest
    assert parse(GOOD, "x").digest != parse(GOOD.replace("1.0", "1.5"), "x").digest
    assert parse(GOOD, "x").digest.startswith("sha256:")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("unknown = 0.0", ""), "signals.edit_persistence.unknown: Field required"),
        (("weight = 1.0", "weight = 1.0\nwieght = 2.0"), "wieght: Extra inputs are not permitted"),
        (("weight = 1.0", "weight = nan"), "weight: Input should be a finite number"),
        (("unknown = 0.0", "unknown = inf"), "unknown"),
        (("edit_persistence", "edit_persistance"), "no signal is called edit_persistance"),
        (
            ("unknown = 0.0", "unknown = 0.0\n[drop.edit_persistance]\nbelow = 0.1"),
            "drop.edit_persistance: no signal",
        ),
        (("unknown = 0.0", "unknown = 0.0\n[drop.edited]"), "say above or below"),
        (
            ("unknown = 0.0", "unknown = 0.0\n[drop.edited]\nabove = 0.2\nbelow = 0.8"),
            "every episode would be left out",
        ),
        (
            ("unknown = 0.0", 'unknown = 0.0\n[accepted_exits]\n"drop:edited" = "why"'),
            "has no exit drop:edited",
        ),
        (
            ("unknown = 0.0", 'unknown = "exclude"\n[accepted_exits]\n"unknown:edit_persistence" = " "'),
            "unknown:edit_persistence needs a reason",
        ),
        (("weight = 1.0", "weight = 1.0\nlow = 2.0\nhigh = 1.0"), "low must be below high"),
        (('name = "x"', 'name = "x"\nclip = [1.0, -1.0]'), "the lower bound must be below"),
        (("rtrl-reward/1", "rtrl-reward/2"), "schema"),
        (("weight = 1.0", "weight ="), "is not TOML"),
        (("[signals.edit_persistence]", "[signal.edit_persistence]"), "signals: Field required"),
        (
            ("unknown = 0.0", 'unknown = "zero"'),
            'signals.edit_persistence.unknown: must be a number, "mean" or "exclude", not \'zero\'',
        ),
        (("weight = 1.0", "weight = true"), "signals.edit_persistence: weight is no switch"),
        (("unknown = 0.0", "unknown = true"), "signals.edit_persistence: unknown is no switch"),
        (
            ("edit_persistence]", 'mine]\nfunction = "mine.py"'),
            "signals.mine.function: 'mine.py' is no function of a module: \"package.module:function\"",
        ),
        (('name = "x"', 'name = "x"\nclip = [1.0, -1.0]'), "reward spec mine: clip: the lower bound"),
    ],
)
def test_what_is_wrong_is_said(change: tuple[str, str], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(GOOD.replace(*change), "mine")
    assert caught.value.code == 2
    assert says in caught.value.message
    assert "mine" in caught.value.message
    assert caught.value.hint


def test_by_name_and_by_path(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(GOOD)
    assert load("mine.toml", tmp_path)[0].name == "x"
    assert load(str(tmp_path / "mine.toml"), Path("/nowhere"))[1] == GOOD
    assert load("default", tmp_path)[0].name == "default"
    for missing in ("none", "none.toml"):
        with pytest.raises(InputMissingError) as caught:
            load(missing, tmp_path)
        assert caught.value.code == 5


def test_a_byte_order_mark_is_none_of_the_spec(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(GOOD, encoding="utf-8-sig")
    assert load("mine.toml", tmp_path)[1] == GOOD


def test_shipped_specs_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputMissingError) as caught:
        load("habit", tmp_path)
    assert caught.value.hint.startswith("background, completions, default, habits, or")


def test_a_file_in_another_encoding_is_told_as_that(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(b"# caf\xe9\n" + GOOD.encode())
    with pytest.raises(UsageError, match=r"mine.toml is not UTF-8 \(line 1\)"):
        load("mine.toml", tmp_path)


def test_a_bad_stabiliser() -> None:
    bad = GOOD + "[stabiliser]\nlow = 0.9\nhigh = 0.1\nstep = 1\ninitial = 0\nminimum = 0\nmaximum = 1\n"
    with pytest.raises(UsageError, match="low <= high"):
        parse(bad, "x")


@pytest.mark.parametrize(
    ("band", "says"),
    [("low = 0.5", "low and high are needed"), ('band = "history"\nlow = 0.5', "leave low and high away")],
)
def test_a_band_is_of_numbers_or_of_history(band: str, says: str) -> None:
    rest = "step = 1\ninitial = 0\nminimum = 0\nmaximum = 1\n"
    with pytest.raises(UsageError, match=says):
        parse(f"{GOOD}[stabiliser]\n{band}\n{rest}", "x")
