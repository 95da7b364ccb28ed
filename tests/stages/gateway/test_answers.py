"""Chat and completions: what clients get, what is recorded, and that both agree."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import numpy as np
import pytest

from stages.gateway.stub_answer import Answer
from stages.gateway.stub_script import EOS, logprob, routed_experts
from stages.records import Sampling, Span
from tests.stages.gateway.rig import Rig, running

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}},
                "required": ["path"],
            },
        },
    }
]


def chunks(text: str) -> list[dict[str, Any]]:
    """The events of a stream, which must end in [DONE]."""
    lines = [line[6:] for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


async def test_routed_experts_are_recorded_and_not_passed_on(rig: Rig) -> None:
    answer = await rig.chat("stub:tokens=4 stub:experts")
    assert "routed_experts" not in answer.json()["choices"][0]
    (generation,) = rig.generations()
    _, tokens = rig.payload(generation.id)
    ids = [*tokens.prompt.tolist(), *tokens.output.tolist()]
    assert generation.defect == ""
    assert tokens.experts is not None
    assert tokens.experts.dtype == np.uint8
    assert tokens.experts.tolist() == [
        [[i % 8, (i + 1) % 8], [(i + 3) % 8, (i + 4) % 8]] for i in ids[:-1]
    ], "of all tokens but the last, which was sampled and never read"


async def test_routed_experts_of_a_streams_last_piece_are_recorded(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM 0.32 sends none in streams; an engine that does is understood."""
    plain = Answer._events

    def events(self: Any) -> Any:
        told = list(plain(self))
        last = next(event for event in reversed(told) if event["choices"])
        last["choices"][0]["routed_experts"] = routed_experts([*self.prompt, *self.script.ids], "")
        return iter(told)

    assert (await rig.chat("stub:tokens=4", stream=True)).status_code == 200
    monkeypatch.setattr(Answer, "_events", events)
    assert (await rig.chat("stub:tokens=4", stream=True)).status_code == 200
    found = [rig.payload(generation.id)[1] for generation in rig.generations()]
    assert [each.experts is None for each in found] == [True, False]
    assert [bool(each.routed) for each in found] == [False, True]


async def test_a_whole_answer(rig: Rig) -> None:
    answer = await rig.chat("stub:say Hallo Wörld")
    body = answer.json()
    assert body["id"] == answer.headers["x-rtrl-generation-id"]
    assert body["object"] == "chat.completion"
    assert body["model"] == "rtrl"
    (choice,) = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Hallo Wörld", "refusal": None}
    assert (choice["finish_reason"], choice["logprobs"]) == ("stop", None)
    assert "token_ids" not in choice
    assert "prompt_token_ids" not in body
    ids = [*"Hallo Wörld".encode(), EOS]
    assert body["usage"] == {"prompt_tokens": 39, "completion_tokens": 13, "total_tokens": 52}
    (generation,) = rig.generations()
    assert generation.id == body["id"]
    assert generation.spans == (Span(0, 13, "sha256:aaa"),)
    assert (generation.prompt_tokens, generation.output_tokens, generation.defect) == (39, 13, "")
    assert (generation.line, generation.arm, generation.deployment) == ("auto", "live", "d1")
    payload, tokens = rig.payload(body["id"])
    assert (payload.request, payload.answer) == ("stub:say Hallo Wörld", "Hallo Wörld")
    assert bytes(tokens.prompt.tolist()).decode() == "user: stub:say Hallo Wörld\nassistant: "
    assert tokens.output.tolist() == ids
    assert tokens.logprobs.tolist() == pytest.approx([logprob(i, t) for i, t in enumerate(ids)])


@pytest.mark.parametrize("words", ["", "stub:say Grüße 🙂!", "stub:tokens=1", "stub:say "])
async def test_a_stream_says_the_same_and_records_the_same(rig: Rig, words: str) -> None:
    whole = (await rig.chat(words)).json()
    streamed = await rig.chat(words, stream=True, stream_options={"include_usage": True})
    assert streamed.headers["content-type"].startswith("text/event-stream")
    events = chunks(streamed.text)
    assert {event["id"] for event in events} == {streamed.headers["x-rtrl-generation-id"]}
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    content = "".join(e["choices"][0]["delta"].get("content", "") for e in events[:-1])
    assert content == whole["choices"][0]["message"]["content"]
    assert events[-2]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert (events[-1]["choices"], events[-1]["usage"]) == ([], whole["usage"])
    one, two = (rig.payload(g.id) for g in rig.generations())
    assert one[0].answer == two[0].answer
    for left, right in zip(one[1][:3], two[1][:3], strict=True):
        assert left.tolist() == right.tolist()


async def test_usage_only_on_request(rig: Rig) -> None:
    events = chunks((await rig.chat("x", stream=True)).text)
    assert len(events) > 1
    assert not any("usage" in event for event in events)


async def test_logprobs_and_ids_only_on_request(rig: Rig) -> None:
    answer = (await rig.chat("stub:say ab", logprobs=True, return_token_ids=True)).json()
    assert [e["token"] for e in answer["choices"][0]["logprobs"]["content"]] == ["a", "b", "<|end|>"]
    assert answer["choices"][0]["token_ids"] == [97, 98, EOS]
    assert len(answer["prompt_token_ids"]) == answer["usage"]["prompt_tokens"]
    events = chunks((await rig.chat("stub:say ab", logprobs=True, stream=True)).text)
    shown = [e["choices"][0]["logprobs"] for e in events if e["choices"][0]["logprobs"]]
    assert [entry["token"] for one in shown for entry in one["content"]] == ["a", "b", "<|end|>"]
    assert not any("prompt_token_ids" in event for event in events)


async def test_a_stream_tells_its_prompts_ids_with_its_first_piece(rig: Rig) -> None:
    """As vLLM's own server does in chats: who streams learns the exact prompt too."""
    chat = {"messages": [{"role": "user", "content": "stub:say ab"}]}
    for path, body in (("chat/completions", chat), ("completions", {"prompt": "stub:say ab"})):
        asked = {"model": "rtrl", "return_token_ids": True, **body}
        whole = (await rig.http.post(f"/v1/{path}", json=asked)).json()
        first, *rest = chunks((await rig.http.post(f"/v1/{path}", json={**asked, "stream": True})).text)
        assert first["prompt_token_ids"] == whole["prompt_token_ids"] != []
        assert not any("prompt_token_ids" in event for event in rest)
        ids = [i for event in (first, *rest) for i in event["choices"][0].get("token_ids", ())]
        assert ids == whole["choices"][0]["token_ids"]


@pytest.mark.parametrize(("asked", "told"), [(0, True), (1, True), (None, False), (False, False)])
async def test_logprobs_of_completions_are_a_number_which_may_be_0(
    rig: Rig, asked: int | None, told: bool
) -> None:
    body = {"model": "rtrl", "prompt": "stub:say ab", "max_tokens": 2, "logprobs": asked}
    (choice,) = (await rig.http.post("/v1/completions", json=body)).json()["choices"]
    assert (choice["logprobs"] is not None) == told


@pytest.mark.parametrize("stream", [False, True])
async def test_plain_completions(rig: Rig, stream: bool) -> None:
    body = {"model": "rtrl", "prompt": "stub:say def f():", "max_tokens": 3, "stream": stream}
    answer = await rig.http.post("/v1/completions", json=body)
    if stream:
        text = "".join(e["choices"][0]["text"] for e in chunks(answer.text))
    else:
        text = answer.json()["choices"][0]["text"]
        assert answer.json()["object"] == "text_completion"
    assert text == "def"
    (generation,) = rig.generations()
    assert (generation.api, generation.finish_reason, generation.output_tokens) == (
        "completions",
        "length",
        3,
    )
    assert generation.defect == ""
    payload, tokens = rig.payload(generation.id)
    assert (payload.request, payload.answer) == ("", "def")
    assert bytes(tokens.prompt.tolist()) == b"stub:say def f():"


@pytest.mark.parametrize("prompt", [[97, 98], [[97, 98]], ["ab"]])
async def test_a_prompt_of_token_ids_and_a_list_of_one_prompt(rig: Rig, prompt: list[Any]) -> None:
    answer = await rig.http.post("/v1/completions", json={"model": "rtrl", "prompt": prompt})
    assert answer.status_code == 200
    assert rig.payload(answer.json()["id"])[1].prompt.tolist() == [97, 98]


@pytest.mark.parametrize("stream", [False, True])
async def test_tool_calls(rig: Rig, stream: bool) -> None:
    """The engine is asked for none, the gateway finds them; text around them stays."""
    words = (
        'stub:say I look.<tool_call>{"name": "read_file", "arguments": {"path": "a.py"}}</tool_call>'
        '<tool_call>{"name": "rm", "arguments": {}}</tool_call><tool_call>{oops</tool_call>'
    )
    answer = await rig.chat(words, tools=TOOLS, stream=stream)
    if stream:
        deltas = [e["choices"][0]["delta"] for e in chunks(answer.text)]
        content = "".join(d.get("content", "") for d in deltas)
        calls = [call for d in deltas for call in d.get("tool_calls", ())]
        assert [call.pop("index") for call in calls] == [0, 1]
        finish = chunks(answer.text)[-1]["choices"][0]["finish_reason"]
    else:
        message = answer.json()["choices"][0]["message"]
        content, calls = message["content"], message["tool_calls"]
        finish = answer.json()["choices"][0]["finish_reason"]
    assert content == "I look.<tool_call>{oops</tool_call>"
    assert [call["function"] for call in calls] == [
        {"name": "read_file", "arguments": '{"path": "a.py"}'},
        {"name": "rm", "arguments": "{}"},
    ]
    assert len({call["id"] for call in calls}) == 2
    assert finish == "tool_calls"
    (sent,) = rig.stub.requests
    assert (sent["tool_choice"], sent["tools"]) == ("none", TOOLS)
    (generation,) = rig.generations()
    assert generation.finish_reason == "stop", "what the engine said"
    assert [(c.name, c.arguments, c.error) for c in generation.tool_calls] == [
        ("read_file", "", ""),
        ("", "", "unknown_tool"),
        ("", "", "unparsable"),
    ]
    assert generation.invalid_tool_calls == 2
    assert rig.payload(generation.id)[0].answer == words[9:]


async def test_a_call_alone_has_no_content(rig: Rig) -> None:
    answer = await rig.chat('stub:call read_file {"path": "a"}', tools=TOOLS)
    assert answer.json()["choices"][0]["message"]["content"] is None


async def test_tool_choice_none_means_no_calls(rig: Rig) -> None:
    answer = await rig.chat('stub:call read_file {"path": "a"}', tools=TOOLS, tool_choice="none")
    message = answer.json()["choices"][0]["message"]
    assert message["content"].startswith("<tool_call>")
    assert "tool_calls" not in message


async def test_sampling_is_recorded_and_sent_in_full(rig: Rig) -> None:
    await rig.chat("x")
    await rig.chat(
        "x", temperature=0.5, top_p=0.9, top_k=5, min_p=0.1, presence_penalty=1, frequency_penalty=-1,
        repetition_penalty=1.1, max_completion_tokens=7, stop=["a", "b"], seed=3, logit_bias={"5": 1},
        response_format={"type": "json_object"}, user="ada", store=True, best_of=1,
    )  # fmt: skip
    plain, full = (g.sampling for g in rig.generations())
    assert plain == Sampling()
    assert full == Sampling(
        temperature=0.5, top_p=0.9, top_k=5, min_p=0.1, presence_penalty=1.0, frequency_penalty=-1.0,
        repetition_penalty=1.1, max_tokens=7, stop=("a", "b"),
        grammar='{"response_format":{"type":"json_object"}}', unknown=("logit_bias",),
    )  # fmt: skip
    first, second = rig.stub.requests
    assert (first["temperature"], first["top_p"], first["top_k"], first["min_p"]) == (1.0, 1.0, 0, 0.0)
    assert (second["max_tokens"], second["logit_bias"]) == (7, {"5": 1})
    for gone in ("seed", "user", "store", "best_of", "max_completion_tokens", "metadata"):
        assert gone not in second, gone


async def test_what_a_model_sees_otherwise_than_as_tokens_is_recorded_by_its_kind(rig: Rig) -> None:
    """The record has ids that stand for an image, and no pixels: its logprobs cannot be computed again."""
    text = {"type": "text", "text": "what is wrong here?"}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    sound = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    for parts in (
        [text, {"type": "refusal", "refusal": "no"}, {"text": "as vLLM takes it"}, "a string"],
        [text, image, sound, image],
        [{"image_url": "https://example.test/a.png"}, {"type": "hologram"}],
    ):
        await rig.chat("", messages=[{"role": "user", "content": parts}])
    shown = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    seen = {"model": "rtrl", "max_tokens": 9, "messages": [{"role": "user", "content": [text, shown]}]}
    await rig.http.post("/v1/messages", json=seen)
    found = [one.sampling.unknown for one in rig.generations()]
    assert found == [(), ("image_url", "input_audio"), ("content_part", "image_url"), ("image_url",)]


async def test_the_configured_defaults_are_used_and_recorded(tmp_path: Any) -> None:
    async with running(tmp_path, sampling={"temperature": 0.7, "top_k": 20}) as rig:
        await rig.chat("x")
        (generation,) = rig.generations()
        assert (generation.sampling.temperature, generation.sampling.top_k) == (0.7, 20)
        assert (rig.stub.requests[0]["temperature"], rig.stub.requests[0]["top_k"]) == (0.7, 20)


async def test_a_temperature_the_engine_would_raise_is_raised_here_and_recorded(tmp_path: Any) -> None:
    """vLLM makes 0.01 of what lies below, greedy aside: the record must say what was sampled from."""
    async with running(tmp_path, sampling={"temperature": 0.001}) as rig:
        for asked in (0.005, 1e-9, 0.01, 0, None):
            await rig.chat("x", temperature=asked)
        expected = [0.01, 0.01, 0.01, 0.0, 0.01]
        assert [g.sampling.temperature for g in rig.generations()] == expected
        assert [sent["temperature"] for sent in rig.stub.requests] == expected


async def test_no_train_is_served_and_counted_and_never_written(rig: Rig) -> None:
    answer = await rig.chat("SECRET-TEXT stub:say ANSWER-TEXT", headers={"x-rtrl-no-train": "1"})
    assert answer.status_code == 200
    gid = answer.json()["id"]
    assert (await rig.event("e1", gid, data={"text": "EVENT-TEXT"}))["accepted"] == 1
    (generation,) = rig.generations()
    assert generation.no_train
    assert generation.output_tokens > 0
    spool = rig.read()
    assert [sealed for _, _, sealed in spool.generations(0, 99)] == [b""]
    spool.close()
    assert [(e.type, e.data) for e in rig.events()] == [("user_message", {})]
    assert not rig.vault.has_key(generation.user), "no key was made for nothing"
    metrics = (await rig.admin.get("/metrics")).text
    assert 'rtrl_generations_total{kind="no_train"} 1.0' in metrics


async def test_of_a_no_train_request_the_sampling_has_numbers_alone(rig: Rig) -> None:
    """Stop strings, the grammar and the names of unknown fields are what its client wrote, and so are its
    tools: anybody can try guesses at a plain hash of them."""
    schema = {"type": "object", "description": "GRAMMAR-TEXT"}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    asked = {"stop": ["STOP-TEXT"], "response_format": wanted, "FIELD_TEXT": 1, "temperature": 0.5}
    asked["tools"] = [{"type": "function", "function": {"name": "f", "description": "TOOL-TEXT"}}]
    for consent in ("1", "0"):
        await rig.chat("hi", headers={"x-rtrl-no-train": consent}, **asked)
    without, with_it = rig.generations()
    assert without.sampling == Sampling(temperature=0.5)
    assert (with_it.sampling.stop, with_it.sampling.unknown) == (("STOP-TEXT",), ("FIELD_TEXT",))
    assert (without.tools_digest, with_it.tools_digest[:7]) == ("", "sha256:")
    assert "GRAMMAR-TEXT" in with_it.sampling.grammar
    assert all(sent["stop"] == ["STOP-TEXT"] for sent in rig.stub.requests), "the engine hears of it"


async def test_sixty_at_a_time(rig: Rig) -> None:
    limits = httpx.Limits(max_connections=60)
    async with httpx.AsyncClient(
        base_url=rig.url, headers=rig.http.headers, limits=limits, timeout=60
    ) as http:
        bodies = [
            {
                "model": "rtrl",
                "messages": [{"role": "user", "content": f"stub:say {i}"}],
                "stream": i % 3 == 0,
                "user": f"u{i % 7}",
            }
            for i in range(60)
        ]
        answers = await asyncio.gather(*(http.post("/v1/chat/completions", json=body) for body in bodies))
    assert {answer.status_code for answer in answers} == {200}
    recorded = {g.id for g in rig.generations()}
    assert recorded == {answer.headers["x-rtrl-generation-id"] for answer in answers}
    assert len(recorded) == 60
