"""docs/data.md and docs/hacks.md are true: the keys of a reward spec, the exits by their names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from stages.distill import spec
from stages.exits import EXITS

DOCS = Path(__file__).resolve().parents[2] / "docs"
TABLES: dict[str, type[BaseModel]] = {
    "the file itself": spec.RewardSpec,
    "`[horizons]`": spec.Horizons,
    "`[signals.NAME]`": spec.SignalSpec,
    "`[length_cost]`": spec.LengthCost,
    "`[latency]`": spec.Latency,
    "`[stabiliser]`": spec.Stabiliser,
    "`[drop.SIGNAL]`": spec.Drop,
}
SECTIONS = {"horizons", "signals", "length_cost", "latency", "stabiliser", "drop", "accepted_exits"}
TOLD_OF_ALL = {"low", "high"}  # a fixed band's: needed, whatever stands as their default


def rows(page: str, head: str) -> dict[str, str]:
    """First cell and the rest of the rows below a table's head."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = dict[str, str]()
    for line in text[text.index(head) :].split("\n")[2:]:
        if not line.startswith("|"):
            return found
        first, rest = line.strip("|").split("|", 1)
        found[first.strip()] = rest.strip()
    return found


@pytest.mark.parametrize("table", TABLES)
def test_every_key_of_a_reward_spec_is_told_with_its_default(table: str) -> None:
    row = rows("data.md", "| table | keys |")[table]
    for name, field in TABLES[table].model_fields.items():
        key = field.alias or name
        if table == "the file itself" and key in SECTIONS:
            continue
        assert f"`{key}`" in row, f"{table}: {key}"
        default = field.get_default(call_default_factory=True)
        if type(default) in (int, float) and key not in TOLD_OF_ALL:
            assert re.search(rf"`{key}`(?: =|,)? \(?`?{default:g}\b", row), f"{table}: {key} is {default:g}"
        elif default is PydanticUndefined:
            assert re.search(rf"`{key}`[^;]*\brequired|`{key}`, always|`{key}`, which", row), (
                f"{table}: {key}"
            )


def test_every_table_of_a_reward_spec_is_told() -> None:
    told = set(re.findall(r"\[(\w+)", " ".join(rows("data.md", "| table | keys |"))))
    assert told == SECTIONS


def test_every_exit_is_told_by_whom_it_is() -> None:
    hands = dict[str, str]()
    for by, rest in rows("hacks.md", "| by | exits |").items():
        exits = rest.split(" | ")[0]
        hands |= {name: by.split(",")[0] for name in re.findall(r"`(\w+)`", exits)}
    assert {name: hands.get(name) for name in EXITS} == {name: one.by for name, one in EXITS.items()}
