"""Which answers share an episode, and so a reward: those of one chain, none that was asked for instead."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from stages.gateway.asking import asked
from stages.gateway.episodes import Episodes
from stages.records import GOES_ON
from tests.stages.gateway.rig import Rig, follow_ups, running, until

USER = {"role": "user", "content": "open the file"}
DONE = {"role": "assistant", "content": "It is open."}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
TOOL = {"role": "tool", "content": "ok", "tool_call_id": "c1"}


def say(text: str) -> dict[str, Any]:
    return {"role": "user", "content": f"please mend it now stub:say {text}"}


async def ask(rig: Rig, *messages: dict[str, Any], **headers: str) -> tuple[str, dict[str, Any]]:
    """(generation id, the message)."""
    body = (await rig.chat("", messages=list(messages), headers=headers, tools=TOOLS)).json()
    return body["id"], body["choices"][0]["message"]


async def where(rig: Rig, *ids: str) -> list[tuple[str, int]]:
    found = {g.id: (g.episode, g.ordinal) for g in rig.generations()}
    return [found[one] for one in ids]


async def test_another_answer_to_the_same_history_is_an_episode_of_its_own(rig: Rig) -> None:
    """They shared one: the answer that was thrown away was trained with the reward of the other."""
    bad, _ = await ask(rig, USER, DONE, say("one"))
    again, said = await ask(rig, USER, DONE, say("one"))
    edited, other = await ask(rig, USER, DONE, say("two"))
    went_on, _ = await ask(rig, USER, DONE, say("two"), other, TOOL)
    (one, place), *others = await where(rig, bad, again, edited, went_on)
    assert (one.endswith("/2"), place) == (True, 0)
    assert others == [(f"{one}-{again[-12:]}", 0), (f"{one}-{edited[-12:]}", 0), (f"{one}-{edited[-12:]}", 1)]
    assert len({g.session for g in rig.generations()}) == 1
    following, _ = await ask(rig, USER, DONE, say("one"), said, say("three"))
    assert (await where(rig, following))[0][0].endswith("/3")


async def test_what_goes_on_belongs_to_the_answer_it_goes_on_from(rig: Rig) -> None:
    first, said = await ask(rig, USER, DONE, say("one"))
    second, other = await ask(rig, USER, DONE, say("two"))
    back, _ = await ask(rig, USER, DONE, say("one"), said, TOOL)
    there, _ = await ask(rig, USER, DONE, say("two"), other, TOOL)
    unknown, _ = await ask(rig, USER, DONE, say("two"), {**other, "content": "rewritten"}, TOOL)
    one, two, *others = await where(rig, first, second, back, there, unknown)
    assert one[0] != two[0]
    assert others == [(one[0], 1), (two[0], 1), (two[0], 2)], "of the latest, where nobody knows"


async def test_a_request_tells_which_of_several_answers_it_follows(rig: Rig) -> None:
    first, said = await ask(rig, USER, DONE, say("one"))
    second, other = await ask(rig, USER, DONE, say("two"))
    new = say("three")
    there, _ = await ask(rig, USER, DONE, say("two"), other, new)
    back, _ = await ask(rig, USER, DONE, say("one"), said, new)
    looped, _ = await ask(rig, USER, DONE, say("one"), said, TOOL, {**DONE, "content": "more"}, new)
    unknown, _ = await ask(rig, USER, DONE, say("two"), {**other, "content": "rewritten"}, new)
    (one, _), (two, _) = await where(rig, first, second)
    told = {g.id: g.features.get(GOES_ON, "") for g in rig.generations()}
    assert [told[gid] for gid in (first, second, there, back, looped, unknown)] == ["", "", two, one, one, ""]


@pytest.mark.parametrize("again", [False, True])
def test_what_goes_on_after_a_restart_is_in_the_first_episode(*, again: bool) -> None:
    """Nearly all go on with the only answer there was; that it was the other one is not in the request."""

    def call(number: int) -> dict[str, Any]:
        function = {"name": "f", "arguments": "{}"}
        return {"role": "assistant", "tool_calls": [{"id": f"c{number}", "function": function}]}

    before, after = Episodes(), Episodes()
    begun = [
        before.derived(f"g{n}", "s", asked([USER]), [USER], call(n), no_train=False) for n in range(1 + again)
    ]
    messages = [USER, call(int(again)), TOOL]
    went_on = after.derived("later", "s", asked(messages), messages, call(9), no_train=False)
    assert (begun[0], went_on, len(set(begun))) == ("s/1", "s/1", 1 + again)


async def test_of_two_equal_calls_the_one_that_was_carried_out_goes_on(rig: Rig) -> None:
    request = {"role": "user", "content": 'please mend it now stub:call f {"a": 1}'}
    first, said = await ask(rig, USER, DONE, request)
    second, other = await ask(rig, USER, DONE, request)
    assert (said["tool_calls"][0]["function"]) == other["tool_calls"][0]["function"]
    went_on, _ = await ask(rig, USER, DONE, request, said, TOOL)
    one, two, after = await where(rig, first, second, went_on)
    assert (after, one[0] != two[0]) == ((one[0], 1), True)


async def test_a_window_that_slides_has_an_episode_for_each_request(rig: Rig) -> None:
    """The number of user messages stands still: all that followed shared one reward, and no follow-up."""
    history: list[dict[str, Any]] = []
    ids = []
    system, named = {"role": "system", "content": "s"}, {"x-rtrl-session": "s"}
    for n in range(6):
        history.append(say(f"number{n}"))
        one, said = await ask(rig, system, *history[-5:], **named)
        ids.append(one)
        history.append(said)
    assert len({episode for episode, _ in await where(rig, *ids)}) == 6


async def test_a_request_sent_again_after_a_time_out(rig: Rig) -> None:
    """Both are recorded; the one that nobody saw earned what the other did, and the call went on in it."""
    held = [USER, DONE, {"role": "user", "content": f"please mend it now {rig.hold(4)}"}]
    body = {"model": "rtrl", "messages": held, "tools": TOOLS}
    with pytest.raises(httpx.ReadTimeout):
        await rig.http.post("/v1/chat/completions", json=body, timeout=0.3)
    again = asyncio.create_task(ask(rig, *held))
    await until(lambda: len(rig.stub.steps.counts()["sampled"]) == 2)
    rig.let_go()
    seen, said = await again
    await until(lambda: len(rig.generations()) == 2)
    went_on, _ = await ask(rig, *held, said, TOOL)
    (unseen,) = {g.id for g in rig.generations()} - {seen, went_on}
    lost, answered, after = await where(rig, unseen, seen, went_on)
    assert lost[0] != answered[0]
    assert after[0] in (lost[0], answered[0])


async def test_what_was_not_answered_is_the_same_episode(rig: Rig) -> None:
    """A prompt that did not fit, and what was asked instead: the user has waited for one answer."""
    too_long = {"role": "user", "content": "please mend it now stub:overflow"}
    assert (await rig.chat("", messages=[USER, DONE, too_long])).status_code == 400
    answer, _ = await ask(rig, USER, DONE, say("one"))
    lost, found = rig.generations()
    assert (found.id, found.episode, found.ordinal) == (answer, lost.episode, 1)


@pytest.mark.parametrize("headers", [{}, {"x-rtrl-session": "s"}, {"x-rtrl-no-train": "1"}])
async def test_each_kind_of_session_has_its_own(rig: Rig, headers: dict[str, str]) -> None:
    one, _ = await ask(rig, USER, DONE, say("one"), **headers)
    two, _ = await ask(rig, USER, DONE, say("one"), **headers)
    (first, _), (second, _) = await where(rig, one, two)
    assert second == f"{first}-{two[-12:]}"
    assert first.endswith("/2-no-train") == ("x-rtrl-no-train" in headers)


async def test_the_request_once_more_is_the_follow_up_of_the_first(tmp_path: Any) -> None:
    async with running(tmp_path) as rig:
        first, _ = await ask(rig, USER, DONE, say("one"))
        second, _ = await ask(rig, USER, DONE, say("one"))
        rig.spool.flush()
    found = follow_ups(tmp_path)
    assert list(found) == [first, second]
    assert list(found.values()) == [second, ""]


async def test_the_request_once_more_is_no_follow_up_where_the_engine_died(tmp_path: Any) -> None:
    """Copilot, OpenCode and others ask again by themselves, and their library does not say so."""
    async with running(tmp_path) as rig:
        rig.stub.words = "stub:die=3 stub:say half an answer"
        await rig.chat("bake", stream=True)
        rig.stub.words = "stub:say done"
        await rig.chat("bake")
        messages = [{"role": "user", "content": "bake"}, {"role": "assistant", "content": "done"}]
        await rig.chat("", messages=[*messages, {"role": "user", "content": "too sweet"}])
        died, answer, complaint = rig.generations()
    assert died.finish_reason == "error"
    assert follow_ups(tmp_path) == {died.id: "", answer.id: complaint.id, complaint.id: ""}
