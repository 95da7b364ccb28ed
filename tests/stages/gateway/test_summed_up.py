"""A conversation that its client sums up stays one session, and what was being worked on one episode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions.spoken import words_of
from stages.gateway.summed_up import continued, goes_on, wanted
from stages.records import GOES_ON
from tests.stages.gateway.rig import Rig, follow_ups, running

WANTED = (
    "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\n- Do NOT use Read, Bash, or ANY other tool."
)
SUMMARY = "This session is being continued from a previous conversation that ran out of context."
REMINDER = "<system-reminder>\nToday's date is 2026-11-29.\n</system-reminder>"
COMPACTED = (
    "<local-command-caveat>The command below was run directly in Claude Code.</local-command-caveat>\n",
    "<command-name>/compact</command-name>\n<command-message>compact</command-message>\n"
    "<command-args></command-args>\n",
    "<local-command-stdout>Compacted</local-command-stdout>\n",
)
CALLED = {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function"}]}
CALLED["tool_calls"][0]["function"] = {"name": "f", "arguments": "{}"}  # type: ignore[index]
GAVE = {"role": "tool", "tool_call_id": "c1", "content": "ok"}


def user(*texts: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}


def agent(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


async def ask(rig: Rig, *messages: dict[str, Any], named: str = "c1", helper: str = "") -> str:
    told = {"x-claude-code-session-id": named, "x-claude-code-agent-id": helper}
    headers = {name: value for name, value in told.items() if value}
    answer = await rig.chat("", messages=list(messages), headers=headers)
    return answer.headers["x-rtrl-generation-id"] if answer.status_code == 200 else ""


async def test_an_episode_goes_on_behind_a_summary(tmp_path: Path) -> None:
    """What its client had to sum up in the middle was three sessions, and the complaint was of the last."""
    async with running(tmp_path) as rig:
        asks = [user("one"), agent("done"), user("please mend the parser")]
        before = await ask(rig, *asks)
        summed = await ask(rig, *asks, CALLED, GAVE, user(WANTED))
        behind = [user(SUMMARY), user(REMINDER), CALLED, GAVE, user(REMINDER)]
        later = [await ask(rig, *behind), await ask(rig, *behind, CALLED, GAVE)]
        again = await ask(rig, *behind, CALLED, GAVE, user(WANTED))
        last = await ask(rig, user(SUMMARY), CALLED, GAVE)
        says = await ask(rig, user(SUMMARY), CALLED, GAVE, agent("done"), user("that is wrong"))
        made = {g.id: g for g in rig.generations()}
        chain = [before, summed, *later, again, last]
        assert {made[one].session for one in made} == {made[before].session}
        assert {made[one].episode for one in chain} == {f"{made[before].session}/2"}
        assert [made[one].ordinal for one in chain] == [0, 1, 2, 3, 4, 5]
        assert made[says].episode != made[before].episode
    assert follow_ups(tmp_path) == {before: says, says: ""}


async def test_who_has_it_summed_up_and_complains_is_heard(tmp_path: Path) -> None:
    """By a command of the client's: all that stood behind it in the message was taken for a notice."""
    async with running(tmp_path) as rig:
        history = [user("one"), agent("done"), user("two")]
        first = await ask(rig, *history)
        await ask(rig, *history, agent("two is done"), user(WANTED))
        says = await ask(rig, user(SUMMARY), agent("two is done"), user(REMINDER, *COMPACTED, "no, wrong"))
        text = rig.payload(says)[0].request
    assert words_of(text) == "no, wrong"
    assert follow_ups(tmp_path) == {first: says, says: ""}


async def test_what_did_not_fit_is_answered_behind_the_summary(tmp_path: Path) -> None:
    """The client leaves it out of what is to be summed up, and asks it once more by itself."""
    async with running(tmp_path) as rig:
        history = [user("one"), agent("done"), user("two"), agent("two is done")]
        first = await ask(rig, *history[:3])
        await ask(rig, *history, user("three stub:overflow"))
        await ask(rig, *history[:2], user("two\n", WANTED))
        rest = [user(SUMMARY), agent("two is done"), user(REMINDER, "three stub:overflow")]
        await ask(rig, *rest)
        lost = [g for g in rig.generations() if g.finish_reason == "context_overflow"]
        following = await ask(rig, *rest, agent("three is done"), user("four"))
        five = await ask(rig, *rest, agent("three is done"), user("four"), agent("done"), user("five"))
        found = {g.id: g for g in rig.generations()}
    assert len({g.episode for g in lost}) == 1
    assert len({found[one].episode for one in (first, lost[0].id, following, five)}) == 4
    assert {g.session for g in found.values()} == {found[first].session}
    assert follow_ups(tmp_path) == {first: lost[0].id, lost[0].id: following, following: five, five: ""}


async def test_what_is_asked_aside_is_no_message_to_the_answer_before(tmp_path: Path) -> None:
    """/btw: the next message of the conversation was taken for one to the answer that was given aside."""
    async with running(tmp_path) as rig:
        history = [user("one"), agent("done"), user("two")]
        first = await ask(rig, *history)
        note = "<system-reminder>This is a side question from the user. Answer it directly.</system-reminder>"
        aside = await ask(rig, *history, agent("two is done"), user(f"{note}\n\nwhat is a parser?"))
        says = await ask(rig, *history, agent("two is done"), user("no, wrong"))
        text = rig.payload(aside)[0].request
    assert words_of(text) == "what is a parser?"
    assert follow_ups(tmp_path) == {first: says, aside: "", says: ""}


@pytest.mark.parametrize(("named", "helper"), [("c2", ""), ("c1", "a1"), ("", "")])
async def test_only_what_its_client_calls_the_same_goes_on(rig: Rig, named: str, helper: str) -> None:
    await ask(rig, user("one"), agent("done"), user(WANTED))
    await ask(rig, user(SUMMARY), user("go on"), named=named, helper=helper)
    await ask(rig, user("a title for this, please"))
    assert len({g.session for g in rig.generations()}) == 3
    assert not any(GOES_ON in g.features for g in rig.generations())


def test_what_asks_for_nothing_new() -> None:
    assert [wanted([user(text)]) for text in (WANTED, "why is it slow", f"two\n{WANTED}")] == [
        True,
        False,
        True,
    ]
    assert not wanted([user(WANTED), agent("a summary")])
    assert [continued([user(text)]) for text in (SUMMARY, "a summary, please")] == [True, False]
    assert not continued([user("one"), agent("done"), user(SUMMARY)])
    assert goes_on([user(SUMMARY), user(REMINDER), agent("done"), user(REMINDER)])
    assert not goes_on([user(SUMMARY), user("two")])


async def test_a_request_that_is_joined_to_the_summary_is_heard(tmp_path: Path) -> None:
    """As Claude Code sends it where it has to sum up before it can ask: it was taken for the summary's."""
    headers = {"x-claude-code-session-id": "c1"}

    def said(*texts: str) -> dict[str, Any]:
        return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}

    async with running(tmp_path) as rig:
        rig.stub.words = "stub:say done"
        for talk in (
            [said("rename add")],
            [said("rename add"), {"role": "assistant", "content": "done"}, said(WANTED)],
            [said(SUMMARY, "no, that is wrong"), {"role": "system", "content": "Today."}],
        ):
            body = {"model": "rtrl", "max_tokens": 100, "messages": talk}
            await rig.http.post("/v1/messages", json=body, headers=headers)
        first, _, says = (generation.id for generation in rig.generations())
        assert len({generation.session for generation in rig.generations()}) == 1
        assert rig.payload(says)[0].request == "no, that is wrong"
    assert follow_ups(tmp_path) == {first: says, says: ""}
