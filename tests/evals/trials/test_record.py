"""Records on the disk: whole or not there, and never another trial's."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evals.trials.record import Folder, Record, key, put

NAME = key("sha256:c", "sha256:t", 0)


def record(**changes: object) -> Record:
    return Record(**{"key": NAME, "task": "t", "cluster": "c", "attempt": 0, "cause": "solved", **changes})  # type: ignore[arg-type]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.read(NAME) is None
    folder.write(record(passed=True, diff="ä\n", correctness={"failed": ("a",)}))
    found = folder.read(NAME)
    assert found is not None
    assert (found.passed, found.diff, found.correctness) == (True, "ä\n", {"failed": ["a"]})
    assert list(folder.names()) == [NAME]
    assert folder.read(NAME, "again") is None


def test_conditions_task_and_attempt_make_the_name() -> None:
    names = {
        NAME,
        key("sha256:d", "sha256:t", 0),
        key("sha256:c", "sha256:u", 0),
        key("sha256:c", "sha256:t", 1),
    }
    assert len(names) == 4
    assert key("sha256:c", "sha256:t", 0) == NAME


@given(st.binary(max_size=60), st.integers(0, 400))
@example(b'\x80"', 11)  # no UTF-8 where a text is expected is another error than other damage
def test_damage_is_moved_aside_and_said(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, cut: int
) -> None:
    folder = Folder(tmp_path_factory.mktemp("records"))
    folder.write(record())
    path = folder.place("trials", NAME)
    path.write_bytes(path.read_bytes()[:cut] + junk)
    if folder.read(NAME) is None:
        assert len(folder.damaged) == 1
        assert not path.exists()
        assert folder.read(NAME) is None
        folder.write(record())
    assert folder.read(NAME) is not None


def test_another_trials_record_does_not_count(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    put(folder.place("trials", "f" * 64), Folder(tmp_path).place("trials", NAME).name.encode())
    assert folder.read("f" * 64) is None
    for wrong in (record(key="0" * 64), record(cause="unheard_of"), record(schema="rtrl-trial/9")):
        import msgspec

        put(folder.place("trials", NAME), msgspec.json.encode(wrong))
        assert folder.read(NAME) is None
    assert len(folder.damaged) == 4


def test_damage_that_two_runs_find_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, other = Folder(tmp_path), Folder(tmp_path)
    put(folder.place("trials", NAME), b"{")
    read = Path.read_bytes

    def at_once(path: Path) -> bytes:
        content = read(path)
        monkeypatch.setattr(Path, "read_bytes", read)
        assert other.read(NAME) is None
        return content

    monkeypatch.setattr(Path, "read_bytes", at_once)
    assert folder.read(NAME) is None
    assert (len(folder.damaged), len(other.damaged)) == (1, 1)


def test_a_half_written_file_is_in_nobodys_way(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write(record())
    (folder.place("trials", NAME).parent / f".{NAME}.json.0badcafe").write_bytes(b'{"key"')
    assert list(folder.names()) == [NAME]
