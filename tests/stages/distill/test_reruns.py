"""What distill remembers, repeats and refuses: line state, no-ops, recorded runs, damaged inputs."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from stages import schemas, tables
from stages.distill.run import STAGE
from stages.errors import InputMissingError, IntegrityError, UsageError
from stages.linestate import LineState
from stages.monitor.history import History
from stages.records import Sampling
from stages.rewarded import rewarded_by, rewarded_with
from stages.spool.chains import MAX_DEPTH
from stages.tokens import load_sequences
from stages.workspace import Workspace
from tests.stages.distill.distill_world import SPEC, a_click, distilled, rewarded
from tests.stages.world import HOUR, World, consumed_episodes

FIXED = "low = 0.5\nhigh = 0.75"
OF_POPULATIONS = """
[collect]
clock = "events"
[distill]
spec = "spec.toml"
[populations.acme]
"""


def test_the_line_state_remembers(world: World) -> None:
    a_click(world)
    result = distilled(world)
    state = LineState.load(result.outputs["line_state"].path)
    assert state.stabiliser == {"price": 0.0}
    # request of 40 tokens: size class 5; 400 ms over both generations, 10 ms to the first token
    assert state.latency == {
        "latency": {"5": {"value": pytest.approx(math.log(400)), "weight": 1.0}},
        "latency_first_token": {"5": {"value": pytest.approx(math.log(10)), "weight": 1.0}},
    }
    (window,) = state.monitors["windows"]
    figures = History.of_state(state.monitors).windows[0].figures
    assert (window["episodes"], window["checkpoint"]) == (1, world.live)
    names = ("edit_rate", "ask_rate", "turns", "lines_added", "left_out")
    assert {name: figures[name].value for name in names} == {
        "edit_rate": 1.0, "ask_rate": 0.0, "turns": 2.0, "lines_added": 1.0, "left_out": 0.0,
    }  # fmt: skip
    assert result.outputs["line_state"].meta == {"checkpoint": world.live, "stage": "distill"}


def test_the_next_window_is_compared_with_the_line(world: World) -> None:
    a_click(world)
    state = LineState.load(distilled(world).outputs["line_state"].path)
    world.promote(world.checkpoint(parent=world.live, consumed=["e1"], state=state))
    world.generation(
        "g9", "e9", 3 * HOUR, session="s9", prompt=tuple(range(50)), duration_ms=800.0, request="rename it"
    )
    world.tick(6 * HOUR)
    world.collect()
    result = world.run(STAGE)
    row = rewarded(result.outputs["experience"])["e9"]
    assert row["latency"] == pytest.approx(math.log(2))  # 800 ms against 400
    assert row["term_latency"] == pytest.approx(-0.5 * math.log(2))
    # no edit in two episodes (e9 and the clock's): 0 + 1.0 * (0.5 - 0)
    assert result.outputs["experience"].meta["price"] == 0.5
    after = result.outputs["line_state"]
    assert consumed_episodes(after.path) == {"e1"}  # carried on
    assert len(LineState.load(after.path).monitors["windows"]) == 2


def test_what_an_earlier_window_counted_is_not_counted_again(world: World) -> None:
    """What gives no gradient is read again while its checkpoint is near: part of the next window, and all of
    one right after a deploy."""

    def use(user: str, at: int) -> None:
        greedy = Sampling(temperature=0.0)
        world.generation(user, user, at, user=user, session=user, request="rename it", sampling=greedy)

    for user in ("ada", "bob"):
        use(user, 0)
    state = LineState.load(distilled(world).outputs["line_state"].path)
    world.promote(world.checkpoint(parent=world.live, state=state))
    assert world.collect().metrics["episodes"] == 2
    after = LineState.load(world.run(STAGE).outputs["line_state"].path)
    assert after.monitors == state.monitors
    use("cleo", 30 * HOUR)
    world.tick(60 * HOUR)
    found = world.collect().metrics["episodes"]
    last = LineState.load(world.run(STAGE).outputs["line_state"].path).monitors["windows"][-1]
    assert (found, last["episodes"]) == (4, 2), "cleo, and the clock of the first window"


def test_a_population_has_no_windows_but_its_own(world: World) -> None:
    """It began with its parent's: no warm-up, an alarm in its first window, and the band of other people."""
    (world.workspace.root / "rtrl.toml").write_text(OF_POPULATIONS)
    (world.workspace.root / "spec.toml").write_text(SPEC.replace(FIXED, 'band = "history"'))
    world.workspace = Workspace(world.workspace.root)
    a_click(world)
    first = LineState.load(distilled(world).outputs["line_state"].path)
    state = replace(first, stabiliser={"price": 0.75, "rates": [0.9, 0.9, 0.9]})
    world.promote(world.checkpoint(parent=world.live, consumed=["e1"], state=state))

    def lived(line: str, at: int) -> LineState:
        """The line state after some hours of use of the line."""
        of = {"line": line, "features": {"population": "acme" if line == "acme" else ""}}
        for user, when in (("ada", at), ("clock", at + 3)):
            name = f"{line}-{user}-{at}"
            world.generation(name, name, when * HOUR, user=user, session=name, request="rename it", **of)
        world.collect(f"workspace.line={line}")
        return LineState.load(world.run(STAGE, f"workspace.line={line}").outputs["line_state"].path)

    mine, theirs = lived("auto", 4), lived("acme", 4)
    assert [len(each.monitors["windows"]) for each in (mine, theirs)] == [2, 1]
    assert mine.stabiliser["rates"] == [0.9, 0.9, 0.9]
    # the price goes with the policy that learnt at it
    theirs_alone = {"price": 0.75, "rates": [0.0], "episodes": [1], "capped": True}
    assert theirs.stabiliser == theirs_alone
    trained = world.checkpoint(parent=world.live, state=theirs, line="acme")
    world.store.move_alias("acme", "live", trained, reason="test")
    assert len(lived("acme", 20).monitors["windows"]) == 2


def test_the_monitors_see_the_reward_without_the_price_of_asking(world: World) -> None:
    """It eases off by itself: "training reward rises and users do not" was called where nothing changed."""
    for user in ("ada", "bob", "cleo"):
        world.generation(user, user, 0, user=user, session=user, answer="Which of the two do you mean?")
    world.generation("dora", "dora", 0, user="dora", session="dora", answer="Done.")
    world.event("ada", "user_message", 60_000, text="still wrong")
    result = distilled(world)
    rows = [row for row in rewarded(result.outputs["experience"]).values() if row["reward"] is not None]
    assert {row["term_asking_price"] for row in rows} == {0.0, -0.75}  # Dora is told, not asked
    (window,) = LineState.load(result.outputs["line_state"].path).monitors["windows"]
    reward, paid = (sum(row[name] for row in rows) / len(rows) for name in ("reward", "term_asking_price"))
    assert window["reward"][0] == pytest.approx(reward - paid)
    # rewards of windows from before, the price in them, are another reward
    assert window["spec"] != result.outputs["experience"].meta["spec"]


def test_another_source_of_a_teams_signal_is_another_reward(world: World) -> None:
    """The monitors compared rewards by both, and the trainer went on from the baselines of the first."""
    mine = '\n[signals.mine]\nfunction = "ours_rewarding:mine"\nweight = 1.0\nunknown = 0.0\n'
    (world.root / "ws" / "spec.toml").write_text(SPEC.replace("[stabiliser]", f"{mine}[stabiliser]"))
    a_click(world)
    seen = []
    for n in (1, 10):
        (world.root / "ws" / "ours_rewarding.py").write_text(f"def mine(seen):\n    return {n}\n")
        result = distilled(world) if n == 1 else world.run(STAGE)
        (window,) = LineState.load(result.outputs["line_state"].path).monitors["windows"]
        seen.append((rewarded_by(result.outputs["experience"]), window["spec"]))
    (first, one), (second, other) = seen
    assert first != second
    of = " less asking_price, refusals of edits"  # what windows from before are not
    assert (one, other) == (f"{first}{of}", f"{second}{of}")
    assert rewarded_with("sha256:1", {}) == "sha256:1"  # without any it is the spec, as it was


def test_the_same_interactions_again_is_a_no_op_until_the_spec_changes(world: World) -> None:
    a_click(world)
    first = distilled(world)
    assert world.run(STAGE).status == "noop"
    path = world.root / "ws" / "spec.toml"
    path.write_text(SPEC.replace("weight = 2.0", "weight = 3.0"))
    second = world.run(STAGE)
    assert second.status == "succeeded"
    assert second.outputs["experience"].meta["spec"] != first.outputs["experience"].meta["spec"]


def test_a_spec_that_waits_longer_than_collect_did(world: World) -> None:
    a_click(world)
    (world.root / "ws" / "spec.toml").write_text(SPEC + "[horizons]\npersistence_s = 21600.0\n")
    with pytest.raises(UsageError, match="waits 21600 s") as caught:
        distilled(world)
    assert "collect.horizon_s=21600, or shorten persistence_s under [horizons]" in caught.value.hint


def test_no_interactions(world: World) -> None:
    with pytest.raises(InputMissingError, match="interactions@latest") as caught:
        world.run(STAGE)
    assert caught.value.code == 5


def test_a_flipped_byte_in_the_interactions(world: World) -> None:
    a_click(world)
    world.tick(3 * HOUR)
    artifact = world.collect().outputs["interactions"]
    path = tables.parts(artifact.path)[0] / schemas.EVENTS_FILE
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    with pytest.raises(IntegrityError) as caught:
        world.run(STAGE)
    assert caught.value.code == 12
    assert caught.value.hint


def test_signals_no_client_sends_are_warned_of(world: World) -> None:
    world.generation("g", "e", 0)
    warnings = distilled(world).warnings
    assert any("edit_persistence" in warning for warning in warnings)


def test_a_recorded_run_is_repeated_with_its_inputs_and_spec(world: World) -> None:
    a_click(world)
    result = distilled(world)
    (world.root / "ws" / "spec.toml").write_text(SPEC.replace("weight = 2.0", "weight = 3.0"))
    again = world.run(STAGE, from_run=result.run_id)
    assert again.outputs["experience"].meta == result.outputs["experience"].meta
    assert rewarded(again.outputs["experience"]) == rewarded(result.outputs["experience"])


def test_parts_change_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(7):
        prompt = tuple(range(30 + n))
        world.generation(f"a{n}", f"e{n}", n, session=f"s{n}", prompt=prompt, output=(1, n))
    for n in range(7):  # the second generations come after all first ones
        prompt = (*range(30 + n), 1, n, 99)
        world.generation(f"b{n}", f"e{n}", n + 10, session=f"s{n}", prompt=prompt, output=(2,), ordinal=1)
        world.event(f"a{n}", "thumbs", 50, value=1 if n % 2 else -1)
    whole = distilled(world).outputs["experience"]
    monkeypatch.setattr(schemas, "PART_EPISODES", 3)
    interactions = world.collect(force=True).outputs["interactions"]
    assert [path.name for path in tables.parts(interactions.path)] == [
        "part-00000",
        "part-00001",
        "part-00002",
    ]
    parted = world.run(STAGE).outputs["experience"]
    assert rewarded(parted) == rewarded(whole)
    one, other = (list(load_sequences(e, world.store, world.vault)) for e in (whole, parted))
    assert [s.token_ids.tolist() for s in one] == [s.token_ids.tolist() for s in other]
    assert len(one) == 7
    assert [g.id for g in one[0].generations] == ["a0", "b0"]


def test_a_long_episode_is_one_sequence_wherever_the_spool_cut_its_links(world: World) -> None:
    """Too many links, and each new segment of the spool: each made one sequence more, with all before it."""
    prompt, turns = list(range(20)), MAX_DEPTH + 40
    for n in range(turns):
        world.generation(f"g{n}", "e", n, ordinal=n, prompt=prompt, output=(n, 8))
        if n % 9 == 4:  # a helper with the same beginning, in the same episode
            world.generation(f"h{n}", "e", n, ordinal=n, prompt=[*range(18), 500 + n], output=(9,))
        prompt = [*prompt, n, 8, 90]
        if n % 50 == 30:
            world.writer.seal()
    experience = distilled(world).outputs["experience"]
    (long, *others) = sorted(
        load_sequences(experience, world.store, world.vault), key=lambda s: -len(s.generations)
    )
    assert [g.id for g in long.generations] == [f"g{n}" for n in range(turns)]
    assert long.token_ids.tolist() == prompt[:-1]
    assert [len(s.generations) for s in others] == [1] * len(range(4, turns, 9))


def test_a_prompt_in_full_that_only_looks_alike_goes_on_from_nothing(world: World) -> None:
    world.generation("a", "e", 0, prompt=range(20), output=(7, 8))
    world.writer.seal()
    world.generation("b", "e", 1, ordinal=1, prompt=[*range(20), 7, 9, 90], output=(1,))
    world.writer.seal()
    world.generation("c", "e", 2, ordinal=2, prompt=range(20), output=(2,))  # again
    experience = distilled(world).outputs["experience"]
    found = [[g.id for g in s.generations] for s in load_sequences(experience, world.store, world.vault)]
    assert found == [["a"], ["b"], ["c"]]
