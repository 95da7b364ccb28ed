"""What a rollback does before anything is loaded, by what the registry says; the rest is the stage's."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stages import locks
from stages.errors import LockedError
from stages.rollback import first
from stages.rollback.away import Asked
from stages.rollback.first import Begun, Previous
from stages.rollback.patience import Patience
from stages.rollback.traffic import Moved, intend
from stages.target.intent import write_intent

A, B, C = ("sha256:" + letter * 64 for letter in "abc")
SCHEMA = """
CREATE TABLE artifact (id INTEGER, digest TEXT);
CREATE TABLE alias (line TEXT, name TEXT, artifact_id INTEGER);
CREATE TABLE deployment (id TEXT, line TEXT, state TEXT, artifact_id INTEGER, previous TEXT);
"""
Row = tuple[str, str, str, str | None]  # id, state, checkpoint, previous
NOW: Row = ("d2", "live", B, A)


def registry(folder: Path, *rows: Row, live: str | None = B) -> Path:
    """Of a line: its deployments, and what is live."""
    (folder / first.FILE).unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(folder / first.FILE)) as made, made:
        made.executescript(SCHEMA)
        made.executemany("INSERT INTO artifact VALUES (?, ?)", enumerate((A, B, C)))
        places = {A: 0, B: 1, C: 2}
        for line in ("auto", "other"):
            mine = rows if line == "auto" else [("o2", "live", C, A)]
            told = [(name, line, state, places[of], before) for name, state, of, before in mine]
            made.executemany("INSERT INTO deployment VALUES (?, ?, ?, ?, ?)", told)
        of_lines = [("auto", "anchor", 0), ("other", "live", 2), ("auto", "live", places.get(live or ""))]
        made.executemany("INSERT INTO alias VALUES (?, ?, ?)", of_lines)
    return folder


def weights(folder: Path, digest: str, place: str = "objects/sha256") -> Path:
    name = digest.removeprefix("sha256:")
    made = folder / place / (name[:2] if place.startswith("objects") else "") / name
    made.mkdir(parents=True)
    (made / "model.safetensors").touch()
    return made


def test_a_plain_way_back(tmp_path: Path) -> None:
    assert first._previous(registry(tmp_path, NOW), "auto", "d2") is None  # its weights are not here whole
    folder = weights(tmp_path, A, "rebuilt")
    assert first._previous(tmp_path, "auto", "d2") == Previous(B, A, folder)
    kept = weights(tmp_path, A)
    assert first._previous(tmp_path, "auto", "") == Previous(B, A, kept)
    assert first._leaving(tmp_path, "auto") == "d2"


@pytest.mark.parametrize(
    ("rows", "live"),
    [
        ([("d2", "live", B, None)], B),  # nothing was before
        ([NOW], A),  # something else is live
        ([NOW], None),
        ([NOW, ("d3", "rolling_back", C, B)], B),  # one is under way
        ([("d2", "rolling_back", B, A)], B),
        ([("d2", "rolling_back", B, A), ("d3", "canary", C, B)], B),
        ([NOW, ("d1", "live", A, None)], B),
        ([("d2", "failed", B, A)], B),
        ([NOW, ("d3", "canary", C, A)], B),  # opened beside what is not live any more
    ],
)
def test_what_is_not_plain_is_the_stages(tmp_path: Path, rows: list[Row], live: str | None) -> None:
    weights(tmp_path, A)
    assert first._previous(registry(tmp_path, *rows, live=live), "auto", "") is None


def test_a_canary_is_what_ends(tmp_path: Path) -> None:
    folder = registry(tmp_path, NOW, ("d3", "canary", C, B), ("d1", "rolled_back", A, None))
    assert first._previous(folder, "auto", "d3") == Previous(B, B, None, "d3")
    assert first._previous(folder, "auto", "d1") is None  # another has done what this one was asked for
    assert first._leaving(folder, "auto") == "d3"
    assert first._leaving(registry(tmp_path, ("d1", "rolled_back", A, None)), "auto") == ""
    assert first._leaving(tmp_path / "nowhere", "auto") == ""


def by_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: Asked, answer: Any, line: str = "main"
) -> Any:
    """What `_by_registry` makes of it, and with what it moved."""
    moved: list[Any] = []

    def move(*told: Any) -> Any:
        moved.append(told[2:4])
        return answer

    monkeypatch.setattr(first, "move", move)
    workspace: Any = SimpleNamespace(store_dir=tmp_path, run_dir=tmp_path)
    others = {} if line == "auto" else {"auto": object()}
    endpoint: Any = SimpleNamespace(line=line, others=others)
    return first._by_registry(workspace, endpoint, asked, "", Patience()), moved


def test_the_users_are_moved_by_the_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = weights(registry(tmp_path, NOW), A)
    found, ((intent, where),) = by_registry(tmp_path, monkeypatch, Asked("auto", "worse"), {"ok": True})
    assert (found.intent, found.answer, found.lock) == (intent, {"ok": True}, None)
    assert (intent.leaving, intent.checkpoint, intent.reason, where) == (B, A, "worse", folder)
    assert by_registry(tmp_path, monkeypatch, Asked("auto", ""), None)[0] is None
    for asked in (Asked("auto", "", A), Asked("other", "")):  # named, or of a line without an engine
        assert by_registry(tmp_path, monkeypatch, asked, {}) == (None, [])
    assert by_registry(tmp_path, monkeypatch, Asked("auto", ""), {}, line="auto")[0].answer == {}
    registry(tmp_path)
    assert by_registry(tmp_path, monkeypatch, Asked("auto", ""), {}) == (None, [])


@pytest.mark.parametrize("other", [("auto", C, A, ""), ("auto", B, C, ""), ("auto", B, A, "d3")])
def test_an_intent_that_is_not_on_record_is_gone_on_with_or_the_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: tuple[str, str, str, str]
) -> None:
    weights(registry(tmp_path, NOW), A)
    line, leaving, checkpoint, canary = other
    write_intent(tmp_path, intend(line, leaving, checkpoint, "before", canary))
    assert by_registry(tmp_path, monkeypatch, Asked("auto", ""), {}) == (None, [])
    same = intend("auto", B, A, "before")
    write_intent(tmp_path, same)
    found, _ = by_registry(tmp_path, monkeypatch, Asked("auto", "now"), {})
    assert found.intent == same


def test_how_long_a_line_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: Any = {}
    monkeypatch.setattr(first, "settings_of_served", lambda *_: settings)
    endpoint: Any = SimpleNamespace(line="auto")
    assert first._patience(tmp_path, endpoint, "auto") == Patience()
    assert first._patience(tmp_path, endpoint, "acme") is None  # no line of these settings
    assert first._patience(tmp_path, None, "auto") is None
    settings = {
        "rollback": {"drain_timeout_s": 5, "lock_timeout_s": 7},
        "populations": {"acme": {"rollback": {"drain_timeout_s": 9}}, "plain": {}},
    }
    assert first._patience(tmp_path, endpoint, "auto") == Patience(drain_timeout_s=5, lock_timeout_s=7)
    assert first._patience(tmp_path, endpoint, "acme") == Patience(drain_timeout_s=9, lock_timeout_s=7)
    assert first._patience(tmp_path, endpoint, "plain") == Patience(drain_timeout_s=5, lock_timeout_s=7)
    settings = {"rollback": {"drain_timeout_s": -1}}
    assert first._patience(tmp_path, endpoint, "auto") is None
    settings = None
    assert first._patience(tmp_path, endpoint, "auto") is None


def test_a_lock_that_is_taken_is_waited_for_and_its_holder_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second of it at a time; a gateway that does not answer changes nothing of that."""
    waits, told = list[float](), list[Any]()
    clock = iter([100.0, 100.0, 101.0, 102.0, 102.4, 102.6])

    def acquire(*_: Any, timeout: float, **__: Any) -> Any:
        waits.append(timeout)
        raise LockedError("taken", hint="")

    def post(*asked: Any) -> None:
        told.append(asked[1:])
        raise OSError

    monkeypatch.setattr(first, "locks", SimpleNamespace(acquire=acquire, FileLock=locks.FileLock))
    monkeypatch.setattr(first, "post", post)
    monkeypatch.setattr(first, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    endpoint: Any = object()
    with pytest.raises(LockedError):
        first._locked(tmp_path / "lock", "target-auto", endpoint, "auto", 2.5)
    assert waits == pytest.approx([1.0, 1.0, 0.5, 0.1, 0.0])
    assert told == [("/admin/hurry", {"line": "auto"}, 1.0)] * 4


class Lock:
    """Notes that it was given back."""

    def __init__(self) -> None:
        self.free = False

    def release(self) -> None:
        self.free = True


MOVED = Moved(intend("auto", B, A, ""), None, {}, 0.0, 0.0)


@pytest.mark.parametrize("store", ["there", "without a registry", "without locks", "damaged"])
@pytest.mark.parametrize("moved", [MOVED, None])
def test_who_says_what_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str, moved: Moved | None
) -> None:
    """The registry, under the line's lock; the gateway where the store is away."""
    lock, asked = Lock(), list[Any]()

    def locked(*told: Any) -> Lock:
        asked.append(told)
        if store == "without locks":
            raise OSError
        return lock

    def by_registry(*_: Any) -> Moved | None:
        if store == "damaged":
            raise sqlite3.DatabaseError
        return moved

    def by_gateway(*told: Any) -> Moved | None:
        asked.append(told)
        return moved

    if store != "without a registry":
        (tmp_path / first.FILE).touch()
    workspace = SimpleNamespace(store_dir=tmp_path, run_dir=tmp_path / "run", root=tmp_path)
    endpoint = object()
    monkeypatch.setattr(first, "Workspace", SimpleNamespace(find=lambda _: workspace))
    monkeypatch.setattr(first, "running_endpoint", lambda _: endpoint)
    monkeypatch.setattr(first, "_patience", lambda *_: Patience(lock_timeout_s=7))
    for name, double in (("_locked", locked), ("_by_registry", by_registry), ("from_gateway", by_gateway)):
        monkeypatch.setattr(first, name, double)
    monkeypatch.setattr(first, "time", SimpleNamespace(monotonic=iter([10.0, 12.5]).__next__))
    wanted = Asked("auto", "")
    found = first.move_first(None, wanted, 3 if moved else None)
    waits = 3 if moved else 7
    to_gateway = (tmp_path / "run", endpoint, wanted, Patience(lock_timeout_s=7), waits)
    to_lock = (tmp_path / "locks" / "target-auto.lock", "target-auto", endpoint, "auto", waits)
    assert (
        asked
        == {
            "there": [to_lock],
            "without a registry": [to_gateway],
            "without locks": [to_lock, to_gateway],
            "damaged": [to_lock, to_gateway],
        }[store]
    )
    under_lock = store in ("there", "damaged")
    if moved and under_lock:
        assert found == replace(moved, lock=lock, began=10.0, seconds=2.5)
    else:
        assert found == moved
    assert lock.free == (under_lock and moved is None)


def test_what_is_taken_back_is_noted_before_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}
    endpoint: Any = SimpleNamespace(line="auto")
    workspace = SimpleNamespace(store_dir=registry(tmp_path, NOW), run_dir=tmp_path)
    monkeypatch.setattr(first, "Workspace", SimpleNamespace(find=lambda _: workspace))
    monkeypatch.setattr(first, "running_endpoint", lambda _: endpoint)
    monkeypatch.setattr(first, "served_now", lambda *_: told)
    monkeypatch.setattr(first, "move_first", lambda *told: told)
    assert first.begin(None, "r", 3) == Begun("d2", (None, Asked("auto", "r", ""), 3, "d2"))
    assert first.begin(None, "r", to=A).asked == ""  # somebody names where to go: nothing stands in its way
    assert first.begin(None, "r", line="other").asked == "o2"
    (tmp_path / first.FILE).unlink()
    assert first.begin(None, "r").asked == ""
    told = {"deployment": "d8"}
    assert first.begin(None, "r").asked == "d8"
    told = {"deployment": "d8", "canary": {"deployment": "d9"}}
    assert first.begin(None, "r").asked == "d9"
    endpoint = None
    assert first.begin(None, "r") == Begun("", (None, Asked("", "r", ""), None, ""))
