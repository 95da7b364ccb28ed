"""Whose generation it is, said or derived."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stages.gateway import openings
from stages.gateway.asking import asked
from stages.gateway.attribution import text_of
from stages.gateway.conversations import Conversations, Owner
from stages.gateway.keys import ApiKeys
from stages.gateway.times import parse_ms
from stages.inbox.records import sender
from stages.owners import own_name
from stages.spool.pending import pending_user
from tests.stages.gateway.rig import Rig, follow_ups, running, until

U = {"role": "user", "content": "fix it"}
A = {"role": "assistant", "content": "done"}
T = {"role": "tool", "content": "ok", "tool_call_id": "c1"}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}],
}


def conversation(key: str, user: str, messages: list[Any], answer: dict[str, Any]) -> bytes:
    return openings.conversation(key, user, openings.opening(messages), answer, no_train=False)


def test_positions_by_hand() -> None:
    assert asked([U]) == (1, "fix it", [])
    assert asked([U, CALL, T]) == (1, "fix it", [CALL])
    assert asked([U, CALL, T, A, U]) == (2, "fix it", [])
    assert asked([A]) == (0, "", [A])


def test_a_clients_notice_is_not_the_users_next_message() -> None:
    notice = {"role": "user", "content": "<task-notification><task-id>a</task-id></task-notification>"}
    context = {
        "role": "user",
        "content": [{"type": "text", "text": "<environment_context>x</environment_context>"}],
    }
    assert asked([U, A, notice])[:3] == (1, "fix it", [A])
    assert (asked([context, U, A, U]).requests, asked([context, U, A, notice, A]).answers) == (2, [A, A])
    around = {
        "role": "user",
        "content": [{"type": "text", "text": "<environment_details>\nx\n</environment_details>"}],
    }
    assert asked([U, CALL, T, around, CALL, T, around])[:3] == (1, "fix it", [CALL, CALL]), (
        "Roo's loop is one episode"
    )
    output = {"role": "user", "content": "[read_file for 'a.py'] Result:\n1 | x"}
    assert asked([U, A, output, A])[:3] == (1, "fix it", [A, A]), "Cline's"
    assert asked([notice])[:2] == (1, notice["content"]), "or there is no request"


def test_the_text_of_a_skill_that_the_model_called_is_no_request() -> None:
    """Claude Code puts it behind the call's result, in the words of whoever wrote the skill."""
    use = {"id": "c1", "type": "function", "function": {"name": "Skill", "arguments": '{"skill": "bake"}'}}
    called = {"role": "assistant", "content": None, "tool_calls": [use]}
    launched = {"role": "tool", "content": "Launching skill: bake", "tool_call_id": "c1"}
    skill = {"role": "user", "content": "Bake a cake as told."}
    assert asked([U, called, launched, skill, A]) == (1, "fix it", [called, A])
    assert asked([U, called, launched, T, skill, A]) == (1, "fix it", [called, A]), "of several calls at once"
    assert asked([U, called, launched, skill, A, U]) == (2, "fix it", [])
    assert asked([U, called, T, skill]) == (2, "Bake a cake as told.", [])
    assert asked([U, CALL, launched, skill]).requests == 2, "a shell's echo launches none"
    odd = {
        "role": "assistant",
        "tool_calls": ["x", {}, {"function": "f"}, {"id": [], "function": {"name": 1}}],
    }
    assert asked([U, odd, {**launched, "tool_call_id": {}}, skill]).requests == 2
    assert asked([launched, skill]).requests == 1
    stopped = {"role": "user", "content": "[Request interrupted by user]\n\nnot now"}
    assert asked([U, called, launched, stopped]).requests == 2


@pytest.mark.parametrize(
    "text",
    [
        '<subagent_notification>\n{"status": {"completed": "done"}}\n</subagent_notification>',
        "Message Type: FINAL_ANSWER\nTask name: /root\nSender: /root/kid\nPayload:\ndone",
    ],
)
def test_word_of_a_sub_agent_is_no_message(text: str) -> None:
    """The episode that asked for it ended there, and what the user said next was of the word alone."""
    word = {"role": "user", "content": text}
    assert asked([U, CALL, T, word, A, U])[:2] == (2, "fix it")
    assert asked([U, CALL, T, word])[:3] == (1, "fix it", [CALL])
    task = {"role": "user", "content": text.replace("FINAL_ANSWER", "NEW_TASK")}
    assert asked([task])[:2] == (1, task["content"])


def test_a_summary_behind_a_request_is_none() -> None:
    summary = {"role": "user", "content": "Another language model started to solve this problem and ..."}
    assert asked([U, U, summary]) == (2, "fix it", [])
    assert asked([U, summary, CALL, T]) == (1, "fix it", [CALL])
    assert asked([U, summary, A, U]) == (2, "fix it", [])
    assert asked([summary, A, U])[:2] == (2, "fix it"), "where it is all that is left, it is the first"


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
    "thought", ["<think>\nHm, a bug.\n</think>\n\n", "Hm, a bug.</think>\n", "<think></think>"]
)
def test_a_client_that_sends_no_thoughts_back_keeps_its_session(thought: str) -> None:
    """Most show them apart and leave them out of the history: the next request was in another session."""
    model = {"role": "assistant", "content": f"{thought}The sign is wrong."}
    client = {"role": "assistant", "content": "The sign is wrong."}
    assert conversation("k", "ada", [U], model) == conversation("k", "ada", [U, client, U], {})
    assert conversation("k", "ada", [U], model) == conversation("k", "ada", [U, model, U], {})
    assert conversation("k", "ada", [U], model) != conversation("k", "ada", [U], A)


def test_goose_keeps_its_session_and_its_episode() -> None:
    """What it tells of the time stands before the last answer: in the first message, or in one of its own."""
    told = [f"<info-msg>\nIt is currently 2026-11-20 16:3{minute}:00\n</info-msg>" for minute in range(3)]
    firsts = [f"{told[0]}\nfix it", f"fix it\n{told[1]}", "fix it"]
    requests = [[{"role": "user", "content": text}] for text in firsts]
    requests[1] += [CALL, T]
    requests[2] += [CALL, T, {"role": "user", "content": told[2]}, CALL, T]
    assert len({conversation("k", "ada", request, CALL) for request in requests}) == 1
    assert [asked(request).requests for request in requests] == [1, 1, 1]
    of_file = [[{"role": "user", "content": text}] for text in (f"fix it\n\n{told[0]}", "fix it\n")]
    assert len({conversation("k", "ada", request, CALL) for request in of_file}) == 1, "goose run -i FILE"
    assert conversation(
        "k", "ada", [{"role": "user", "content": f"{told[0]}\nfix her"}], CALL
    ) != conversation("k", "ada", requests[0], CALL)
    open_tags = {"role": "user", "content": "<info-msg>" * 1_000_000}
    assert conversation("k", "ada", [open_tags], A) != conversation("k", "ada", [U], A), "in one pass"


async def test_what_qwen_code_answers_in_the_models_place_is_no_first_answer(rig: Rig) -> None:
    """All conversations of a day in a folder began with it alike, and were one session."""
    context = "This is the Qwen Code. We are setting up the context for our chat.\nToday's date is Friday."
    before = [
        {"role": "system", "content": "You are Qwen Code."},
        {"role": "user", "content": context},
        {"role": "assistant", "content": "Got it. Thanks for the context!"},
    ]
    asks = [{"role": "user", "content": text} for text in ("stub:say A", "stub:say B", "stub:say C")]
    for ask in asks[:2]:
        await rig.chat("", messages=[*before, ask])
    await rig.chat("", messages=[*before, asks[0], {"role": "assistant", "content": "A"}, asks[2]])
    first, other, on = rig.generations()
    assert first.session == on.session != other.session
    assert [g.episode.rpartition("/")[2] for g in (first, other, on)] == ["1", "1", "2"]


def test_a_client_that_marks_what_is_to_be_cached_keeps_its_session() -> None:
    """Cline and Roo send their latest messages as marked parts, and the same ones as strings from then on."""

    def opening(*contents: Any) -> bytes:
        return conversation("k", "ada", [{"role": "user", "content": one} for one in contents], A)

    marked = [{"type": "text", "text": "fix it", "cache_control": {"type": "ephemeral"}}]
    shown = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    assert opening("fix it") == opening(marked) == opening([{"type": "text", "text": "fix it"}])
    assert opening("fix it") != opening([*marked, shown]) != opening([shown])
    assert opening("fix it") != opening("fix", "it")
    assert len({opening(None), opening([]), opening([{"text": "fix it"}]), opening("fix it")}) == 4


def test_claude_code_behind_a_proxy_keeps_its_session() -> None:
    """It signs the system prompt of each request anew: every request was a session of its own."""

    def opening(signature: str, prompt: str, *, parts: bool = False, role: str = "system") -> bytes:
        line = f"x-anthropic-billing-header: cc_version=2.1.117.48f; cc_entrypoint=cli; cch={signature};"
        texts = [{"type": "text", "text": line}, {"type": "text", "text": prompt}]
        told = {"role": role, "content": texts if parts else f"{line}\n{prompt}"}
        return conversation("k", "ada", [told, U], A)

    assert opening("71fea", "You edit.") == opening("0aaa9", "You edit.")
    assert opening("71fea", "You edit.", parts=True) == opening("0aaa9", "You edit.")
    assert opening("71fea", "You edit.") != opening("71fea", "You ask.")
    assert opening("71fea", "You edit.", role="user") != opening("0aaa9", "You edit.", role="user")


def test_a_client_that_tells_the_time_in_its_system_prompt_keeps_its_session() -> None:
    """Each request was a session of its own, its answer without a follow-up."""

    def opening(text: str, role: str = "system") -> bytes:
        return conversation("k", "ada", [{"role": role, "content": text}, U], A)

    assert opening("You edit. It is 9:59.") == opening("You edit. It is 10:00.")
    assert opening("You edit. It is 9:59.") != opening("You ask. It is 9:59.")
    assert opening("fix 1", role="user") != opening("fix 2", role="user")


@pytest.mark.parametrize(
    ("model", "client"),  # which is `JSON.stringify(JSON.parse(model))`
    [
        ('{"timeout": 30.0, "n": [1e3, -0.0, 0.5, true]}', '{"timeout":30,"n":[1000,0,0.5,true]}'),
        ('{"id": 12345678901234567890, "x": 1E-7}', '{"id":12345678901234567000,"x":1e-7}'),
        ('{"id": 9007199254740993, "x": 1.5e300}', '{"id":9007199254740992,"x":1.5e+300}'),
    ],
)
def test_a_client_in_javascript_keeps_its_session(model: str, client: str) -> None:
    """It reads a call's arguments and writes them again: 30.0 came back as 30, in another session."""

    def found(arguments: str) -> bytes:
        call = {"function": {"name": "f", "arguments": arguments}}
        return conversation("k", "ada", [U], {"role": "assistant", "tool_calls": [call]})

    assert found(model) == found(client)
    assert found(model) != found(client.replace("1000", "1001").replace("e-7", "e-8").replace("e+300", "e+9"))


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (0, 0),
        (1.5, 1500),
        ("1.5", 1500),
        ("1970-01-01T00:00:02Z", 2000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-02", 86_400_000),
        ("19700102", 86_400_000),
        ("1700000000", 1_700_000_000_000),
    ],
)
def test_points_in_time(value: Any, ms: int) -> None:
    assert parse_ms(value) == ms


@pytest.mark.parametrize(
    "value", ["", "yesterday", -1, float("nan"), 1_700_000_000_000, True, "inf", "1_000", "１０００"]
)
def test_no_points_in_time(value: Any) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_ms(value)


async def test_by_headers_and_by_metadata(tmp_path: Any) -> None:
    headers = {
        "x-rtrl-user": "Ada Löve", "x-rtrl-session": "s1", "x-rtrl-episode": "e1", "x-rtrl-at": "100.5",
        "x-rtrl-group": "g1",
    }  # fmt: skip
    metadata = {
        "rtrl_user": "bob",
        "rtrl_session": "s2",
        "rtrl_episode": "e2",
        "rtrl_group": "g2",
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
    assert first.features["group"] == own_name("g1", key, "Ada Löve")
    assert second.features["group"] == own_name("g2", key, "bob")
    assert "group" not in third.features
    assert third.user == "carol"
    assert third.episode == f"{third.session}/1"
    assert third.at == third.wall


async def test_of_a_no_train_key_nothing_is_written_whatever_a_request_says(rig: Rig) -> None:
    secret = ApiKeys.create(rig.root / "keys", "contract", no_train=True)
    rig.gateway._keys._next_check = 0.0
    headers = {"authorization": f"Bearer {secret}", "x-rtrl-no-train": "0"}
    answer = await rig.chat("SECRET-TEXT", headers=headers, metadata={"rtrl_no_train": False})
    (made,) = rig.generations()
    assert (answer.status_code, made.no_train) == (200, True)
    event = {"id": "e", "generation_id": made.id, "type": "user_message", "data": {"text": "SECRET-TEXT"}}
    assert (await rig.http.post("/v1/events", json=event, headers=headers)).json()["accepted"] == 1
    body = [{"name": "chatFeedback", "schema": "0.2.0", "data": {"sessionId": "s", "prompt": "SECRET-TEXT"}}]
    assert (await rig.http.post("/v1/continue/data", json=body, headers=headers)).status_code == 200
    assert rig.events() == []
    assert rig.inbox.bytes == 0


async def test_a_request_is_no_train_where_either_place_says_so(rig: Rig) -> None:
    for in_header, in_metadata in (("0", "1"), ("1", "0"), ("0", "0"), (None, "1"), ("1", None)):
        headers = {"x-rtrl-no-train": in_header} if in_header else {}
        await rig.chat("x", headers=headers, metadata={"rtrl_no_train": in_metadata} if in_metadata else {})
    assert [each.no_train for each in rig.generations()] == [True, True, False, True, True]
    answer = await rig.chat("x", headers={"x-rtrl-no-train": "1"}, metadata={"rtrl_no_train": "perhaps"})
    assert answer.json()["error"]["param"] == "metadata.rtrl_no_train"


async def test_what_a_clients_library_sent_again_by_itself_is_told(rig: Rig) -> None:
    for told in (b"0", b"2", b"-1", b"two"):
        await rig.chat("x", headers={"x-stainless-retry-count": told})
    assert ["retried" in each.features for each in rig.generations()] == [False, True, False, False]


async def test_the_clients_clock_counts_only_where_it_is_told_to(rig: Rig) -> None:
    await rig.chat("x", headers={"x-rtrl-at": "100"})
    (generation,) = rig.generations()
    assert generation.at == generation.wall


@pytest.mark.parametrize(
    ("headers", "metadata", "param"),
    [
        ({"x-rtrl-user": "a\u200bb".encode()}, {}, "X-Rtrl-User"),
        ({"X-RTRL-SESSION": b"\xff"}, {}, "X-Rtrl-Session"),
        ({}, {"rtrl_session": "x" * 201}, "metadata.rtrl_session"),
        ({"x-rtrl-no-train": "perhaps"}, {}, "X-Rtrl-No-Train"),
        ({"x-rtrl-no-train": ""}, {}, "X-Rtrl-No-Train"),
        ({}, {"rtrl_no_train": "perhaps"}, "metadata.rtrl_no_train"),
        ({}, {"rtrl_user": ["a"]}, "metadata.rtrl_user"),
        ({}, {"rtrl_user": pending_user("g1")}, "metadata.rtrl_user"),
    ],
)
async def test_nonsense_is_refused_where_it_stands(
    rig: Rig, headers: dict[str, Any], metadata: dict[str, Any], param: str
) -> None:
    answer = await rig.chat("x", headers=headers, metadata=metadata)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_what_is_empty_counts_as_absent(rig: Rig) -> None:
    await rig.chat("x", headers={"x-rtrl-user": ""}, metadata={"rtrl_user": ""}, user="")
    await rig.chat("x", headers={"x-rtrl-user": ""}, metadata={"rtrl_user": "ada"})
    one, two = rig.generations()
    assert (one.user, two.user) == (one.key_id, "ada")


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


async def talk(rig: Rig, first: str, count: int, **headers: str) -> list[dict[str, Any]]:
    """A tool loop of `count` answers, as an agent asks for them; returns the conversation."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": first}]
    for _ in range(count):
        answer = (await rig.chat("", messages=messages, headers=headers)).json()["choices"][0]["message"]
        messages += [{"role": "assistant", "content": answer["content"]}, T]
    return messages


async def test_conversations_that_begin_alike_are_told_apart(rig: Rig) -> None:
    await talk(rig, "stub:say yes", 2)
    await talk(rig, "stub:say yes", 3)
    await rig.chat("stub:overflow")
    await rig.chat("stub:overflow")
    one, two, three = (rig.generations()[i].session for i in (0, 2, 5))
    found = [(g.session, g.episode, g.ordinal) for g in rig.generations()]
    assert found[:5] == [
        (one, f"{one}/1", 0), (one, f"{one}/1", 1), (two, f"{two}/1", 0), (two, f"{two}/1", 1),
        (two, f"{two}/1", 2),
    ]  # fmt: skip
    assert len({one, two, three, found[6][0]}) == 4


async def test_what_is_not_trained_on_takes_no_other_conversation_along(rig: Rig) -> None:
    """Collect leaves out an episode with one no-train request in it, all of it."""
    messages = await talk(rig, "stub:say yes", 2)
    await talk(rig, "stub:say yes", 2, **{"x-rtrl-no-train": "1"})
    await rig.chat("", messages=messages, headers={"x-rtrl-no-train": "1"})
    await rig.chat("", messages=messages)
    found = [(g.session, g.no_train) for g in rig.generations()]
    sessions = {session for session, _ in found}
    assert len(sessions) == 2
    assert all(len({no_train for s, no_train in found if s == session}) == 1 for session in sessions)


async def test_no_train_has_its_own_episodes_in_a_session_with_a_name(rig: Rig) -> None:
    for no_train in ("0", "1"):
        await rig.chat("x", headers={"x-rtrl-session": "s", "x-rtrl-no-train": no_train})
    one, two = rig.generations()
    assert (two.session, two.episode) == (one.session, f"{one.episode}-no-train")


async def test_a_derived_session_survives_a_restart(rig: Rig) -> None:
    messages = await talk(rig, "stub:say yes", 1)
    rig.gateway._recorder._conversations = Conversations(rig.vault)
    await rig.chat("", messages=messages)
    assert len({g.session for g in rig.generations()}) == 1


def test_a_client_that_is_started_again_is_in_its_session(rig: Rig) -> None:
    """Continue tells what git says now, Qwen Code another date: what was said next was about no answer."""
    kept, owner = Conversations(rig.vault), Owner("k", "ada", no_train=False)

    def found(call: str, git: str, *messages: Any, answer: str = "done") -> str:
        prompt = {"role": "system", "content": f"You are an agent.\n\n{git}"}
        return kept.session(f"{call:0>20}", owner, [prompt, *messages], {"content": answer}, "stop")

    first = found("a", "clean", U)
    dated = {"role": "user", "content": "<system-reminder>noon</system-reminder>\nfix it"}
    on = {"role": "user", "content": "no, that is wrong"}
    assert found("b", "?? made.py", U, A, on) == first
    assert found("c", "?? made.py\nM it.py", dated, A, on) == first
    other = found("d", "elsewhere", U)
    assert other != first, "at the same time, in another folder"
    assert (found("e", "elsewhere", U, A, on), found("f", "clean", U, A, on)) == (other, first)
    assert found("g", "later", U, A, on) == other, "the latest that began so"
    side = {"role": "system", "content": "You are the memory of an agent."}
    assert kept.session("0" * 20, owner, [side, U, A, on], A, "stop") not in (first, other)
    assert found("h", "later", U, {**A, "content": "no"}, on) not in (first, other)


def test_aiders_examples_are_no_answers_of_a_model(rig: Rig) -> None:
    """With them all of a user's conversations were one session; each request maps the repository anew."""
    kept, owner = Conversations(rig.vault), Owner("k", "ada", no_train=False)
    ok = {"role": "assistant", "content": "Ok."}
    example = [
        {"role": "user", "content": "Change get_factorial()"},
        {"role": "assistant", "content": "a.py"},
    ]
    switched = {
        "role": "user",
        "content": "I switched to a new code base. Please don't consider the above files.",
    }
    rules = "\n\n# *SEARCH/REPLACE block* Rules:\n\nEvery *SEARCH/REPLACE block* must use this format:\n1."

    def chat(files: str, *texts: str) -> list[dict[str, str]]:
        roles = ("user", "assistant")
        said = [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]
        told = {
            "role": "user",
            "content": f"Here are summaries of some files present in my git repository.\n{files}",
        }
        wont = {"role": "assistant", "content": "Ok, I won't try and edit those files without asking first."}
        return [*example, switched, ok, told, wont, *said]

    first = chat("a.py", f"bake{rules}")
    failed = "# 1 SEARCH/REPLACE block failed to match!\n\n## SearchReplaceNoExactMatch"
    again = chat("a.py b.py", "bake", "here", failed + rules)
    no = chat("a.py b.py", "bake", "here", failed, "there", f"too sweet{rules}")
    found = [
        kept.session(f"{n:0>20}", owner, one, {"content": "here"}, "stop")
        for n, one in enumerate([first, chat("a.py", f"boil{rules}"), again, no])
    ]
    assert found[0] == found[2] == found[3] != found[1]
    assert [asked(one).requests for one in (first, again, no)] == [2, 2, 3], "the example's is one"


async def stopped(rig: Rig, say: str, pieces: int, **body: Any) -> tuple[dict[str, str], str]:
    """A first request, and what its client had of the answer when it closed the connection."""
    asked = {"role": "user", "content": f"{rig.hold(len(say) - 1)} stub:say {say}"}
    before, seen = len(rig.generations()), ""
    body = {"model": "rtrl", "stream": True, "messages": [asked], **body}
    async with rig.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        async for line in answer.aiter_lines():
            if line:
                seen += json.loads(line[6:])["choices"][0]["delta"].get("content", "")
                pieces -= 1
            if not pieces:
                break
        await until(lambda: rig.sampled(len(say) - 1))
    await until(lambda: len(rig.generations()) == before + 1)  # the engine still holds the rest back
    rig.let_go()
    assert rig.generations()[-1].finish_reason == "abort"
    return asked, seen


async def test_who_stops_the_first_answer_and_goes_on_with_what_came_is_in_its_session(tmp_path: Any) -> None:
    """What it sends back is less than was recorded: "no, wrong" was in another session, about nothing."""
    no = {"role": "user", "content": "no, that is wrong stub:say sorry"}
    async with running(tmp_path) as rig:
        asked, seen = await stopped(rig, "Let me rewrite all of it ", 6)
        assert 0 < len(seen) < 10
        history = [asked, {"role": "assistant", "content": seen}, no]
        said = (await rig.chat("", messages=history)).json()["choices"][0]["message"]
        await rig.chat("", messages=[*history, said, T])
        await rig.chat("", messages=[asked, {"role": "assistant", "content": "None of it"}, no])
        await rig.chat("", messages=[T, *history])
        await rig.chat("", messages=history, headers={"x-rtrl-user": "somebody else"})
        await rig.chat("", messages=history, headers={"x-rtrl-no-train": "1"})
        cut, *others = rig.generations()
    assert [g.session == cut.session for g in others] == [True, True, False, False, False, False]
    assert [g.episode for g in others[:2]] == [f"{cut.session}/2"] * 2
    assert follow_ups(tmp_path)[cut.id] == others[0].id


async def test_a_stopped_answer_is_known_by_the_calls_that_came(rig: Rig) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    call = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
    asked, _ = await stopped(rig, f"So: {call} and then", 12, tools=tools)
    function = {"name": "f", "arguments": '{"a":1}'}
    said = {"role": "assistant", "content": "So:", "tool_calls": [{"id": "c1", "function": function}]}
    for arguments in ('{"a":1}', '{"a":2}'):
        function["arguments"] = arguments
        await rig.chat("", messages=[asked, said, {"role": "tool", "tool_call_id": "c1", "content": "ok"}])
    cut, same, other = (g.session for g in rig.generations())
    assert (same == cut, other == cut) == (True, False)


async def test_of_two_first_answers_stopped_alike_the_later_goes_on(rig: Rig) -> None:
    """Asked once more and stopped at the same word, a complaint was in the session of the time before."""
    kept, owner = Conversations(rig.vault), Owner("k", "ada", no_train=False)

    def found(call: str, messages: list[dict[str, str]], answer: str, finish: str = "stop") -> str:
        return kept.session(f"{call:0>20}", owner, messages, {"content": answer}, finish)

    gone_on = [U, {"role": "assistant", "content": "Let me"}, T]
    for first, complaint in (("a", "b"), ("c", "d")):
        session = found(first, [U], f"Let me do it {first}", "abort")
        assert found(complaint, gone_on, "sorry") == session
    for n in range(2, 1100):  # others were cut since, and it is not remembered any more
        found(str(n), [{"role": "user", "content": f"fix {n}"}], "So", "abort")
    assert found("e", gone_on, "sorry") == session
    whole = found("f", [U], "Let")
    assert found("g", [U, {"role": "assistant", "content": "Let"}, T], "yes") == whole != session


async def test_the_population_is_the_keys_whatever_a_client_says(rig: Rig) -> None:
    """Stages read it as `Generation.population`; in artifacts it is among the features."""
    key = ApiKeys.create(rig.root / "keys", "acme-ide", population="acme")
    rig.gateway._keys._next_check = 0.0
    said = {"x-rtrl-population": "other", "x-rtrl-key-id": "key_000000000000", "x-population": "other"}
    told = {"rtrl_population": "other", "population": "other"}
    for headers in (said, said | {"authorization": f"Bearer {key}"}):
        assert (await rig.chat("x", headers=headers, metadata=told)).status_code == 200
    plain, acme = rig.generations()
    assert (plain.population, acme.population) == ("", "acme")
    assert acme.features["population"] == "acme"
    assert "population" not in plain.features


def test_two_users_with_a_name_of_their_own_are_told_apart() -> None:
    """By 8 digits of a hash these two were one: an episode, and whose answer a thumb was about."""
    assert own_name("1", "default", "user21215") != own_name("1", "default", "user57787")
    assert sender("default", "user21215").mark != sender("default", "user57787").mark
