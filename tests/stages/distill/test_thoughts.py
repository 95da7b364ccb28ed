"""What a model thought before it answered says nothing of its answer, whoever asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from stages import tables
from stages.distill.facts import PartReader
from stages.distill.measure import measure
from stages.distill.spec import load
from stages.records import BEGUN, ToolCall
from tests.stages.distill.distill_world import distilled, rewarded
from tests.stages.world import World

WONDERS = "Which value should it be?"
CASES = {
    "thought": ("1", f"{WONDERS} I take 3.\n</think>\n\nDone.", "Done.", False),
    "cut while it thought": ("1", WONDERS, "", False),
    "asked behind a thought": ("1", f"Hm.</think>{WONDERS}", WONDERS, True),
    "asked behind a tag": ("0", f"Done. <think>{WONDERS}", f"Done. <think>{WONDERS}", True),
    "asked before a tag": ("0", f"{WONDERS}</think>Done.", f"{WONDERS}</think>Done.", True),
}


@pytest.mark.parametrize("name", CASES)
def test_a_follow_up_is_to_what_was_said(world: World, name: str) -> None:
    """A thought was judged as the answer's end, and free was what was asked behind a tag of the model's."""
    begun, answer, said, asks = CASES[name]
    world.generation("g", "e", 0, answer=answer, features={BEGUN: begun}, output=(1, 2, 3, 4))
    world.event("g", "user_message", 1_000, text="and now the docs")
    result = distilled(world)
    assert rewarded(result.outputs["experience"])["e"]["clarified"] == float(asks)
    spec = load("default", Path())[0]
    (part,) = tables.parts(world.store.resolve("interactions@latest").path)
    (episode,) = PartReader(world.vault).episodes(part)
    (case,) = measure([episode], spec)[1].values()
    assert (case.answer, case.asked) == (said, asks)
    assert episode.answer == answer
    assert episode.thinking == [pytest.approx(1 - len(said) / len(answer))]


MINIMAX = f'<minimax:tool_call>\n<invoke name="bash">{WONDERS}\n</invoke></minimax:tool_call>'
MISTRAL = f'[TOOL_CALLS]bash[ARGS]{{"command": "# {WONDERS}"}}'


@pytest.mark.parametrize("call", [MINIMAX, MISTRAL])
@pytest.mark.parametrize("called", [True, False])
def test_a_question_in_a_call_of_any_family_is_not_asked(world: World, called: bool, call: str) -> None:
    """One in Hermes's tags was none. Of a model that calls otherwise it is text, which people read."""
    calls = (ToolCall(id="c", name="bash", arguments=""),) * called
    world.generation("g", "e", 0, answer=f"I look.\n{call}", features={BEGUN: "0"}, tool_calls=calls)
    world.event("g", "user_message", 1_000, text="no, that's wrong")
    assert rewarded(distilled(world).outputs["experience"])["e"]["clarified"] == float(not called)
    (part,) = tables.parts(world.store.resolve("interactions@latest").path)
    (case,) = measure([*PartReader(world.vault).episodes(part)], load("default", Path())[0])[1].values()
    assert (WONDERS in case.answer) is not called, "a no to it would be an answer"
