"""Populations: settings of their own, how their line begins, and whose generations it learns from."""

from __future__ import annotations

from pathlib import Path

import pytest

from stages.config import Settings
from stages.deploy.config import DeployConfig
from stages.deploy.run import DeployStage
from stages.errors import InputMissingError, UsageError
from stages.populations import Whose, begin_line, verdicts_of, whose
from stages.registry.holdbacks import close_holdback, holdback_of, open_holdback
from stages.result import StageResult
from stages.runner import run_stage
from stages.workspace import Workspace
from tests.stages.world import COLLECT, HOUR, World

TOML = """
[collect]
clock = "events"
min_episodes = 1
[deploy]
canary_share = 0.05
[populations.acme]
labels = ["acme-ide", "acme-ci"]
[populations.acme.collect]
min_episodes = 2
[populations.acme.deploy]
canary_share = 0.5
[populations.review]
"""


def load(*overrides: str, text: str = TOML) -> Settings:
    return Settings.parse(text, source="rtrl.toml", overrides=overrides)


def test_a_population_has_its_own_settings_above_the_files_and_below_flags() -> None:
    plain, acme = load(), load("workspace.line=acme")
    assert (plain.workspace.line, plain.workspace.serves) == ("auto", "auto")
    assert (acme.workspace.line, acme.workspace.serves) == ("acme", "auto")
    assert (plain.collect.min_episodes, acme.collect.min_episodes) == (1, 2)
    assert (plain.deploy.canary_share, acme.deploy.canary_share) == (0.05, 0.5)
    assert acme.deploy.drain_timeout_s == DeployConfig().drain_timeout_s
    assert load("workspace.line=acme", "collect.min_episodes=9").collect.min_episodes == 9
    assert load("workspace.line=acme", "populations.acme.collect.min_episodes=9").collect.min_episodes == 9
    assert load("populations.acme.parent=checkpoint@v3").populations["acme"].parent == "checkpoint@v3"
    assert load("workspace.line=main", "workspace.line=acme").workspace.serves == "main"


def test_each_line_has_rules_of_its_own_for_feedback(tmp_path: Path) -> None:
    own = '[populations.acme.collect.metrics]\nstars = "outcome 5..1"\n[populations.review]'
    (tmp_path / "rtrl.toml").write_text(f'[collect.metrics]\nstars = "outcome 1..5"\n{own}')
    told = [rules.meant("stars", 5) for rules in verdicts_of(Workspace(tmp_path))]
    assert [one and one[1]["value"] for one in told] == [1.0, -1.0, 1.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[populations.acme]\nlable = 1", "populations.acme.lable"),
        ("[populations.acme.collect]\nmin_episode = 1", r"collect.min_episode "),
        ("[populations.Acme]\n", "cannot name a population"),
        ('[populations.acme]\nlabels = ["Acme"]', "no key can be of population 'Acme'"),
        ('[populations.acme]\nlabels = [""]', "no key can be of population ''"),
        ("[populations]\nacme = 1", "must be a section"),
        ('[populations.acme]\n[populations.b]\nlabels = ["acme"]', "of the lines acme and b"),
        ('[workspace]\nserves = "acme"\n[populations.acme]', "a population's line"),
    ],
)
def test_what_is_wrong_in_one_is_said(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load(text=text)


@pytest.mark.parametrize("overrides", [("workspace.line=acme",), (), ("workspace.line=review",)])
def test_a_bad_value_of_a_population_is_found_whichever_line_is_worked_on(overrides: tuple[str, ...]) -> None:
    """It was where its line was worked on, at night maybe; `rtrl doctor` said that the settings are fine."""
    text = "[populations.review]\n[populations.acme.collect]\nmax_lag = -1"
    with pytest.raises(UsageError, match=r"collect.max_lag in \[populations.acme\] of rtrl.toml"):
        load(*overrides, text=text)


def test_a_populations_own_stands_above_everybodys_in_file_environment_and_flags(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A flag for the population lost against the environment."""
    flag = "populations.acme.collect.min_episodes=9"
    monkeypatch.setenv("RTRL_COLLECT__MIN_EPISODES", "5")
    assert load("workspace.line=acme").collect.min_episodes == 5
    assert load("workspace.line=acme", flag).collect.min_episodes == 9
    assert load("workspace.line=acme", flag, "collect.min_episodes=3").collect.min_episodes == 9
    assert load(flag).collect.min_episodes == 5
    monkeypatch.setenv("RTRL_POPULATIONS__ACME__COLLECT__MIN_EPISODES", "6")
    assert load("workspace.line=acme").collect.min_episodes == 6
    assert load("workspace.line=acme", "collect.min_episodes=3").collect.min_episodes == 3


def test_whose_generations_are_whose() -> None:
    assert whose(load()) == Whose(("auto",), None, ("acme-ci", "acme-ide", "review"))
    assert whose(load("workspace.line=acme")) == Whose(None, ("acme-ide", "acme-ci"))
    assert whose(Settings.parse("", source="t")) == Whose(("auto",))
    assert Whose.of(whose(load()).facts(), "auto") == whose(load())
    assert Whose.of(None, "other") == Whose(("other",))
    acme, plain = whose(load("workspace.line=acme")), whose(load())
    assert Whose.of(acme.facts(), "acme") == acme
    asked = [("auto", "acme-ci"), ("acme", "acme-ide"), ("was", "acme-ci"), ("auto", ""), ("auto", "else")]
    asked += [("other", "")]
    assert [acme.has(*each) for each in asked] == [True, True, True, False, False, False]
    assert [plain.has(*each) for each in asked] == [False, False, False, True, True, False]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, TOML)


def collect(world: World, line: str = "auto") -> StageResult:
    world.writer.flush()
    return run_stage(world.workspace, world.store, COLLECT, overrides=[f"workspace.line={line}"])


def test_each_line_collects_its_own_users_wherever_they_were_answered(world: World) -> None:
    of = lambda label: {"features": {"population": label}}  # noqa: E731
    world.generation("g1", "everybody", 0)
    world.generation("g2", "ide", 1, **of("acme-ide"))
    world.generation("g3", "ci", 2, **of("acme-ci"), line="acme")
    world.generation("g4", "other", 3, **of("elsewhere"))
    world.generation("g5", "ci-2", 4, **of("acme-ci"), line="acme-of-old")
    world.generation("clock", "late", 5 * HOUR)
    plain = collect(world)
    assert plain.metrics["episodes"] == 2  # everybody's and of a population without a line
    acme = collect(world, "acme")
    assert acme.metrics["episodes"] == 3  # also of before the line was given another name
    assert acme.outputs["interactions"].line == "acme"
    assert acme.outputs["interactions"].meta["whose"]["labels"] == ["acme-ide", "acme-ci"]
    # the line began with what was live, and has an anchor of its own
    assert {world.store.resolve(f"checkpoint@{name}", "acme").digest for name in ("live", "anchor")} == {
        world.live
    }
    assert not begin_line(world.workspace.on_line("acme"), world.store)
    assert collect(world, "acme").status == "noop"


def test_a_dry_run_looks_ahead_to_the_lines_beginning(world: World) -> None:
    """It was refused with the advice to make a checkpoint with `rtrl init`, where the run itself would do."""
    world.generation("g1", "ide-1", 0, features={"population": "acme-ide"})
    world.generation("clock", "late", 5 * HOUR)
    acme, store = world.workspace.on_line("acme"), world.store
    before = sorted(store.dir.rglob("*"))
    dry = run_stage(acme, store, COLLECT, overrides=["collect.min_episodes=1"], dry_run=True)
    assert dry.metrics["would_run"]
    second = store.resolve(world.checkpoint(world.live))
    deploy = DeployStage(override=True, reason="so", offline=True)
    planned = run_stage(acme, store, deploy, [second.ref], dry_run=True).metrics["plan"]
    assert (planned["checkpoint"], planned["from"]) == (second.ref, store.resolve(world.live).ref)
    assert store.alias("acme", "live") is None
    assert [path for path in store.dir.rglob("*") if path not in before and "tmp" in path.parts] == []


def test_what_another_line_has_settled_is_not_settled_for_it(world: World) -> None:
    of_acme = {"features": {"population": "acme-ide"}}
    world.generation("g1", "ide-1", 0, **of_acme)
    world.generation("g2", "ide-2", 1, **of_acme)
    world.generation("g3", "everybody", 2)
    world.generation("clock", "late", 5 * HOUR)
    assert collect(world).metrics["episodes"] == 1
    begin_line(world.workspace.on_line("acme"), world.store)
    world.promote(world.checkpoint(world.live, consumed=["everybody"]))  # of the workspace's own line
    assert collect(world, "acme").metrics["episodes"] == 2


def test_a_line_begins_with_its_parent_or_not_at_all(world: World) -> None:
    second = world.checkpoint(world.live)
    digits = second.removeprefix("sha256:")[:12]
    named = world.workspace.with_overrides(
        ["workspace.line=review", f"populations.review.parent=sha256:{digits}"]
    )
    assert begin_line(named, world.store)
    assert world.store.resolve("checkpoint@live", "review").digest == second
    missing = world.workspace.with_overrides(
        ["workspace.line=acme", "populations.acme.parent=checkpoint@v77"]
    )
    with pytest.raises(InputMissingError, match="v77"):
        begin_line(missing, world.store)
    assert not begin_line(world.workspace, world.store)


def test_the_holdback_is_trained_on_while_its_checkpoint_is_near(world: World) -> None:
    held = {"arm": "holdback"}
    world.generation("g1", "held", 0, **held)
    world.generation("g2", "everybody", 1)
    world.generation("clock", "late", 5 * HOUR)
    assert collect(world).metrics["episodes"] == 2  # the anchor is live: on-policy
    without = run_stage(world.workspace, world.store, COLLECT, overrides=["collect.holdback=false"])
    assert (without.metrics["episodes"], without.metrics["left_behind"]["arm"]) == (1, 1)
    first = world.live
    child = world.checkpoint(world.checkpoint(first))
    world.promote(child)
    world.generation("g3", "held-2", 6 * HOUR, checkpoint=first, **held)
    world.generation("g4", "now", 6 * HOUR + 1, checkpoint=child)
    world.generation("clock-2", "later", 9 * HOUR, checkpoint=child)
    told = collect(world)
    assert told.metrics["episodes"] == 1
    assert told.metrics["left_behind"]["lag"] >= 1  # two checkpoints away


def test_the_same_users_are_held_back_for_good(world: World) -> None:
    store = world.store
    assert holdback_of(store, "auto") is None
    one = open_holdback(store, "auto", world.live, 0.01, 7, by="test")
    assert open_holdback(store, "auto", world.live, 0.01, 99, by="test") == one
    moved = open_holdback(store, "auto", world.checkpoint(world.live), 0.01, 99, by="test")
    assert (moved.salt, moved.opened_seq, moved.id != one.id) == (one.salt, 99, True)
    close_holdback(store, "auto", by="test")
    close_holdback(store, "auto", by="test")
    last = holdback_of(store, "auto")
    assert last is not None
    assert (last.open, last.salt) == (False, one.salt)
    again = open_holdback(store, "auto", world.live, 0.02, 120, by="test")
    assert (again.open, again.salt, again.share) == (True, one.salt, 0.02)
    assert holdback_of(store, "acme") is None
