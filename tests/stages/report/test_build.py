"""A whole report of real stages: which experience is meant, what it says, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from stages import schemas
from stages.collect.logs.source import Source
from stages.collect.run import CollectStage
from stages.distill.explain import explain
from stages.distill.run import DistillStage
from stages.errors import InputMissingError, IntegrityError, UsageError
from stages.init import init_bare
from stages.registry.store import Store
from stages.report.build import build, parse_by
from stages.report.chosen import choose, resolve
from stages.runner import run_stage
from stages.stage import Output
from stages.train.inputs import experience_named
from stages.vault import Vault
from stages.workspace import Workspace
from tests.stages.distill.distill_world import a_click, distilled
from tests.stages.report.reported import REQUESTS, SECRET, of_logs, write_log
from tests.stages.world import HOUR, World


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, Store]:
    return of_logs(tmp_path_factory.mktemp("logs"))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def test_a_report_of_logs(logs: tuple[Workspace, Store]) -> None:
    workspace, store = logs
    found = build(workspace, store, resolve(store, None, "auto"))
    assert (found.episodes, found.sessions, found.users, found.served) == (72, 24, 24, False)
    assert found.readings["edit_persistence"].note == "no edit is told"
    assert found.readings["invalid_tool_calls"].note == "no tool call is told"
    said = found.readings["dissatisfied_followup"]
    assert (said.n, said.of, said.users) == (48, 72, 24)  # nothing follows the last of each session
    model = next(one for one in found.populations if one.name == "model")
    assert [(g.label, g.episodes, g.users) for g in model.groups] == [("m0", 36, 12), ("m1", 36, 12)]
    assert found.over_time.unit == "week"
    assert [w.episodes for w in found.over_time.windows] == [12, 21, 21, 18]
    assert found.left_out.timing is None
    assert [(row.reason, row.count) for row in found.left_out.rows] == [("text_only", 72)]
    json.dumps(found.to_json(), allow_nan=False)


def test_examples_say_what_was_asked_without_its_secrets(logs: tuple[Workspace, Store]) -> None:
    workspace, store = logs
    experience = resolve(store, None, "auto")
    found = build(workspace, store, experience)
    assert [len(found.best), len(found.worst)] == [3, 3]
    assert {one.state for one in (*found.best, *found.worst)} == {"shown"}
    assert all(one.request.startswith("<b>add</b> a cart") for one in found.worst)
    assert all("[redacted:" in one.request for one in found.worst)
    assert SECRET not in json.dumps(found.to_json())
    assert [one.masked for one in found.worst] == [{"api_key": 1}] * 3
    asked = sum("[redacted:api_key]" in one.request for one in (*found.best, *found.worst))
    assert found.to_json()["masked"] == found.masked == {"api_key": asked}
    terms = {term.signal: term for term in found.worst[0].terms}
    followup = terms["dissatisfied_followup"]
    assert followup.value is not None
    assert followup.contribution == pytest.approx(-0.6 * (followup.value - 0.15))
    assert sum(term.contribution for term in found.worst[0].terms) == pytest.approx(found.worst[0].reward)
    silent = build(workspace, store, experience, texts=False)
    assert {(one.state, one.request, one.answer) for one in silent.best} == {("withheld", "", "")}
    assert silent.masked == {}


def test_examples_and_explain_tell_the_same_terms(logs: tuple[Workspace, Store]) -> None:
    workspace, store = logs
    worst = build(workspace, store, resolve(store, None, "auto"), texts=False).worst[0]
    told = explain(workspace, store, "experience@v1", worst.episode_id)
    assert {one for one in told.terms if one.contribution is not None} == set(worst.terms)
    assert [abs(one.contribution or 0) for one in worst.terms] == sorted(
        (abs(one.contribution or 0) for one in worst.terms), reverse=True
    )


def test_what_a_forgotten_user_wrote_is_not_shown(tmp_path: Path) -> None:
    workspace, store = of_logs(tmp_path, sessions=2)
    vault = Vault.open(workspace.keys_dir)
    for user in vault.users(""):
        vault.forget(user)
    vault.close()
    found = build(workspace, store, resolve(store, None, "auto"))
    assert {(one.state, one.request) for one in (*found.best, *found.worst)} == {("forgotten", "")}


def test_the_newest_experience_of_interactions_is_meant(logs: tuple[Workspace, Store]) -> None:
    _, store = logs
    experience = resolve(store, None, "auto")
    assert resolve(store, "interactions@v1", "auto").digest == experience.digest
    assert resolve(store, "experience@v1", "auto").digest == experience.digest
    assert resolve(store, experience.digest, "auto").digest == experience.digest
    with pytest.raises(InputMissingError):
        resolve(store, "experience@v9", "auto")


def test_what_is_no_experience_is_refused(tmp_path: Path, world: World) -> None:
    with pytest.raises(UsageError, match="is about an experience"):
        resolve(world.store, "checkpoint@live", "auto")
    with pytest.raises(UsageError, match="users"):
        parse_by("agent,users")
    with pytest.raises(UsageError, match="no population"):
        parse_by(" ,")
    assert parse_by(" agent, work,agent,") == ("agent", "work")
    empty = Store.open(init_bare(tmp_path / "empty").store_dir)
    with pytest.raises(InputMissingError, match="no experience of line auto to report on") as error:
        resolve(empty, None, "auto")
    assert "rtrl distill" in error.value.hint


def test_an_older_experience_is_to_be_distilled_again(tmp_path: Path) -> None:
    workspace, store = of_logs(tmp_path, sessions=2)
    old = resolve(store, None, "auto")
    shutil.copytree(old.path, tmp_path / "old", ignore=shutil.ignore_patterns("manifest.json"))
    meta = {**old.meta, "schema": "rtrl-experience/1"}
    made = store.publish_external({"e": (Output("experience", meta), tmp_path / "old")}, line="auto")["e"]
    with pytest.raises(InputMissingError, match="rtrl-experience/1") as error:
        build(workspace, store, made)
    assert error.value.hint.endswith("rtrl distill --input interactions@v1")


@pytest.mark.parametrize("left", [None, b"no TOML", b"\xff", b'schema = "rtrl-reward/1"'])
def test_a_damaged_reward_spec_is_damage(tmp_path: Path, left: bytes | None) -> None:
    """It was told as a mistake of the user's, to be corrected in that line."""
    workspace, store = of_logs(tmp_path, 1)
    experience = store.resolve("experience@latest")
    path = experience.path / schemas.SPEC_FILE
    path.parent.chmod(0o700)
    path.unlink()
    if left is not None:
        path.write_bytes(left)
    with pytest.raises(IntegrityError, match="reward spec of experience@v1 cannot be read"):
        build(workspace, store, experience)
    with pytest.raises(IntegrityError, match="reward spec of experience@v1 cannot be read"):
        explain(workspace, store, "experience@v1", "any")


def test_a_served_line_over_its_experiences(world: World) -> None:
    """Ada's click: one of two changed lines stayed. A second experience brings a second window."""
    a_click(world)
    distilled(world)
    first = build(world.workspace, world.store, resolve(world.store, None, "auto"))
    assert first.served
    assert first.readings["edit_persistence"].value == pytest.approx(0.5)
    assert first.readings["invalid_tool_calls"].note.startswith("0 of 1 calls")
    assert first.left_out.timing is not None
    assert (first.left_out.timing.matured, first.left_out.timing.waiting) == (1, 1)  # the clock's own waits
    assert first.over_time.unit == "month"
    world.generation("g9", "e9", 4 * HOUR, session="s2")
    world.tick(8 * HOUR)
    world.collect()
    distilled(world)
    second = build(world.workspace, world.store, resolve(world.store, None, "auto"))
    assert second.over_time.unit == "experience"
    assert [w.label for w in second.over_time.windows] == ["v1", "v2"]
    assert second.over_time.windows[0].readings["edit_persistence"].value == pytest.approx(0.5)
    alone = build(world.workspace, world.store, resolve(world.store, None, "auto"), last=1)
    assert alone.over_time.unit == "month"


def test_rewards_of_another_spec_are_not_shown_beside_these(world: World) -> None:
    """The same click twice, the spec made kinder in between: that is no better agent. Distilled again, as the
    report says, the first stands before the second, though it is the newer experience."""
    spec = 'schema = "rtrl-reward/1"\nname = "{}"\n[signals.edited]\nweight = {}\nunknown = 0.0\n'
    for name, weight in (("first", 1.0), ("second", 2.0)):
        (world.workspace.root / f"{name}.toml").write_text(spec.format(name, weight))
    a_click(world)
    distilled(world, "distill.spec=first.toml")
    world.promote(world.checkpoint(world.live, ["e1", f"tick-{3 * HOUR}"]))
    world.generation("g9", "e9", 8 * HOUR, session="s2")
    world.event("g9", "edit_applied", 8 * HOUR, path="a.py", before="one = 1\n", after="another = 2\n")
    world.tick(12 * HOUR)
    world.collect()
    world.run(DistillStage(), "distill.spec=second.toml")

    second = build(world.workspace, world.store, resolve(world.store, None, "auto"))
    before, now = second.over_time.windows
    assert "reward" not in before.readings
    assert before.readings["edited"].value == 1.0
    assert now.readings["reward"].value == pytest.approx(2.0)
    (said,) = second.over_time.skipped
    assert said.startswith("rewards of experience@v1: by another reward spec")
    assert said.endswith("rtrl distill --input interactions@v1")

    world.run(DistillStage(), "distill.spec=second.toml", refs={"interactions": "interactions@v1"})
    again = build(world.workspace, world.store, resolve(world.store, "interactions@v2", "auto"))
    assert [one.label for one in again.over_time.windows] == ["v3", "v2"]
    assert [one.readings["reward"].value for one in again.over_time.windows] == [pytest.approx(2.0)] * 2
    assert again.over_time.skipped == ()
    older = build(world.workspace, world.store, resolve(world.store, "experience@v3", "auto"))
    assert older.over_time.unit == "month"  # of the first interactions: there is nothing before them


def test_rewards_by_other_code_of_a_teams_signal_are_not_joined(world: World) -> None:
    code = "def turns(seen):\n    return {} * len(seen.generations)\n"
    spec = 'schema = "rtrl-reward/1"\nname = "ours"\n[signals.n]\nfunction = "ours_changed:turns"\n'
    (world.workspace.root / "ours.toml").write_text(spec + "weight = 1.0\nunknown = 0.0\n")
    for n in (1, 2):
        (world.workspace.root / "ours_changed.py").write_text(code.format(n))
        world.generation(f"g{n}", f"e{n}", 4 * n * HOUR, session=f"s{n}")
        world.tick((4 * n + 3) * HOUR)
        world.collect()
        world.run(DistillStage(), "distill.spec=ours.toml")
    with pytest.raises(UsageError, match="other code of the signals in them"):
        choose(world.store, (), "auto", everything=True)


def test_a_teams_signals_may_be_called_as_the_report_calls_its_own_columns(world: World) -> None:
    """Distill took them, and the report ended with "Can't unify schema with duplicate field names"."""
    (world.workspace.root / "ours_named.py").write_text(
        "def turns(seen):\n    return len(seen.generations)\n"
    )
    names = ("calls", "told_calls", "origin")
    signals = [
        f'[signals.{name}]\nfunction = "ours_named:turns"\nweight = 0.1\nunknown = 0.0\n' for name in names
    ]
    (world.workspace.root / "ours.toml").write_text(
        'schema = "rtrl-reward/1"\nname = "ours"\n' + "".join(signals)
    )
    a_click(world)
    distilled(world, "distill.spec=ours.toml")
    found = build(world.workspace, world.store, resolve(world.store, None, "auto"))
    assert [found.readings[name].value for name in names] == [2.0] * 3
    assert found.readings["invalid_tool_calls"].note.startswith("0 of 1 calls")
    assert found.best[0].reward == pytest.approx(0.6)


def test_use_that_is_collected_again_is_told_once(world: World) -> None:
    """No candidate is deployed: each collect has all use since the beginning. Ten episodes come to the first
    three of four; of each collect the clock's own episode waits, and is ripe at the next."""
    for k in range(4):
        for n in range(10 if k < 3 else 0):
            at, name = 4 * k * HOUR + n * 1000, f"{k}-{n}"
            world.generation(f"g{name}", f"e{name}", at, user=f"u{n}", session=f"s{name}")
        if k < 3:
            world.tick((4 * k + 3) * HOUR)
        world.event("g0-0", "user_message", min(4 * k + 3, 11) * HOUR, text="thanks")
        world.collect()
        world.run(DistillStage())
    workspace, store = world.workspace, world.store
    whole = build(workspace, store, *choose(store, (), "auto", everything=True))
    assert whole.left_out.timing is not None
    assert (whole.episodes, whole.left_out.timing.matured, whole.left_out.timing.waiting) == (32, 32, 1)
    newest = build(workspace, store, resolve(store, None, "auto"))
    assert [(one.label, one.episodes) for one in newest.over_time.windows] == [
        ("v1", 10), ("v2", 11), ("v3", 11),
    ]  # fmt: skip
    assert newest.over_time.skipped == ("experience@v4 has no episode that those before it do not have",)
    last = build(workspace, store, resolve(store, None, "auto"), last=3)
    assert [(one.label, one.episodes) for one in last.over_time.windows] == [("v2", 11), ("v3", 11)]


def test_experiences_of_the_other_kind_are_named_and_not_taken_for_these(
    world: World, tmp_path: Path
) -> None:
    a_click(world)
    distilled(world)
    write_log(tmp_path / "log.jsonl", "s1", "m1", 1_760_000_000, REQUESTS)
    source = Source((tmp_path / "log.jsonl",), "openai-log", "ada", "shop")
    run_stage(world.workspace, world.store, CollectStage(source=source))
    run_stage(world.workspace, world.store, DistillStage())
    for refs, reason, other in (
        ((), "captured by the gateway", "experience@v1"),
        (("experience@v1",), "of session logs", "experience@v2"),
    ):
        chosen = choose(world.store, refs, "auto", everything=not refs)
        (row,) = (
            row
            for row in build(world.workspace, world.store, *chosen).left_out.rows
            if row.what == "experiences not in this report"
        )
        assert (row.reason, row.count) == (reason, 1)
        assert row.about.endswith(f"rtrl report {other}")
    with pytest.raises(InputMissingError, match="experience@v2 is of session logs") as error:
        experience_named(world.store, "auto", "experience@latest")
    assert error.value.hint == "the newest experience that can be trained on is experience@v1"


def test_what_users_of_other_lines_did_is_named(world: World, tmp_path: Path) -> None:
    """A report is about one line, and said nothing of the others: who read it took it for everybody's."""
    a_click(world)
    distilled(world)
    made = resolve(world.store, None, "auto")
    shutil.copytree(made.path, tmp_path / "chat", ignore=shutil.ignore_patterns("manifest.json"))
    theirs = Output("experience", dict(made.meta))
    world.store.publish_external({"experience": (theirs, tmp_path / "chat")}, line="chat")
    told = {}
    for line in ("auto", "chat"):
        chosen = choose(world.store, (), line, everything=True)
        rows = build(world.workspace, world.store, *chosen).left_out.rows
        told[line] = [row for row in rows if row.what == "experiences not in this report"]
    assert [(row.reason, row.count) for row in told["auto"]] == [("of line chat", 1)]
    assert told["auto"][0].about.endswith("rtrl report --line chat")
    assert [row.reason for row in told["chat"]] == ["of line auto"]
    with pytest.raises(InputMissingError, match="no experience of line chta") as error:
        choose(world.store, (), "chta", everything=False)
    assert error.value.hint == "lines with one: auto, chat (--line)"
