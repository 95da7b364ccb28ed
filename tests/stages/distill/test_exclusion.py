"""A run that leaves broken calls out of training fails, and says why; accepted by name it runs."""

from __future__ import annotations

import pytest

from stages.exclusion import ExclusionError
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
        "invalid_calls 1 against 0",
        "edited 0 against 1",
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
    from stages.records import Sampling

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
