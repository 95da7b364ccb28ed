"""What a model thinks before it answers: apart from the answer, and told to it again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stages.gateway.served import Checkpoint
from stages.gateway.stub_script import render
from stages.model_forms import PLAIN, forms_of
from stages.records import BEGUN
from tests.stages.gateway.rig import Rig

READ = {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}
CALL = '<tool_call>{"name": "read_file", "arguments": {"path": "a.py"}}</tool_call>'
THINKS = f"<think>\nPerhaps {CALL}.\n</think>\n\nI look.{CALL}"


def asks(path: str, words: str) -> dict[str, Any]:
    if path == "/v1/responses":
        return {"model": "rtrl", "input": words, "tools": [{**READ["function"], "type": "function"}]}
    tool = {"name": "read_file", "input_schema": {"type": "object"}} if "messages" in path else READ
    return {
        "model": "rtrl",
        "max_tokens": 500,
        "messages": [{"role": "user", "content": words}],
        "tools": [tool],
    }


def shown(path: str, body: dict[str, Any]) -> list[tuple[str, str]]:
    """Thoughts, text and calls of an answer, in order."""
    if path == "/v1/chat/completions":
        message = body["choices"][0]["message"]
        calls = [("call", call["function"]["name"]) for call in message["tool_calls"]]
        return [("thought", message["reasoning_content"]), ("text", message["content"]), *calls]
    if path == "/v1/messages":
        return [
            ("thought", block["thinking"])
            if block["type"] == "thinking"
            else ("call", block["name"])
            if block["type"] == "tool_use"
            else ("text", block["text"])
            for block in body["content"]
        ]
    return [
        ("call", item["name"])
        if item["type"] == "function_call"
        else ({"reasoning": "thought", "message": "text"}[item["type"]], item["content"][0]["text"])
        for item in body["output"]
    ]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
async def test_thoughts_are_apart_and_their_calls_none(rig: Rig, path: str) -> None:
    answer = await rig.http.post(path, json=asks(path, f"stub:say {THINKS}"))
    thought, text, call = ("thought", f"Perhaps {CALL}."), ("text", "I look."), ("call", "read_file")
    assert shown(path, answer.json()) == [thought, text, call]
    (generation,) = rig.generations()
    assert len(generation.tool_calls) == 1
    assert generation.invalid_tool_calls == 0
    assert rig.payload(generation.id)[0].answer == THINKS, "what is recorded is what was sampled"
    assert generation.features[BEGUN] == "0"


async def test_thoughts_are_apart_in_a_stream(rig: Rig) -> None:
    text = (await rig.chat(f"stub:say {THINKS}", tools=[READ], stream=True)).text
    told = [json.loads(line[6:])["choices"][0]["delta"] for line in text.split("\n\n")[:-2]]
    assert "".join(one.get("reasoning_content", "") for one in told) == f"Perhaps {CALL}."
    assert "".join(one.get("content", "") for one in told) == "I look."
    assert sum("tool_calls" in one for one in told) == 1


async def test_plain_completions_are_left_as_they_are(rig: Rig) -> None:
    answer = await rig.http.post("/v1/completions", json={"model": "rtrl", "prompt": f"stub:say {THINKS}"})
    assert answer.json()["choices"][0]["text"].startswith("<think>")
    assert BEGUN not in rig.generations()[0].features


@pytest.mark.parametrize("bound", [{}, {"tool_choice": "required", "tools": [READ]}])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_thought_that_the_prompt_opened(rig: Rig, tmp_path: Path, stream: bool, bound: Any) -> None:
    """DeepSeek's and Qwen's templates end in `<think>` where the model is to think. A grammar knows nothing
    of that: the answer has to begin with the call, which would be lost in a thought that never ends."""
    tokens = list(render([], None))[-2:]  # the tag, as if it were one, and a line end
    known = {"added_tokens": [{"id": tokens[0], "content": "<think>"}, {"id": 300, "content": "</think>"}]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(known))
    rig.served.checkpoint = Checkpoint(rig.served.checkpoint.digest, tmp_path)
    says = CALL if bound else "Hm.\n</think>\n\nDone."
    answer = await rig.chat(f"stub:say {says}", stream=stream, **bound)
    if stream:
        told = [json.loads(line[6:])["choices"][0]["delta"] for line in answer.text.split("\n\n")[:-2]]
    else:
        told = [answer.json()["choices"][0]["message"]]
    assert "".join(one.get("reasoning_content", "") for one in told) == ("" if bound else "Hm.")
    assert "".join(one.get("content") or "" for one in told) == ("" if bound else "Done.")
    assert sum("tool_calls" in one for one in told) == bool(bound)
    assert rig.generations()[0].features[BEGUN] == ("0" if bound else "1")


def test_whether_a_thought_is_open_behind_a_prompt(tmp_path: Path) -> None:
    assert not forms_of(tmp_path).begins_within([1, 7]), "no tokenizer"
    (tmp_path / "a").mkdir()
    texts = {7: "<think>", 8: "</think>", 9: "<|assistant|>", 10: "\n"}
    known = {"added_tokens": [{"id": number, "content": text} for number, text in texts.items()]}
    (tmp_path / "a" / "tokenizer.json").write_text(json.dumps(known))
    prompts = [[1, 7], [7, 1], [1, 7, 8], [7, 8, 1], [7, 1, 1], [7], [], [9, 7, 10], [7, 9]]
    assert [forms_of(tmp_path / "a").begins_within(prompt) for prompt in prompts] == [
        True,
        True,
        *[False] * 3,
        True,
        False,
        True,
        False,  # the end of what a user wrote, as GLM-4.6's template goes on
    ]


def test_a_folder_that_was_away_is_looked_at_again(tmp_path: Path) -> None:
    """What a request found while the store's disk was away held until the gateway ended."""
    assert forms_of(tmp_path / "b") == PLAIN
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "chat_template.jinja").write_text("<minimax:tool_call>")
    assert [block.open for block in forms_of(tmp_path / "b").blocks] == ["<minimax:tool_call>", "<tool_call>"]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
async def test_a_model_is_told_its_own_thoughts_again_and_no_others(rig: Rig, path: str) -> None:
    asked = asks(path, f"stub:say {THINKS}")
    answer = (await rig.http.post(path, json=asked)).json()
    rig.stub.words = "stub:say done"
    if path == "/v1/messages":
        call = answer["content"][-1]["id"]
        others = {"type": "thinking", "thinking": "of another", "signature": "x"}
        result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": "a"}]}
        asked["messages"] += [{"role": "assistant", "content": [others, *answer["content"]]}, result]
    else:
        call = answer["output"][-1]["call_id"]
        others = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "of another"}]}
        result = {"type": "function_call_output", "call_id": call, "output": "a"}
        asked["input"] = [{"role": "user", "content": asked["input"]}, others, *answer["output"], result]
    assert (await rig.http.post(path, json=asked)).status_code == 200
    sent = rig.stub.requests[-1]["messages"]
    assert [one["role"] for one in sent] == ["user", "assistant", "tool"]
    assert (sent[1]["reasoning_content"], sent[1]["content"]) == (f"Perhaps {CALL}.", "I look.")
    assert "of another" not in json.dumps(sent)
    one, two = rig.generations()
    assert (one.session, one.episode) == (two.session, two.episode)


@pytest.mark.parametrize("stream", [False, True])
async def test_tags_that_are_special_tokens_are_shown(rig: Rig, tmp_path: Path, stream: bool) -> None:
    """Engines leave special tokens out of texts: Mistral's calls were what stood between them."""
    tags = [
        {"id": n, "content": tag, "special": True}
        for n, tag in enumerate(("</s>", "[TOOL_CALLS]", "[THINK]"))
    ]
    known: dict[str, Any] = {"added_tokens": tags}
    (tmp_path / "tokenizer.json").write_text(json.dumps(known))
    rig.served.checkpoint = Checkpoint(rig.served.checkpoint.digest, tmp_path)
    call = '[TOOL_CALLS]read_file[ARGS]{"path": "a.py"}'
    answer = await rig.chat(f"stub:say [THINK]Hm.[/THINK]I look.{call}{call}", tools=[READ], stream=stream)
    if stream:
        told = [json.loads(line[6:])["choices"][0]["delta"] for line in answer.text.split("\n\n")[:-2]]
    else:
        told = [answer.json()["choices"][0]["message"]]
    assert "".join(one.get("reasoning_content", "") for one in told) == "Hm."
    assert "".join(one.get("content") or "" for one in told) == "I look."
    functions = [call["function"] for one in told for call in one.get("tool_calls", ())]
    assert functions == [{"name": "read_file", "arguments": '{"path": "a.py"}'}] * 2
    await rig.chat("stub:say Done.", skip_special_tokens=True)  # who wants them left out
    await rig.http.post("/v1/completions", json={"model": "rtrl", "prompt": "a"})
    assert [one.get("skip_special_tokens") for one in rig.stub.requests] == [False, True, None]
    assert forms_of(tmp_path).hidden
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "tokenizer.json").write_text(json.dumps(known | {"added_tokens": tags[:1]}))
    assert not forms_of(tmp_path / "b").hidden
