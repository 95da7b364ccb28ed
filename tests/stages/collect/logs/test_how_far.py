"""While logs are read, whoever waits hears of how many files, and how many records."""

from __future__ import annotations

from pathlib import Path

from cursorbench.sessions import items as said
from stages.collect.logs.how_far import read
from stages.collect.logs.source import Source
from stages.inbox.reader import Left
from stages.vault import Vault

ITEMS = {
    "a": 1500,
    "b": 1,
    "refs": 2000,
    "c": 700,
}  # records by file; of a branch, that is no file of the two


class Told:
    def __init__(self) -> None:
        self.started: list[tuple[str, int | None]] = []
        self.said: list[tuple[int, str]] = []

    def start(self, what: str, total: int | None = None) -> None:
        self.started.append((what, total))

    def advance(self, n: int = 1, note: str = "") -> None:
        self.said.append((n, note))

    def message(self, text: str) -> None:
        """Nothing of it here."""


class Made(Source):
    def read(self, vault: Vault, left: Left) -> object:  # type: ignore[override]
        for file, n in ITEMS.items():
            for line in range(n):
                yield "k", said.Quarantined(said.Place(file, line), "r"), None


def test_files_of_all_and_records(tmp_path: Path) -> None:
    told = Told()
    vault = Vault.create(tmp_path / "keys")
    try:
        found = list(read(Made((tmp_path,), listed=2), vault, Left(), "reading", told))
    finally:
        vault.close()
    assert len(found) == 4201
    assert told.started == [("reading", 2)]
    assert told.said == [
        (0, "1 record"),  # the first file is begun, none is done
        (0, "1024 records"),
        (1, "1501 records"),
        (0, "2048 records"),
        (0, "3072 records"),
        (0, "4096 records"),
    ]


def test_what_lies_in_no_file_has_no_total(tmp_path: Path) -> None:
    told = Told()
    vault = Vault.create(tmp_path / "keys")
    try:
        list(read(Made((tmp_path,)), vault, Left(), "reading", told))
    finally:
        vault.close()
    assert told.started == [("reading", None)]
    assert [n for n, _ in told.said] == [0, 0, 0, 0]
