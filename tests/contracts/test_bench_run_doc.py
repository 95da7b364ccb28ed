"""The tables of docs/bench-run.md say what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from cursorbench.graders.flags import PATTERNS
from cursorbench.graders.rubric import Rubric
from evals.trials.causes import TABLE
from evals.trials.summary import summarise
from tests.evals.trials.test_summary import record

DOC = Path(__file__).parents[2] / "docs" / "bench-run.md"


def test_the_table_of_causes_is_the_codes() -> None:
    text = DOC.read_text("utf-8")
    shown = text.partition("<!-- causes -->")[2].partition("<!-- /causes -->")[0].strip().splitlines()[2:]
    rows = [
        f"| `{name}` | {one.whose or '-'} | {one.retries or '-'} | `{one.grade}` | {one.what} |"
        for name, one in TABLE.items()
    ]
    assert shown == rows


def test_flags_and_figures_are_named() -> None:
    text = DOC.read_text("utf-8")
    for name in (*PATTERNS, "deciding", "tests", "symlink"):
        assert f"`{name}`" in text, name
    figures = summarise(
        [
            record(
                "a1",
                0,
                right=True,
                cost=1.0,
                quality={"lint": 0, "types": 0, "size_ratio": 1.0},
                rubric={"met": [True]},
            )
        ],
        1,
    ).figures
    for one in figures:
        assert f"`{one.name}`" in text or one.axis == "rubric", one.name


def test_the_rubric_that_is_shown_is_one() -> None:
    text = DOC.read_text("utf-8")
    shown = re.findall(r"```toml\n(url = .*?)```", text, re.DOTALL)
    import tomllib

    import msgspec

    assert msgspec.convert(tomllib.loads(shown[0]), Rubric).votes == 3
