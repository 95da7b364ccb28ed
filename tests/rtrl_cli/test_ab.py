"""`rtrl ab` before there is anything to look at."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from rtrl_cli.main import run
from stages import locks
from stages.ab.act import act
from stages.ab.holdback import Benefit
from stages.ab.look import Seen
from stages.errors import (
    DependencyDownError,
    GateRejectedError,
    InconclusiveError,
    IntegrityError,
    LockedError,
    RolledBackError,
    StoreError,
)
from stages.progress import Silent
from tests.stages.serving.conftest import StubWorld


def test_watching_needs_no_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = str(StubWorld(tmp_path).workspace.root)
    assert run(["ab", "--watch", "-w", root]) == 5
    assert "no canary of line auto" in capsys.readouterr().err
    assert run(["ab", "--decide", "--watch", "--every", "300", "-w", root]) == 5
    for never in ("0", "inf", "1e300"):  # two of them ended as a bug behind the first look of monitor --watch
        assert run(["ab", "--watch", "--every", never, "-w", root]) == 2
    assert run(["ab", "--holdback", "--watch", "-w", root]) == 5


def test_a_misspelt_line_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = str(StubWorld(tmp_path).workspace.root)
    assert run(["ab", "--line", "atuo", "-w", root]) == 5
    assert "nothing was ever deployed on line 'atuo'" in capsys.readouterr().err


@pytest.mark.parametrize("quiet", [True, False])
def test_a_canary_that_somebody_else_promotes_leaves_one_document(
    quiet: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Looks that hold print nothing under --json --decide: it was an empty stdout with status 0."""
    root = str(StubWorld(tmp_path).workspace.root)
    ends = iter([True])

    def holds(*_: object) -> None:
        raise InconclusiveError("hold", hint="wait")

    monkeypatch.setattr("rtrl_cli.commands.ab.time.sleep", lambda _: None)
    look = Seen("d_1", "hold", "too few users", {"reason": "too few users"})
    monkeypatch.setattr("rtrl_cli.commands.ab._opened", lambda *_: (None, None))
    monkeypatch.setattr("stages.ab.look.take_look", lambda *_, **__: look)
    monkeypatch.setattr("stages.ab.act.act", holds)
    monkeypatch.setattr("stages.ab.ended.ended", lambda *_: next(ends))
    flags = ["-q"] if quiet else []
    assert run(["ab", "--decide", "--watch", "--every", "300", "--json", "-w", root, *flags]) == 0
    shown = capsys.readouterr()
    assert ("was promoted meanwhile" in shown.err) is not quiet
    found = json.loads(shown.out)
    assert (found["command"], found["metrics"]["deployment"]) == ("ab", "d_1")


def one_after_the_other(monkeypatch: pytest.MonkeyPatch, looks: list[object], acts: list[object]) -> None:
    """A canary whose looks and decisions end like this; what is an exception is raised."""

    def next_of(ends: list[object]) -> Callable[..., object]:
        def end(*_: object, **__: object) -> object:
            if isinstance(one := ends.pop(0), Exception):
                raise one
            return one

        return end

    monkeypatch.setattr("rtrl_cli.commands.ab.time.sleep", lambda _: None)
    monkeypatch.setattr("rtrl_cli.commands.ab._opened", lambda *_: (None, None))
    monkeypatch.setattr("stages.ab.look.take_look", next_of(looks))
    monkeypatch.setattr("stages.ab.holdback.take_look_at_holdback", next_of(looks))
    monkeypatch.setattr("stages.ab.act.act", next_of(acts))
    monkeypatch.setattr("stages.ab.ended.ended", lambda *_: False)


HOLD = Seen("d_1", "hold", "too few users", {"reason": "too few users"})


def test_a_watch_outlives_what_goes_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended at the first busy registry, and nobody looked for harm any more while the canary was open."""
    failed = [
        DependencyDownError("the registry stayed busy for 30 s"),
        sqlite3.OperationalError("database is locked"),
        FileNotFoundError("no spool"),
        StoreError("no store"),
    ]
    blocked = [
        LockedError("target-auto is locked"),
        GateRejectedError("an alarm waits"),
        InconclusiveError("held"),
    ]
    harm = RolledBackError("d_1 was rolled back: worse")
    one_after_the_other(monkeypatch, [*failed, *[HOLD] * 4], [*blocked, harm])
    assert run(["ab", "--decide", "--watch", "--json"]) == 14
    shown = capsys.readouterr()
    told = [line for line in shown.err.splitlines() if "warning" in line]
    assert len(told) == len(failed) + len(blocked) - 1, told  # what is held is no failure
    assert "this look failed, the next one is tried: the registry stayed busy for 30 s" in told[0]
    assert json.loads(shown.out)["error"]["code"] == 14


@pytest.mark.parametrize("flags", [["--holdback"], []])
def test_every_watch_does(
    flags: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    busy, over = DependencyDownError("busy"), IntegrityError("damaged")
    one_after_the_other(monkeypatch, [busy, over], [])
    assert run(["ab", "--watch", "--quiet", *flags]) == 12
    assert "warning" not in capsys.readouterr().err
    one_after_the_other(monkeypatch, [busy], [])
    assert run(["ab", *flags]) == 13


def unread(monkeypatch: pytest.MonkeyPatch, path: str = "") -> None:
    """A stdout whose reader has left, or the file at `path`."""
    reads, writes = os.pipe()
    os.close(reads)
    if path:
        os.dup2(full := os.open(path, os.O_WRONLY), writes)
        os.close(full)
    monkeypatch.setattr("sys.stdout", os.fdopen(writes, "w"))
    monkeypatch.setattr("rtrl_cli.commands.ab.text", lambda seen: seen.reason)
    monkeypatch.setattr("rtrl_cli.commands.ab.benefit_text", str)


def test_a_watch_ends_where_its_reader_has_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    for flags in ([], ["--holdback"]):
        look = Seen("d_1", "hold", "few", {}) if not flags else Benefit("h_1", "so", {})
        one_after_the_other(monkeypatch, [look], [])
        unread(monkeypatch)
        assert run(["ab", "--watch", *flags]) == 0


@pytest.mark.parametrize("path", ["", "/dev/full"])
@pytest.mark.parametrize("watch", [[], ["--watch"]])
def test_harm_is_acted_on_whoever_reads(watch: list[str], path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look is printed first: nothing was decided after it, and the exit status was 0."""
    held = [InconclusiveError("held")] if watch else []
    one_after_the_other(monkeypatch, [HOLD] * (1 + len(held)), [*held, RolledBackError("worse")])
    unread(monkeypatch, path)
    assert run(["ab", "--decide", *watch]) == 14


@pytest.mark.parametrize("quiet", [True, False])
def test_a_full_disk_behind_stdout_is_a_message_like_others(
    quiet: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one_after_the_other(monkeypatch, [HOLD], [RolledBackError("worse")])
    unread(monkeypatch, "/dev/full")
    assert run(["ab", "--decide", *(["-q"] if quiet else [])]) == 14
    assert ("warning: " in capsys.readouterr().err) is not quiet


@pytest.mark.parametrize("action", ["promote", "roll_back"])
def test_a_taken_target_is_told_without_a_flag_that_is_not_there(
    tmp_path: Path, action: Literal["promote", "roll_back"]
) -> None:
    world = StubWorld(tmp_path)
    seen = Seen("d1", action, "so", {})
    with locks.hold(world.store.lock_path("target-auto"), what="a deploy"), pytest.raises(LockedError) as met:
        act(world.workspace, world.store, seen, Silent())
    assert "--lock-timeout" not in str(met.value.hint)
    assert "locked by a deploy" in met.value.message
