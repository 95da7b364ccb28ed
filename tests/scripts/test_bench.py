from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """`bench.py` with other benches than its own."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    benches = importlib.import_module("benches")
    monkeypatch.setattr(benches, "__path__", [str(tmp_path)])
    figure = {"id": "a.x", "what": "x", "value": 2.0, "unit": "s", "bar": "<= 1"}
    (tmp_path / "a.py").write_text(f"def figures(): return [{figure}]")
    (tmp_path / "b.py").write_text("def figures(): raise RuntimeError('the measurement failed')")
    (tmp_path / "c.py").write_text("def figures(): return [{'id': 'c.x', 'value': 1}]")
    (tmp_path / "_helper.py").write_text("")
    yield importlib.import_module("bench")
    for name in [name for name in sys.modules if name in ("bench", "benches") or name.startswith("benches.")]:
        del sys.modules[name]


def run(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["bench.py", *arguments])
    return bench.main(), capsys.readouterr().out


def test_a_missed_bar_is_no_failure(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = run(bench, monkeypatch, capsys, "a", "--json")
    document = json.loads(out)
    assert (code, document["bench"], document["figures"][0]["value"]) == (0, "a", 2.0)
    assert set(document) == {"bench", "machine", "figures"}
    code, out = run(bench, monkeypatch, capsys, "a")
    assert (code, "MISSED" in out) == (0, True)


@pytest.mark.parametrize("name", ["b", "c"])
def test_a_failed_measurement_is(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    code, out = run(bench, monkeypatch, capsys, name, "a", "--json")
    assert code == 1
    assert [figure["id"] for figure in json.loads(out)["figures"]] == ["a.x"]


def test_bars_by_hand(bench: ModuleType) -> None:
    held = {"<= 2": True, "<= 1.9": False, ">= 2": True, "> 2": False, "== 2": True, None: None, "": None}
    for bar, expected in held.items():
        assert bench.holds({"value": 2.0, "bar": bar}) is expected
    assert bench.holds({"value": None, "bar": "<= 1"}) is None


def test_the_benches_there_are() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "bench.py")], capture_output=True, text=True, check=True
    )
    assert {"cli", "registry"} <= set(done.stdout.split())
