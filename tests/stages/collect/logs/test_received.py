"""`collect` of what the gateway received, while somebody is forgotten."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from cursorbench.sessions import otel
from cursorbench.sessions.items import Place, Quarantined
from stages import schemas, tables
from stages.collect import retention
from stages.collect.logs.source import Source
from stages.collect.logs.state import Record
from stages.collect.logs.turns import Turns
from stages.collect.run import CollectStage
from stages.errors import InconclusiveError
from stages.inbox.records import OWN
from stages.inbox.writer import InboxWriter, Received
from stages.init import init_bare
from stages.registry import gc
from stages.registry.store import Store
from stages.result import StageResult
from stages.runner import run_stage
from stages.spool.codec import decode, generation_aad
from stages.vault import UserForgottenError, Vault
from stages.workspace import Workspace
from tests.stages.collect.logs.openai_logs import REQUESTS, log_of
from tests.stages.gateway.spans import chat, traces


@pytest.fixture
def place(tmp_path: Path) -> tuple[Workspace, Store]:
    workspace = init_bare(tmp_path / "ws")
    return workspace, Store.open(workspace.store_dir)


def receive(workspace: Workspace, text: str, *users: str) -> None:
    vault = Vault.open(workspace.keys_dir)
    writer = InboxWriter(workspace.inbox_dir, vault, segment_bytes=1 << 20, max_bytes=1 << 30)
    lines = [orjson.dumps(traces(chat(text, "done")))]
    writer.append([Received("k", user, "otel", lines) for user in users])
    writer.close()
    vault.close()


def collect(place: tuple[Workspace, Store]) -> StageResult:
    return run_stage(*place, CollectStage(source=Source((), received=place[0].inbox_dir)))


def told(made: StageResult, keys_dir: Path) -> dict[str, str]:
    """Requests that can be opened now, by user."""
    vault = Vault.open(keys_dir)
    found = {}
    for part in sorted(made.outputs["interactions"].path.glob("part-*")):
        for row in tables.read(part / schemas.GENERATIONS_FILE, schemas.GENERATIONS).to_pylist():
            try:
                opened = vault.unseal(row["user"], row["sealed"], generation_aad(row["id"]))
            except UserForgottenError:
                continue
            found[row["user"]] = decode(opened).request
    vault.close()
    return found


def test_a_record_that_no_adapter_survives_is_in_quarantine_and_the_others_are_read(
    place: tuple[Workspace, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that was received is read each time: one such record ended every `collect --received`."""
    read = otel._Told.record

    def breaks(told: Any, record: Any, where: Place) -> Any:
        if "poison" in str(record):
            raise OverflowError("a secret request")
        yield from read(told, record, where)

    for text in ("first", "poison", "third"):
        receive(place[0], text, "ada")
    receive(place[0], "another's", "ben")
    before = told(collect(place), place[0].keys_dir)
    assert before == {"ada": "third", "ben": "another's"}
    with monkeypatch.context() as during:
        during.setattr(otel._Told, "record", breaks)
        made = run_stage(*place, CollectStage(source=Source((), received=place[0].inbox_dir)), force=True)
    assert told(made, place[0].keys_dir) == before
    assert made.metrics["generations"] == 3
    assert quarantined(made) == [("2", "cannot be read: OverflowError")]


def test_a_record_behind_one_that_no_adapter_survives_keeps_its_place(
    place: tuple[Workspace, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were in quarantine as the second line."""
    read = otel._Told.record

    def breaks(told: Any, record: Any, where: Place) -> Any:
        if "poison" in str(record):
            raise OverflowError
        yield from [Quarantined(where, "odd")] if "third" in str(record) else read(told, record, where)

    for text in ("first", "poison", "third"):
        receive(place[0], text, "ada")
    monkeypatch.setattr(otel._Told, "record", breaks)
    found = quarantined(collect(place))
    assert sorted(found) == [("2", "cannot be read: OverflowError"), ("3", "odd")]


def test_what_an_adapter_fails_on_for_no_one_record_is_a_bug(
    place: tuple[Workspace, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = otel.read

    def breaks(path: Any, seen: Any) -> Any:
        yield from read(path, seen)
        if path.open().read().count(b"\n") > 1:
            raise OverflowError

    for text in ("first", "second"):
        receive(place[0], text, "ada")
    monkeypatch.setattr(otel, "read", breaks)
    with pytest.raises(OverflowError):
        collect(place)


def forget_before_sealing(monkeypatch: pytest.MonkeyPatch, keys_dir: Path, back: Workspace | None) -> None:
    """Another process forgets ada when all is read and nothing is sealed yet."""
    done = Turns.done

    def forget(turns: Turns) -> Iterator[Record]:
        other = Vault.open(keys_dir)
        assert other.forget("ada") == 1
        other.close()
        if back is not None:
            receive(back, "back again", "ada")
        yield from done(turns)

    monkeypatch.setattr("stages.vault._RECHECK_S", 0.0)
    monkeypatch.setattr(Turns, "done", forget)


def quarantined(made: StageResult) -> list[tuple[str, str]]:
    """(line, reason) of each record in quarantine."""
    rows = tables.read(made.outputs["interactions"].path / schemas.QUARANTINE_FILE, schemas.QUARANTINE)
    return [(row["id"].rpartition(":")[2], row["reason"]) for row in rows.to_pylist()]


@pytest.mark.parametrize("back", [False, True])
def test_what_was_unsealed_before_a_forget_is_not_sealed_again_after_it(
    place: tuple[Workspace, Store], monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    keys = place[0].keys_dir
    receive(place[0], "a secret request", "ada", "ben")
    with monkeypatch.context() as during:
        forget_before_sealing(during, keys, place[0] if back else None)
        made = collect(place)
    assert told(made, keys) == {"ben": "a secret request"}
    assert (made.metrics["generations"], made.metrics["forgotten"]) == (1, 1)
    vault = Vault.open(keys)
    assert vault.users("ada") == (["ada"] if back else []), "a collect makes no new key for her"
    vault.close()
    if back:
        assert told(collect(place), keys) == {"ada": "back again", "ben": "a secret request"}


def test_records_of_a_collect_that_gc_let_go_stay_until_another_takes_them(
    place: tuple[Workspace, Store], tmp_path: Path
) -> None:
    workspace, store = place
    for text in ("first", "second"):
        receive(workspace, text, "ada")
    log_of(tmp_path / "one.jsonl", "s1", REQUESTS)
    taken = collect(place).outputs["interactions"]
    run_stage(*place, CollectStage(source=Source((tmp_path / "one.jsonl",), "openai-log", user="ada")))
    later = time.time() + 40 * 86400
    assert len(retention.received(workspace, store, 30.0, later)) == 1
    gc.collect(store, 0.0, 0.0, by="me")
    assert not taken.path.is_dir()
    assert retention.received(workspace, store, 30.0, later) == []
    collect(place)
    assert len(retention.received(workspace, store, 30.0, later)) == 1


def test_records_received_after_all_was_lost_stay_until_they_are_collected(
    place: tuple[Workspace, Store], tmp_path: Path
) -> None:
    """Their numbers begin again, and those of what was collected before are higher."""
    workspace, store = place
    for text in ("first", "second", "third"):
        receive(workspace, text, "ada")
    collect(place)
    shutil.rmtree(workspace.inbox_dir)
    for text in ("fourth", "fifth"):
        receive(workspace, text, "ada")
    later = time.time() + 40 * 86400
    assert retention.received(workspace, store, 30.0, later) == []
    collect(place)
    assert len(retention.received(workspace, store, 30.0, later)) == 1


def test_received_records_without_an_answer_of_another_system_are_said_to_be_that(
    place: tuple[Workspace, Store],
) -> None:
    """Not that no files were found: of its own answers the gateway keeps nothing that exporters tell."""
    workspace, _ = place
    vault = Vault.open(workspace.keys_dir)
    writer = InboxWriter(workspace.inbox_dir, vault, segment_bytes=1 << 20, max_bytes=1 << 30)
    mark = orjson.dumps(["otel", "a" * 32])
    writer.append([Received("k", "ada", OWN, [mark])])
    with pytest.raises(InconclusiveError, match=r"^nothing that the gateway received") as caught:
        collect(place)
    assert "`rtrl collect`" in caught.value.hint
    writer.append([Received("k", "ada", "otel", [orjson.dumps(traces(chat("fix it", "done")))])])
    writer.close()
    vault.close()
    with pytest.raises(InconclusiveError, match=r"; [1-9] records? of sessions that it answered itself$"):
        collect(place)


def test_logs_of_a_disk_go_under_the_key_that_there_was_before_a_forget(
    place: tuple[Workspace, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = place[0].keys_dir
    log_of(tmp_path / "one.jsonl", "s1", REQUESTS)
    seal = Vault.seal
    sealed: list[bytes] = []

    def forget(vault: Vault, user: str, plaintext: bytes, aad: bytes, *, like: bytes | None = None) -> bytes:
        if plaintext and not sealed:
            other = Vault.open(keys)
            other.forget("ada")
            other.close()
        sealed.extend([plaintext] if plaintext else [])
        return seal(vault, user, plaintext, aad, like=like)

    monkeypatch.setattr("stages.vault._RECHECK_S", 0.0)
    monkeypatch.setattr(Vault, "seal", forget)
    log = Source((tmp_path / "one.jsonl",), "openai-log", user="ada")
    with pytest.raises(InconclusiveError, match="forgotten"):
        run_stage(*place, CollectStage(source=log))
    vault = Vault.open(keys)
    assert vault.users("ada") == []
    vault.close()
