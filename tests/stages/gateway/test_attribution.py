"""Whose generation it is, said or derived."""

from __future__ import annotations

from typing import Any

import pytest

from stages.gateway.attribution import conversation, own_name, position, text_of, user_messages
from stages.gateway.times import parse_ms
from stages.spool.pending import pending_user
from tests.stages.gateway.rig import Rig, running

U = {"role": "user", "content": "fix it"}
A = {"role": "assistant", "content": "done"}
T = {"role": "tool", "content": "ok", "tool_call_id": "c1"}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}],
}


def test_positions_by_hand() -> None:
    assert (user_messages([U]), position([U])) == (1, 0)
    assert (user_messages([U, CALL, T]), position([U, CALL, T])) == (1, 1)
    assert (user_messages([U, CALL, T, A, U]), position([U, CALL, T, A, U])) == (2, 0)


def test_text_of_parts() -> None:
    assert (
        text_of([{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}])
        == "a\nb"
    )
    assert text_of(None) == ""


def test_a_conversation_keeps_its_session_however_its_client_rewrites_it() -> None:
    first = conversation("k", "ada", [U], CALL)
    respaced = {**CALL, "content": "", "tool_calls": [{"function": {"name": "f", "arguments": '{"a":1}'}}]}
    assert conversation("k", "ada", [U, respaced, T], A) == first
    assert conversation("k", "ada", [U, CALL, T, A, U], CALL) == first
    assert conversation("k", "bob", [U], CALL) != first
    assert conversation("k2", "ada", [U], CALL) != first
    assert conversation("k", "ada", [U], A) != first, "the same opening, another answer: another session"


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (0, 0),
        (1.5, 1500),
        ("1.5", 1500),
        ("1970-01-01T00:00:02Z", 2000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-02", 86_400_000),
    ],
)
def test_points_in_time(value: Any, ms: int) -> None:
    assert parse_ms(value) == ms


@pytest.mark.parametrize("value", ["", "yesterday", -1, float("nan"), 1_700_000_000_000, True, "inf"])
def test_no_points_in_time(value: Any) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_ms(value)


async def test_by_headers_and_by_metadata(tmp_path: Any) -> None:
    headers = {
        "x-rtrl-user": "Ada Löve", "x-rtrl-session": "s1", "x-rtrl-episode": "e1", "x-rtrl-at": "100.5",
    }  # fmt: skip
    metadata = {
        "rtrl_user": "bob",
        "rtrl_session": "s2",
        "rtrl_episode": "e2",
        "rtrl_at": 200,
        "rtrl_no_train": True,
    }
    async with running(tmp_path, client_clock=True) as rig:
        await rig.chat(
            "x",
            headers={k: v.encode() for k, v in headers.items()},
            metadata=metadata | {"rtrl_no_train": "0"},
        )
        await rig.chat("x", metadata=metadata)
        await rig.chat("x", user="carol")
        first, second, third = rig.generations()
    key = first.key_id
    assert (first.user, first.at, first.no_train) == ("Ada Löve", 100_500, False)
    assert (first.session, first.episode) == (
        own_name("s1", key, "Ada Löve"),
        own_name("e1", key, "Ada Löve"),
    )
    assert (second.user, second.at, second.no_train) == ("bob", 200_000, True)
    assert second.session == own_name("s2", key, "bob")
    assert third.user == "carol"
    assert third.episode == f"{third.session}/1"
    assert third.at == third.wall


async def test_the_clients_clock_counts_only_where_it_is_told_to(rig: Rig) -> None:
    await rig.chat("x", headers={"x-rtrl-at": "100"})
    (generation,) = rig.generations()
    assert generation.at == generation.wall


@pytest.mark.parametrize(
    ("headers", "metadata"),
    [
        ({"x-rtrl-user": "a\x01b"}, {}),
        ({}, {"rtrl_session": "x" * 201}),
        ({"x-rtrl-no-train": "perhaps"}, {}),
        ({}, {"rtrl_user": ["a"]}),
        ({}, {"rtrl_user": pending_user("g1")}),
    ],
)
async def test_nonsense_is_refused(rig: Rig, headers: dict[str, str], metadata: dict[str, Any]) -> None:
    answer = await rig.chat("x", headers=headers, metadata=metadata)
    assert answer.status_code == 400


async def test_the_chain_of_an_episode(rig: Rig) -> None:
    """A tool loop, then the user's next message: two episodes of one session, ordinals from 0."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "stub:say one"}]
    for content in ("", "", "stub:say two"):
        answer = (await rig.chat("", messages=messages)).json()["choices"][0]["message"]
        messages.append({"role": "assistant", "content": answer["content"]})
        messages.append({"role": "user", "content": content} if content else {**T})
    await rig.chat("", messages=messages)
    found = rig.generations()
    assert len({g.session for g in found}) == 1
    session = found[0].session
    assert [(g.episode, g.ordinal) for g in found] == [
        (f"{session}/1", 0), (f"{session}/1", 1), (f"{session}/1", 2), (f"{session}/2", 0),
    ]  # fmt: skip
    assert [g.prompt_base for g in found] == ["", *[g.id for g in found[:-1]]]
    assert rig.payload(found[-1].id)[1].prompt.shape == (found[-1].prompt_tokens,)


async def test_an_episode_named_by_the_client_may_hold_several_user_messages(rig: Rig) -> None:
    for _ in range(3):
        await rig.chat("x", headers={"x-rtrl-episode": "e", "x-rtrl-session": "s"})
    assert [g.ordinal for g in rig.generations()] == [0, 1, 2]
