"""`bench.py gateway`: its load generators before a gateway and a stub, and what its flags choose."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture(scope="module")
def document() -> dict[str, object]:
    """What a very small run prints."""
    line = [sys.executable, str(SCRIPTS / "bench.py"), "gateway", "--json", "--no-peer", "--runs", "1"]
    parts = ["--part", "saturation", "--part", "soak", "--seconds", "0.5", "--soak-seconds", "3"]
    done = subprocess.run([*line, *parts], capture_output=True, text=True, check=True, timeout=120)
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return {figure["id"]: figure for figure in found["figures"]}


def test_only_the_parts_that_were_asked_for(document: dict[str, dict[str, float]]) -> None:
    assert set(document) == {
        *("gateway.saturation_stub", "gateway.saturation_gateway", "gateway.cpu_ms_per_answer"),
        *("gateway.soak_mib_per_min", "gateway.soak_mib", "gateway.soak_requests", "gateway.lost"),
    }


def test_what_was_answered_is_in_the_spool(document: dict[str, dict[str, float]]) -> None:
    assert document["gateway.lost"]["value"] == 0
    assert document["gateway.saturation_gateway"]["value"] > 50
    assert document["gateway.soak_requests"]["value"] > 50
    assert 0 < document["gateway.cpu_ms_per_answer"]["value"] < 50


def test_help_names_what_a_bench_takes() -> None:
    line = [sys.executable, str(SCRIPTS / "bench.py"), "gateway", "--help"]
    shown = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    for flag in ("--part", "--soak-seconds", "--runs", "--json"):
        assert flag in shown
