"""The fuzz run finds what it looks for: exceptions, hangs, and good lines that are lost."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import ModuleType

import pytest

from cursorbench.sessions import kinds
from cursorbench.sessions.items import Place, Read, UserTurn
from cursorbench.sessions.seen import Seen

ROOT = Path(__file__).resolve().parents[2]
LOG = b'{"text": "one"}\n{"text": "two"}\n{"text": "three"}\n'


@pytest.fixture
def fuzz(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    sys.modules.pop("fuzz", None)
    import fuzz

    return fuzz


class Reader:
    """Line by line; what it does wrong is up to `mistake`."""

    KIND = "toy"

    def __init__(self, mistake: str) -> None:
        self.mistake = mistake

    def recognises(self, path: Path, head: bytes) -> bool:
        return False

    def read(self, path: Path, seen: Seen) -> Iterator[Read]:
        for line in path.read_bytes().splitlines():
            good = line.startswith(b'{"text"') and line.endswith(b"}")
            if not good and self.mistake == "raises":
                raise ValueError("what is this?")
            if not good and self.mistake == "stops":
                return
            while not good and self.mistake == "hangs":
                pass
            if good:
                yield UserTurn(session="s", place=Place(str(path)), text=line.decode("utf-8", "replace"))


def wrong(fuzz: ModuleType, monkeypatch: pytest.MonkeyPatch, folder: Path, mistake: str) -> list[str]:
    monkeypatch.setattr(kinds, "adapters", lambda: {"toy": Reader(mistake)})
    monkeypatch.setattr(fuzz, "LINES", frozenset({"toy"}))
    monkeypatch.setattr(fuzz, "SECONDS", 0.5 if mistake == "hangs" else 100)
    n = 2 if mistake == "hangs" else 40
    return [fuzz.one("toy", LOG, folder / "log", Random(number)) for number in range(n)]


def test_a_reader_without_fault_has_none(
    fuzz: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert not any(wrong(fuzz, monkeypatch, tmp_path, ""))


@pytest.mark.parametrize(
    ("mistake", "said"),
    [("raises", "what is this?"), ("stops", "a line of garbage"), ("hangs", "longer than")],
)
def test_each_kind_of_fault_is_found(
    fuzz: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mistake: str, said: str
) -> None:
    import signal

    before = signal.signal(signal.SIGPROF, fuzz._too_slow)
    try:
        found = wrong(fuzz, monkeypatch, tmp_path, mistake)
    finally:
        signal.signal(signal.SIGPROF, before)
    assert any(said in each for each in found)


@pytest.mark.parametrize(("kind", "code"), [("tensorzero", 0), ("codex", 1)])
def test_a_kind_of_which_there_are_generated_logs_alone_is_fuzzed_too(
    kind: str, code: int, fuzz: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `--kind` it ended with 1, "no log that is recognised"."""
    asked: list[set[str]] = []

    def counted(files: list[tuple[str, Path]], *_: object) -> tuple[Counter[str], list[object]]:
        asked.append({kind for kind, _ in files})
        return Counter({kind: 1}), []

    monkeypatch.setattr(fuzz, "fuzz", counted)
    monkeypatch.setattr(sys, "argv", ["fuzz.py", "--kind", kind, "--data", str(tmp_path), "--json"])
    assert fuzz.main() == code
    assert asked == ([{kind}] if code == 0 else [])
