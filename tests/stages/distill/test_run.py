"""From a click to a reward, over a real spool, vault and store; every number by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stages import schemas, tables
from stages.distill.explain import explain
from stages.distill.run import STAGE
from stages.distill.signals.dissatisfied_followup import EXPLICIT_NO
from stages.errors import InputMissingError
from stages.records import Sampling, ToolCall
from stages.tokens import load_episodes, load_sequences
from stages.vault import UserForgottenError
from tests.stages.distill.distill_world import AFTER, BEFORE, SPEC, a_click, distilled, rewarded
from tests.stages.distill.followups import probability
from tests.stages.world import HOUR, World


def test_from_a_click_to_a_reward(world: World) -> None:
    a_click(world)
    result = distilled(world)
    experience = result.outputs["experience"]
    row = rewarded(experience)["e1"]
    # one line replaced: the new one is gone (0 of 1), the old one still absent (1 of 1)
    assert (row["edit_persistence"], row["term_edit_persistence"]) == (0.5, 0.0)
    assert (row["edit_rejected"], row["term_edit_rejected"]) == (0.0, 0.0)
    unhappy = probability("still wrong", "change area to a product", answer="Done.")
    assert row["dissatisfied_followup"] == pytest.approx(unhappy)
    assert row["term_dissatisfied_followup"] == pytest.approx(-unhappy)
    assert (row["invalid_tool_calls"], row["term_invalid_tool_calls"]) == (0.0, 0.0)
    # the only episode of its size: its own median
    assert (row["latency"], row["term_latency"]) == (0.0, 0.0)
    # call 3 tokens x 2, final 2 x 1, tool output 4 x 0.5, 1 call x 3, 2 turns x 4 = 21; k = 0: cost 21
    assert (row["length_cost"], row["term_length_cost"]) == (21.0, pytest.approx(-0.21))
    assert (row["edited"], row["clarified"], row["asking_price"], row["term_asking_price"]) == (
        1.0,
        0.0,
        0.0,
        0.0,
    )
    assert row["reward"] == pytest.approx(-unhappy - 0.21)
    assert (row["trainable"], row["why_not"], row["stratum"], row["lag"]) == (True, "", "change", 0)

    assert experience.meta["checkpoint"] == world.live
    assert experience.meta["counts"] == {"episodes": 1, "trainable": 1}
    # edit rate 1 is above the band: 0.25 - 1.0 * (1 - 0.75)
    assert experience.meta["price"] == 0.0
    assert (experience.path / "reward_spec.toml").read_text() == SPEC


def test_the_tokens_of_the_click(world: World) -> None:
    a_click(world)
    experience = distilled(world).outputs["experience"]
    (sequence,) = load_sequences(experience, world.store, world.vault)
    assert sequence.token_ids.tolist() == [*range(40), 1, 2, 3, 90, 91, 92, 93, 5, 6]
    assert sequence.sampled.tolist() == [False] * 40 + [True] * 3 + [False] * 4 + [True] * 2
    assert sequence.logprobs.tolist() == [0.0] * 40 + [-0.5] * 3 + [0.0] * 4 + [-0.5] * 2
    assert sequence.checkpoints == (world.live,)
    assert [(g.id, g.output_start, g.output_end) for g in sequence.generations] == [
        ("g1", 40, 43),
        ("g2", 47, 49),
    ]
    (episode,) = load_episodes(experience)
    assert (episode.episode_id, episode.user, episode.group) == ("e1", "ada", "")


def test_an_edit_that_its_client_tells_is_not_counted_once_more_by_its_call(world: World) -> None:
    a_click(world)
    part = {"before": "w + h", "after": "w * h", "part": True, "by_call": True}
    world.event("g1", "edit_applied", 400, path="/home/ada/area.py", **part)
    world.generation("alone", "e2", 0, session="s2", request="the same", answer="Done. Shall I go on?")
    world.event("alone", "edit_applied", 400, path="/home/ada/area.py", **part)
    rows = rewarded(distilled(world).outputs["experience"])
    assert rows["e1"]["edit_persistence"] == 0.5, "as without it"
    assert rows["e2"]["edit_persistence"] is None
    assert (rows["e2"]["edited"], rows["e2"]["clarified"]) == (1.0, 0.0), "it asks, but it has edited"


def test_explain_says_every_term(world: World) -> None:
    a_click(world)
    world.generation("q", "ask", 0, session="s2", request="make it nicer", answer="Which part?")
    experience = distilled(world).outputs["experience"]
    got = explain(world.workspace, world.store, "experience@latest", "e1")
    terms = {term.signal: term for term in got.terms}
    assert sum(t.contribution or 0.0 for t in got.terms) == pytest.approx(got.reward)
    assert (terms["edit_persistence"].weight, terms["edit_persistence"].offset) == (2.0, 0.5)
    assert terms["edited"].note == "not in the reward"
    assert got.sequences == (("g1", "g2"),)
    assert [kind for _, kind in got.events] == ["edit_applied", "user_message", "edit_survival"]
    asked = explain(world.workspace, world.store, experience.ref, "ask")
    terms = {term.signal: term for term in asked.terms}
    # edit rate 0.5 lies in the band: the initial price
    assert (terms["asking_price"].value, terms["asking_price"].contribution) == (1.0, -0.25)
    assert terms["edit_persistence"].note == "not known: 0.25"
    assert asked.reward == pytest.approx(0.25 - 0.125 - 0.25 - 0.01 * (2 + 4))
    for explanation in (got, asked):
        text = "\n".join(explanation.lines()) + json.dumps(explanation.to_dict())
        assert "still wrong" not in text
        assert "Which part" not in text
        assert "reward" in text
    for answer in ("g1", "g2"):  # clients know the ids of their answers, not what episodes are called
        assert explain(world.workspace, world.store, "experience@latest", answer) == got
    with pytest.raises(InputMissingError, match="holds no episode nobody, nor a generation of that id"):
        explain(world.workspace, world.store, "experience@latest", "nobody")


def test_a_question_by_a_tool_costs_what_a_question_costs_until_it_is_answered(world: World) -> None:
    """Asking was free wherever a client offers a tool for it."""
    call = ToolCall(id="c", name="ask_followup_question", arguments="{}")
    answer = '<tool_call>{"name": "ask_followup_question", "arguments": {"question": "Which?"}}</tool_call>'
    for episode in ("open", "answered"):
        world.generation(episode, episode, 0, session=episode, answer=answer, tool_calls=(call,))
    world.generation("then", "answered", 1_000, session="answered", ordinal=1, answer="Done.")
    rows = rewarded(distilled(world).outputs["experience"])
    assert (rows["open"]["clarified"], rows["answered"]["clarified"]) == (1.0, 0.0)
    assert rows["open"]["term_asking_price"] < 0.0 == rows["answered"]["term_asking_price"]


def test_unknown_stays_unknown(world: World) -> None:
    world.generation("g", "e", 0, request="fix it", answer="Done.")
    row = rewarded(distilled(world).outputs["experience"])["e"]
    assert row["edit_persistence"] is None
    assert row["dissatisfied_followup"] is None
    assert (row["term_edit_persistence"], row["term_dissatisfied_followup"]) == (0.25, -0.125)


def test_persistence_that_is_known_of_undone_edits_alone_is_warned_of(world: World) -> None:
    """A client that tells edits and refusals, and never measures what stands: every known edit is a loss."""
    for name, undone in (("a", True), ("b", False), ("c", False)):
        world.generation(name, name, 0, request="fix it", answer="Done.", session=name)
        world.event(name, "edit_applied", 500, path="area.py", before=BEFORE, after=AFTER)
        if undone:
            world.event(name, "edit_reverted", 900, path="area.py")
    (said,) = [one for one in distilled(world).warnings if "edit_persistence" in one]
    assert "known of 1 edits that were undone or refused, and of none of the 2 others" in said
    assert "`edit_survival`" in said
    world.event("b", "edit_survival", HOUR + 500, path="area.py", horizon_s=3600, now=AFTER)
    assert not [one for one in distilled(world).warnings if "edit_persistence" in one]


def test_of_requests_behind_an_editors_context_the_persons_words_count(world: World) -> None:
    context = "# Context from my IDE setup:\n\n## Active file: fix_bug.py\n\n## My request for Codex:\n"
    bare = "explain what this does"
    world.generation("g", "bare", 0, request=bare, answer="Done.")
    world.generation("h", "behind", 0, session="s2", request=f"{context}{bare}\n", answer="Done.")
    world.event("h", "user_message", 60_000, text=f"{context}{bare}\n")
    rows = rewarded(distilled(world).outputs["experience"])
    assert rows["behind"]["work"] == rows["bare"]["work"]
    assert rows["behind"]["dissatisfied_followup"] == EXPLICIT_NO


def test_attempts_at_one_task_share_its_group(world: World) -> None:
    """The client may name it with any request of the chain; who names none has none."""
    for n, features in enumerate(({"group": "g@1"}, {}, {"group": "g@1"})):
        world.generation(f"g{n}", f"e{n}", n * 1000, session=f"s{n}", features=features)
    world.generation("g9", "e1", 5000, session="s1", ordinal=1, features={"group": "g@2"})
    rows = rewarded(distilled(world).outputs["experience"])
    assert {name: row["group"] for name, row in rows.items()} == {"e0": "g@1", "e1": "g@2", "e2": "g@1"}


def test_broken_calls_are_negatives_and_stay(world: World) -> None:
    world.generation("g", "e", 0, answer="<tool_call>{", invalid_tool_calls=2)
    result = distilled(world)
    row = rewarded(result.outputs["experience"])["e"]
    assert (row["invalid_tool_calls"], row["term_invalid_tool_calls"], row["trainable"]) == (2.0, -6.0, True)
    assert len(list(load_sequences(result.outputs["experience"], world.store, world.vault))) == 1


def test_late_duplicate_and_early_events(world: World) -> None:
    """Survival before its edit, the edit before its generation, the message twice, over a restart."""
    early = {"path": "area.py", "before": BEFORE, "after": AFTER}
    world.event("g1", "edit_survival", HOUR + 500, eid="s", path="area.py", horizon_s=3600, now=AFTER)
    assert world.event("g1", "edit_applied", 500, eid="a", **early) == "pending"
    world.writer.close()
    from stages.spool import SpoolWriter

    world.writer = SpoolWriter(world.workspace.spool_dir, world.vault, fsync_ms=1.0)
    world.generation("g1", "e1", 0, answer="Done.")
    assert world.event("g1", "edit_applied", 500, eid="a", **early) == "duplicate"
    assert world.event("g1", "user_message", 900, eid="m", text="thanks") == "accepted"
    assert world.event("g1", "user_message", 900, eid="m", text="still wrong") == "duplicate"
    assert world.event("g1", "edit_reverted", 900, eid="r", key="other", path="area.py") == "rejected"
    row = rewarded(distilled(world).outputs["experience"])["e1"]
    assert row["edit_persistence"] == 1.0
    assert row["edit_rejected"] == 0.0
    assert row["dissatisfied_followup"] < 0.1


def test_an_outcome_told_six_hours_late_still_counts(world: World) -> None:
    a_click(world)
    first = distilled(world)
    before = rewarded(first.outputs["experience"])["e1"]["edit_rejected"]
    world.tick(6 * HOUR)
    world.event("g1", "edit_reverted", 20 * 60_000, path="area.py")
    world.collect()
    row = rewarded(world.run(STAGE).outputs["experience"])["e1"]
    assert (before, row["edit_rejected"], row["edit_persistence"]) == (0.0, 1.0, 0.0)


def test_a_revert_after_the_horizon_leaves_the_reward_as_it_was(world: World) -> None:
    a_click(world)
    before = rewarded(distilled(world).outputs["experience"])["e1"]
    world.event("g1", "edit_reverted", 20 * HOUR, path="area.py")
    world.collect()
    row = rewarded(world.run(STAGE).outputs["experience"])["e1"]
    names = ("reward", "edit_persistence", "edit_rejected", "dissatisfied_followup")
    assert [row[name] for name in names] == [before[name] for name in names]


def test_what_cannot_be_reproduced_gives_metrics_only(world: World) -> None:
    """The audit names the call that `half` lost, too: it was pinned here that it says nothing of it."""
    world.generation("g1", "greedy", 0, sampling=Sampling(temperature=0.0))
    world.generation("g2", "strange", 0, session="s2", sampling=Sampling(unknown=("logit_bias",)))
    world.generation("g3", "defect", 0, session="s3", logprobs=(-1.0,), defect="logprobs_length")
    world.generation("g4", "nothing", 0, session="s4", output=())
    world.generation("g5", "half", 0, session="s5", logprobs=(-1.0,), defect="logprobs_length")
    world.generation("g6", "half", 1, session="s5", ordinal=1)
    result = distilled(world)
    experience = result.outputs["experience"]
    assert {name: row["why_not"] for name, row in rewarded(experience).items()} == {
        "greedy": "greedy",
        "strange": "unknown_sampling",
        "defect": "logprobs_length",
        "nothing": "no_tokens",
        "half": "",
    }
    sequences = list(load_sequences(experience, world.store, world.vault))
    assert [[g.id for g in s.generations] for s in sequences] == [["g6"]]
    audit = {row["exit"]: row["episodes"] for row in result.metrics["audit"]}
    whole = {"greedy": 1, "unknown_sampling": 1, "logprobs_length": 1, "no_tokens": 1, "trainable": 1}
    assert audit == {**whole, "part:logprobs_length": 1}
    quarantine = tables.read(experience.path / "quarantine.parquet", schemas.QUARANTINE).to_pylist()
    assert {row["id"]: row["reason"] for row in quarantine} == {
        "g3": "logprobs_length",
        "g5": "logprobs_length",
    }


def test_an_overflow_gives_metrics_and_leaves_the_rest_of_its_episode_trainable(world: World) -> None:
    """As the gateway records it: no tokens at all, and no defect."""
    overflow: dict[str, Any] = {"finish_reason": "context_overflow", "spans": (), "prompt": (), "output": ()}
    world.generation("g1", "alone", 0, **overflow, answer="")
    world.generation("g2", "late", 0, session="s2")
    world.generation("g3", "late", 1, session="s2", ordinal=1, **overflow, answer="")
    experience = distilled(world).outputs["experience"]
    assert {name: row["why_not"] for name, row in rewarded(experience).items()} == {
        "alone": "no_tokens",
        "late": "",
    }
    sequences = list(load_sequences(experience, world.store, world.vault))
    assert [[g.id for g in s.generations] for s in sequences] == [["g2"]]
    assert tables.read(experience.path / "quarantine.parquet", schemas.QUARANTINE).num_rows == 0


def test_a_user_forgotten_after_collect(world: World) -> None:
    world.generation("g1", "e1", 0)
    world.generation("g2", "e2", 0, user="bob", session="s2")
    for gid in ("g1", "g2"):
        world.event(gid, "edit_applied", 500, path="area.py", before=BEFORE, after=AFTER)
    world.tick(3 * HOUR)
    world.collect()
    first = world.run(STAGE).outputs["experience"]
    world.vault.forget("bob")
    done = world.run(STAGE, force=True)
    again = done.outputs["experience"]
    # both edited: that bob's edit cannot be read any more is no question in its place, and no new behaviour
    assert (again.meta["price"], done.metrics["edit_rate"]) == (first.meta["price"], 1.0)
    assert done.metrics["behaviour"]["edit_rate"] == 1.0
    assert {name: row["why_not"] for name, row in rewarded(again).items()} == {"e1": "", "e2": "forgotten"}
    # and of the experience made before, train gets the others and is told
    gone: list[str] = []
    left = list(load_sequences(first, world.store, world.vault, on_forgotten=gone.append))
    assert ([s.episode_id for s in left], gone) == (["e1"], ["e2"])
    with pytest.raises(UserForgottenError):
        list(load_sequences(first, world.store, world.vault))


def test_feedback_means_what_the_settings_say_when_it_is_collected(world: World) -> None:
    a_click(world)
    world.event("g1", "feedback", 60_000, name="stars", value=1)
    world.event("g1", "feedback", 61_000, name="has_errors", value=True)
    told = distilled(world)
    silent = rewarded(told.outputs["experience"])["e1"]["dissatisfied_followup"]
    assert 0 < silent < 1, "read from the text of the next message"
    assert told.metrics["feedback_not_used"] == {"stars": 1, "has_errors": 1}
    assert "[collect.metrics]" in " ".join(told.warnings)
    world.collect('collect.metrics={"stars": "thumbs 1..5"}')
    again = world.run(STAGE)
    assert rewarded(again.outputs["experience"])["e1"]["dissatisfied_followup"] == 0.95
    assert again.metrics["feedback_not_used"] == {"has_errors": 1}


def test_an_answer_that_was_stopped_at_once_is_no_fast_one(world: World) -> None:
    for n in range(3):
        world.generation(f"g{n}", f"e{n}", 0, session=f"s{n}", duration_ms=8_000.0)
    cut: dict[str, Any] = {"session": "c", "finish_reason": "abort"}
    world.generation("first", "stopped", 0, duration_ms=100.0, **(cut | {"finish_reason": "tool_calls"}))
    world.generation("then", "stopped", 1_000, ordinal=1, duration_ms=800.0, **cut)
    call = (ToolCall(id="c", name="edit_file", arguments=""),)
    world.generation("whole", "called", 0, duration_ms=800.0, tool_calls=call, **(cut | {"session": "d"}))
    world.generation("quick", "halted", 0, session="h", duration_ms=800.0)
    world.event("quick", "interrupted", 900)  # while a tool ran
    rows = rewarded(distilled(world).outputs["experience"])
    assert (rows["stopped"]["latency"], rows["stopped"]["term_latency"]) == (None, 0.0)
    assert rows["halted"]["latency"] is None
    assert rows["e0"]["latency"] == 0.0
    assert rows["called"]["latency"] < 0.0  # its client hung up when it had the call


@pytest.mark.parametrize("finish", ["context_overflow", "timeout"])
def test_an_answer_that_never_came_takes_no_length_away(world: World, finish: str) -> None:
    """The engine tells no prompt of a call without an answer, and the length of all the others was not known
    then: to fill the context was free."""
    base = list(range(40))
    world.generation("g1", "e", 0, prompt=base, output=(1, 2, 3), answer="I look.")
    nothing: dict[str, Any] = {"prompt": (), "output": (), "answer": "", "finish_reason": finish}
    world.generation("g2", "e", 1_000, ordinal=1, **nothing)
    world.generation("g3", "e", 2_000, ordinal=2, prompt=[*base, 1, 2, 3, 8, 9], output=(5, 6))
    row = rewarded(distilled(world).outputs["experience"])["e"]
    # five tokens of answers, two that were read since the first one x 0.5, three turns x 4
    assert row["length_cost"] == 18.0
