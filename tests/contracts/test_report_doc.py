"""docs/report.md is true of `rtrl report --json`: the names of figures, the fields of a reading."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from stages.report import figures

DOC = (Path(__file__).resolve().parents[2] / "docs" / "report.md").read_text(encoding="utf-8")
PART = DOC[DOC.index("\n## For programs") :].split("\n## ")[1]


def test_every_field_of_a_reading_is_told() -> None:
    cells = re.findall(r"^\| (`.*?) \|", PART, re.MULTILINE)
    told = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    assert told == [field.name for field in fields(figures.Reading)]


def test_the_figures_stand_in_their_order() -> None:
    named = PART[PART.index("(`edit_persistence`") : PART.index(", a team's own;")]
    order = [one.name for one in (*figures.FIGURES, *figures._FURTHER)]
    assert re.findall(r"`(\w+)`", named) == order
