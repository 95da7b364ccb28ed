"""A run that leaves broken calls out of training fails, and says why; accepted by name it runs."""

from __future__ import annotations

from typing import Any

import pytest

from stages.exclusion import ExclusionError
from stages.linestate import LineState
from stages.monitor.history import History
from stages.records import Sampling
from stages.result import StageResult
from tests.stages.distill.distill_world import distilled, rewarded
from tests.stages.world import HOUR, World

SPEC = """
schema = "rtrl-reward/1"
name = "naive"
[signals.edit_rejected]
weight = -1.0
unknown = 0.0
[signals.length_cost]
weight = -0.01
unknown = 0.0
[drop.invalid_tool_calls]
above = 0
"""
ACCEPTED = '[accepted_exits]\n"drop:invalid_tool_calls" = "to show the hack"\n'


def some_use(world: World) -> None:
    """Two users with 10 episodes each: 4 break a call and stop, 6 edit with many tokens."""
    edit = {"path": "a.py", "before": "a = 1\n", "after": "a = 2\n"}
    for user in ("ada", "bob"):
        for n in range(10):
            broken, name = n < 4, f"{user}{n}"
            output = (1, 2) if broken else tuple(range(1, 30 + n))
            world.generation(
                f"g{name}", f"e{name}", n * 60_000, user=user, session=name, output=output,
                invalid_tool_calls=int(broken),
            )  # fmt: skip
            if not broken:
                world.event(f"g{name}", "edit_applied", n * 60_000 + 500, **edit)


def test_a_filter_on_broken_calls_fails_the_run_and_says_why(world: World) -> None:
    some_use(world)
    world.workspace.root.joinpath("naive.toml").write_text(SPEC)
    with pytest.raises(ExclusionError) as caught:
        distilled(world, "distill.spec=naive.toml")
    told = caught.value
    assert (told.code, told.kind) == (2, "exclusion")
    for words in (
        "drop:invalid_tool_calls",
        "took 8 episodes (40.0%)",
        "against the 12 that stayed",
        "invalid_calls 1 against 0 (p 0.00016), ",
        "edited 0 against 1 (p 0.00016), ",
        "is never punished",
    ):
        assert words in told.message
    assert "take [drop.invalid_tool_calls] out of the spec" in told.hint
    assert '"drop:invalid_tool_calls" = ' in told.hint


def test_accepted_by_name_it_runs_and_the_numbers_stay(world: World) -> None:
    some_use(world)
    world.workspace.root.joinpath("naive.toml").write_text(SPEC + ACCEPTED)
    result = distilled(world, "distill.spec=naive.toml")
    rows = {row["exit"]: row for row in result.metrics["audit"]}
    row = rows["drop:invalid_tool_calls"]
    assert (row["by"], row["verdict"], row["reason"]) == ("policy", "accepted", "to show the hack")
    assert (row["episodes"], row["share"], rows["trainable"]["episodes"]) == (8, 0.4, 12)
    shift = row["shifts"]["edited"]
    assert (shift["removed"], shift["kept"], shift["difference"]) == (0.0, 1.0, -1.0)
    # each user: C(10, 4) = 210 choices of the four, one is as extreme as this
    assert shift["p"] == pytest.approx(1 / 210**2, abs=1e-6)
    why = {row["why_not"] for row in rewarded(result.outputs["experience"]).values() if not row["trainable"]}
    assert why == {"drop:invalid_tool_calls"}


def test_a_filter_that_took_nothing_yet_is_refused_all_the_same(world: World) -> None:
    world.generation("g1", "e1", 0)
    world.workspace.root.joinpath("naive.toml").write_text(SPEC)
    with pytest.raises(ExclusionError, match="It took nothing yet"):
        distilled(world, "distill.spec=naive.toml")


def test_unknown_signals_that_exclude_are_the_same_exit(world: World) -> None:
    world.generation("g1", "e1", 0)
    world.workspace.root.joinpath("naive.toml").write_text(
        SPEC[: SPEC.index("[signals")] + '[signals.edit_persistence]\nweight = 1.0\nunknown = "exclude"\n'
    )
    with pytest.raises(ExclusionError, match="unknown:edit_persistence") as caught:
        distilled(world, "distill.spec=naive.toml")
    assert "1 episode (100.0%)" in caught.value.message
    assert "say what edit_persistence is worth" in caught.value.hint


def test_what_the_client_asks_for_may_differ_without_news(world: World) -> None:
    some_use(world)
    for n in range(8):
        world.generation(
            f"x{n}", f"x{n}", HOUR // 2 + n, user="ada", session=f"x{n}", sampling=Sampling(temperature=0.0),
            output=tuple(range(1, 200)),
        )  # fmt: skip
    result = distilled(world)
    rows = {row["exit"]: row for row in result.metrics["audit"]}
    assert (rows["greedy"]["by"], rows["greedy"]["verdict"]) == ("user", "differs")
    assert not [text for text in result.warnings if "by chance" in text]


def test_a_way_out_that_nobody_declared_is_warned_of(world: World) -> None:
    """Long answers come back with too few logprobs: the engine's fault, and the policy's chance."""
    some_use(world)
    for n in range(10):
        world.generation(
            f"x{n}", f"x{n}", HOUR // 2 + n, user="ada", session=f"x{n}", output=tuple(range(1, 200)),
            logprobs=(-1.0,), defect="logprobs_length",
        )  # fmt: skip
    result = distilled(world)
    (told,) = [text for text in result.warnings if "by chance" in text]
    assert told.startswith("logprobs_length took 10 episodes (33.3%)")
    assert "output_tokens 199 against" in told


def chain(world: World, name: str, at: int, *, user: str, **last: Any) -> None:
    """An episode of two calls, of which the second is as `last` says."""
    world.generation(f"a{name}", f"e{name}", at, user=user, session=name, output=(1, 2, 3))
    fields: dict[str, Any] = {"output": tuple(range(1, 20)), "ordinal": 1} | last
    prompt = (*range(20), 1, 2, 3, 99)
    world.generation(f"b{name}", f"e{name}", at + 10, user=user, session=name, prompt=prompt, **fields)


BROKEN: dict[str, Any] = {
    "output": tuple(range(1, 200)),
    "invalid_tool_calls": 1,
    "logprobs": (-1.0,),
    "defect": "logprobs_length",
}


def test_a_way_out_for_a_part_of_an_episode_is_warned_of(world: World) -> None:
    """14 of 40 episodes lose their long broken call, and are trained on with what is left."""
    for n in range(40):
        chain(world, str(n), n * 1000, user=f"u{n % 4}", **(BROKEN if n % 3 == 0 else {}))
    result = distilled(world)
    part, kept = result.metrics["audit"]
    assert (part["exit"], part["by"]) == ("part:logprobs_length", "infrastructure")
    assert (part["episodes"], part["lost_turns"], part["share"]) == (14, 14, 0.35)
    assert (part["verdict"], kept["exit"], kept["episodes"]) == ("differs", "trainable", 40)
    told = part["shifts"]
    # what was lost, against the 40 first calls and the 26 second ones that stay
    sides = {name: (shift["removed"], shift["kept"]) for name, shift in told.items()}
    assert sides["turn_tokens"] == (199.0, round((40 * 3 + 26 * 19) / 66, 6))
    assert sides["turn_invalid_calls"] == (1.0, 0.0)
    assert sides["turns_before"] == (1.0, round(26 / 66, 6))
    assert told["reward"]["difference"] < -1
    (text,) = [text for text in result.warnings if "by chance" in text]
    assert text.startswith("part:logprobs_length took 14 model calls out of 14 episodes (35.0%) that stay")
    assert "turn_invalid_calls 1 against 0" in text
    assert text.endswith("the calls that stay are punished in place of those that it took")
    assert left_out(result) == pytest.approx(14 * 0.5 / 40)


def test_what_is_lost_by_chance_is_no_news_though_long_episodes_lose_more(world: World) -> None:
    """Every 19th call: 15 of the 33 episodes of 8 calls lose one, and 2 of the 33 of 2 calls."""
    at, lost = 0, 0
    for n in range(66):
        calls = 8 if n % 2 else 2
        for k in range(calls):
            at += 1000
            bad: dict[str, Any] = {"logprobs": (-1.0,), "defect": "logprobs_length"}
            lost += (gone := at % 19_000 == 0)
            world.generation(
                f"g{n}-{k}", f"e{n}", at, user=f"u{n // 2 % 5}", session=str(n), ordinal=k,
                output=tuple(range(1, 4 + at // 1000 * 7 % 31)), prompt=(k, *range(20)),
                **(bad if gone else {}),
            )  # fmt: skip
    result = distilled(world)
    part = result.metrics["audit"][0]
    assert (part["exit"], part["lost_turns"], part["verdict"]) == ("part:logprobs_length", lost, "same")
    assert part["turns"] > result.metrics["audit"][-1]["turns"] + 1
    assert not [text for text in result.warnings if "by chance" in text]


def test_calls_that_the_client_wants_greedy_are_no_news(world: World) -> None:
    """A client that asks for a title at temperature 0, of a third of its episodes: in the table, no more."""
    greedy: dict[str, Any] = {"sampling": Sampling(temperature=0.0), "output": tuple(range(1, 200))}
    for n in range(40):
        chain(world, str(n), n * 1000, user=f"u{n % 4}", **(greedy if n % 3 == 0 else {}))
    result = distilled(world)
    rows = {row["exit"]: row for row in result.metrics["audit"]}
    assert (rows["part:greedy"]["by"], rows["part:greedy"]["verdict"]) == ("user", "differs")
    assert not [text for text in result.warnings if "by chance" in text]
    assert left_out(result) == 0.0


def test_a_call_without_a_token_is_nothing_lost_and_one_that_was_cut_is_not_called_broken(
    world: World,
) -> None:
    """The context is full in a third of the episodes; the engine dies in another."""
    nothing: dict[str, Any] = {"output": (), "spans": (), "finish_reason": "context_overflow", "answer": ""}
    cut: dict[str, Any] = {"defect": "engine_lost", "finish_reason": "error", "invalid_tool_calls": 1}
    for n in range(30):
        chain(world, str(n), n * 1000, user=f"u{n % 4}", **(nothing, cut, {})[n % 3])
    rows = {row["exit"]: row for row in distilled(world).metrics["audit"]}
    assert rows.keys() == {"part:engine_lost", "trainable"}
    told = rows["part:engine_lost"]["shifts"]
    assert (told["turn_invalid_calls"]["removed"], told["turn_tokens"]["removed"]) == (None, 19.0)


def test_parts_of_episodes_that_left_whole_are_no_news_of_their_own(world: World) -> None:
    for n in range(12):
        chain(world, str(n), n * 1000, user=f"u{n % 4}", **(BROKEN if n % 3 == 0 else {}))
    world.workspace.root.joinpath("naive.toml").write_text(SPEC + ACCEPTED)
    rows = {row["exit"]: row for row in distilled(world, "distill.spec=naive.toml").metrics["audit"]}
    assert rows.keys() == {"drop:invalid_tool_calls", "trainable"}
    assert rows["drop:invalid_tool_calls"]["episodes"] == 4


def left_out(result: StageResult) -> float:
    """What the monitors were told of the window."""
    state = LineState.load(result.outputs["line_state"].path)
    return float(History.of_state(state.monitors).windows[-1].figures["left_out"].value)
