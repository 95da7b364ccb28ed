"""What the demo shows: figures of use, tables, plot, and its record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evals.cases import Attempt
from evals.suites.harness import HarnessSuite
from stages.demo import figures, final, plot, table
from stages.demo.record import Record, check_same, read
from stages.errors import IntegrityError, UsageError
from stages.stage import Artifact, Kind


def artifact(kind: Kind, path: Path) -> Artifact:
    return Artifact(kind, "sha256:" + "0" * 64, 1, "auto", 0, "", "run", {}, path)


def estimate(value: float, half: float = 0.02) -> dict[str, Any]:
    return {"value": value, "low": value - half, "high": value + half, "cases": 10, "clusters": 5}


def document() -> dict[str, Any]:
    rows = [
        {
            "cycle": number,
            "served": f"checkpoint@v{number}",
            "verdict": "pass",
            "figures": {name: estimate(0.3 + 0.1 * number) for name in figures.NAMES},
        }
        for number in (1, 2)
    ]
    held = {
        name: {
            "first": estimate(0.4),
            "last": estimate(0.6),
            "gain": 0.2,
            "low": 0.1,
            "high": 0.3,
            "apart": True,
            "better": True,
        }
        for name in table.FINAL
    }
    ends = {"first": {"ref": "checkpoint@v1"}, "last": {"ref": "checkpoint@v3"}}
    return {"seed": 0, "cycles": rows, "final": {"requests": 90, "users": 15, "figures": held, **ends}}


def test_use_by_hand(tmp_path: Path) -> None:
    """Three episodes of two users; one edit is unknown, one call broken in the second of two generations."""
    part = tmp_path / "part-00000"
    part.mkdir()
    pq.write_table(
        pa.table(
            {
                "episode": ["a", "a", "b", "c"],
                "duration_ms": [100.0, 300.0, 200.0, 600.0],
                "invalid_tool_calls": [0, 2, 0, 0],
            }
        ),
        part / "generations.parquet",
    )
    pq.write_table(
        pa.table(
            {
                "episode_id": ["a", "b", "c"],
                "user": ["u", "u", "v"],
                "edit_persistence": [1.0, None, 0.5],
                "dissatisfied_followup": [0.1, 0.9, None],
                "clarified": [0.0, 1.0, 0.0],
            }
        ),
        tmp_path / "episodes.parquet",
    )
    found = figures.of_use(artifact("interactions", tmp_path), artifact("experience", tmp_path))
    assert set(found) == set(figures.NAMES)
    assert found["edit_persistence"]["value"] == pytest.approx(0.75)
    assert found["edit_persistence"]["cases"] == 2
    assert found["dissatisfied_followup"]["value"] == pytest.approx(0.5)
    assert found["latency_s"]["value"] == pytest.approx((0.4 + 0.2 + 0.6) / 3)
    assert found["invalid_calls"]["value"] == pytest.approx(1 / 3)
    assert found["ask_rate"]["value"] == pytest.approx(1 / 3)


def test_tables() -> None:
    text = table.summary(document())
    assert "0.400 (0.380-0.420)" in text
    assert "the same 90 requests of 15 held-out users, checkpoint@v1 (first) and checkpoint@v3" in text
    assert max(len(line) for line in text.splitlines()) <= 140
    assert table.cell({"value": None, "low": None, "high": None}) == "-"


def test_headline_says_whether_it_got_better() -> None:
    found = table.headline(document())
    assert found["better"] is True
    assert found["edit_persistence_last"] == 0.6
    worse = document()
    worse["final"]["figures"]["edit_persistence"]["better"] = False
    assert table.headline(worse)["better"] is False
    assert table.headline({"cycles": [], "final": None}) == {"cycles_run": 0}


def test_plot_is_a_png(tmp_path: Path) -> None:
    path = tmp_path / "demo.png"
    shown = document()
    shown["cycles"][1]["figures"]["edit_persistence"] = {"value": None, "low": None, "high": None}
    plot.draw(path, shown["cycles"], shown["final"])
    assert path.read_bytes().startswith(b"\x89PNG")
    plot.draw(path, [], None)


def test_first_against_last() -> None:
    spec = HarnessSuite(60, 0).spec
    names = [metric.name for metric in spec.metrics]

    def arm(share: float) -> list[Attempt]:
        return [
            Attempt(f"c{i}", f"u{i // 4}", 0, {name: (float(i % 10 < 10 * share), 1.0) for name in names})
            for i in range(400)
        ]

    found = final.figures(spec, arm(0.3), arm(0.6))
    kept = found["edit_persistence"]
    assert kept["first"]["value"] == pytest.approx(0.3)
    assert kept["gain"] == pytest.approx(0.3)
    assert kept["apart"]
    assert kept["better"]
    assert found["dissatisfied_followup"]["apart"]
    assert not found["dissatisfied_followup"]["better"], "more complaints are not better"
    assert not final.figures(spec, arm(0.3), arm(0.3))["edit_persistence"]["apart"]


def test_record(tmp_path: Path) -> None:
    assert read(tmp_path) is None
    record = Record(seed=3, first="sha256:aa", rows=[{"cycle": 1}])
    record.save(tmp_path)
    assert read(tmp_path) == record
    check_same(record, 3)
    with pytest.raises(UsageError, match="has seed 3, not 4") as caught:
        check_same(record, 4)
    assert "--seed 3" in caught.value.hint
    for torn in ("{", "[]", '"text"', "{}"):
        (tmp_path / "demo.json").write_text(torn)
        with pytest.raises(IntegrityError):
            read(tmp_path)
