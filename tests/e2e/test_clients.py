"""Clients nobody wrote for us work unchanged: the official `openai` package and mini-swe-agent.

Against the gateway with the stub engine, and with real vLLM behind it.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stages.records import Generation
from stages.sequences import not_reproducible
from stages.spool import Spool
from stages.target.admin import Admin
from stages.vault import Vault
from tests.e2e.conftest import World
from tests.stages.gateway.rig import running

if TYPE_CHECKING:  # each worker would load it, which takes it a second and a half
    from openai import OpenAI

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Read a file",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}},
                "required": ["path"],
            },
        },
    }
]
CALL = 'stub:call read_file {"path": "sum.py"}'
CONTEXT = 16384  # `max_model_len` of `conftest.SETTINGS`

AGENT = """
import json, sys
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel
url, key, folder, task, steps = sys.argv[1:]
model = LitellmModel(
    model_name="openai/rtrl",
    model_kwargs={"api_base": url, "api_key": key, "max_tokens": 40 if task == "fix it" else 400},
)
agent = DefaultAgent(
    model,
    LocalEnvironment(cwd=folder),
    system_template="Use bash.",
    instance_template="{{task}}",
    step_limit=int(steps),
    max_consecutive_format_errors=0,
)
result = agent.run(task)
print(json.dumps({"exit": result["exit_status"], "submission": result["submission"], "calls": agent.n_calls}))
"""


def talk(url: str, key: str) -> dict[str, str]:
    """A session with the official client; every way of asking once. Returns the generation ids."""
    import openai
    from openai import OpenAI

    client = OpenAI(base_url=url, api_key=key, max_retries=0, timeout=120)
    assert [model.id for model in client.models.list()] == ["rtrl"]
    ids: dict[str, str] = {}

    whole = client.chat.completions.create(
        model="rtrl", messages=[{"role": "user", "content": "hello"}], max_tokens=12, user="ada"
    )
    assert whole.usage is not None
    assert whole.usage.completion_tokens <= 12
    assert isinstance(whole.choices[0].message.content, str)
    ids["whole"] = whole.id

    raw = client.chat.completions.with_raw_response.create(
        model="rtrl",
        messages=[{"role": "user", "content": "hello"}],
        max_tokens=12,
        logprobs=True,
        extra_headers={"X-Rtrl-User": "ada", "X-Rtrl-Session": "s1"},
    )
    parsed = raw.parse()
    assert raw.headers["x-rtrl-generation-id"] == parsed.id
    assert parsed.choices[0].logprobs is not None
    assert parsed.usage is not None
    assert len(parsed.choices[0].logprobs.content or ()) == parsed.usage.completion_tokens
    ids["logprobs"] = parsed.id

    ids["streamed"] = stream(client, [{"role": "user", "content": "hello"}])[0]

    tool = client.chat.completions.create(
        model="rtrl", messages=[{"role": "user", "content": CALL}], tools=TOOLS, max_tokens=100
    )
    ids["tools"] = tool.id
    ids["streamed tools"], _, calls = stream(client, [{"role": "user", "content": CALL}], tools=TOOLS)
    for call in [*(tool.choices[0].message.tool_calls or ()), *calls]:
        assert call.function.name == "read_file"
        assert json.loads(call.function.arguments) == {"path": "sum.py"}
    ids["calls found"] = str(len(tool.choices[0].message.tool_calls or ()) + len(calls))

    plain = client.completions.create(model="rtrl", prompt="def add(a, b):", max_tokens=8)
    ids["plain"] = plain.id

    function: Any = {"type": "function", **TOOLS[0]["function"], "strict": None}
    told = client.responses.create(model="rtrl", input=CALL, tools=[function], max_output_tokens=100)
    ids["responses with tools"] = told.id
    ids |= of_anthropic(url, key)

    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-9", messages=[{"role": "user", "content": "x"}])
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="rtrl", messages=[{"role": "user", "content": "x"}], n=2)
    assert refused.value.code == "unsupported_parameter"
    with pytest.raises(openai.AuthenticationError):
        OpenAI(base_url=url, api_key="rtrl-wrong", max_retries=0).models.list()
    return ids


def of_anthropic(url: str, key: str) -> dict[str, str]:
    """Ids of a whole and a streamed answer by `anthropic`; their prompt is as long as was counted."""
    from anthropic import Anthropic

    client = Anthropic(base_url=url.removesuffix("/v1"), api_key=key, max_retries=0, timeout=120)
    function = TOOLS[0]["function"]
    tool: Any = {"name": "read_file", "description": "Read a file", "input_schema": function["parameters"]}
    asked: Any = {"model": "rtrl", "messages": [{"role": "user", "content": CALL}], "tools": [tool]}
    counted = client.messages.count_tokens(**asked)
    whole = client.messages.create(**asked, max_tokens=100)
    with client.messages.stream(**asked, max_tokens=100) as coming:
        streamed = coming.get_final_message()
    assert {whole.usage.input_tokens, streamed.usage.input_tokens} == {counted.input_tokens}
    return {"messages with tools": whole.id, "streamed messages with tools": streamed.id}


def stream(client: OpenAI, messages: list[Any], **more: Any) -> tuple[str, str, list[Any]]:
    """Id, text and tool calls of a streamed answer."""
    text, calls, usage, ids = "", [], None, set()
    for chunk in client.chat.completions.create(
        model="rtrl",
        messages=messages,
        max_tokens=100,
        stream=True,
        stream_options={"include_usage": True},
        **more,
    ):
        ids.add(chunk.id)
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            calls += choice.delta.tool_calls or []
    assert usage is not None
    assert 0 < usage.completion_tokens <= 100
    (generation_id,) = ids
    return generation_id, text, calls


def forced(url: str, key: str, tries: int) -> list[str]:
    """Ids of answers that are the call they had to be; of random weights some think until they are cut."""
    from openai import OpenAI

    client = OpenAI(base_url=url, api_key=key, max_retries=0, timeout=120)
    schema = {"properties": {"path": {"enum": ["a.py", "b.py"]}}, "required": ["path"]}
    function = {"name": "read", "parameters": {"type": "object", "additionalProperties": False} | schema}
    tools: Any = [*TOOLS, {"type": "function", "function": function}]
    found = []
    for _ in range(tries):
        answer = client.chat.completions.create(
            model="rtrl",
            messages=[{"role": "user", "content": "hello"}],
            tools=tools,
            tool_choice={"type": "function", "function": {"name": "read"}},
            max_tokens=200,
        )
        if answer.choices[0].finish_reason == "length":
            continue
        message = answer.choices[0].message
        ((name, arguments),) = [(c.function.name, c.function.arguments) for c in message.tool_calls or ()]
        assert name == "read"
        assert json.loads(arguments)["path"].strip() in ("a.py", "b.py"), "tags bear blanks around a value"
        found.append(answer.id)
    return found


def agent(url: str, key: str, folder: Path, task: str, steps: int) -> dict[str, Any]:
    """Run mini-swe-agent, unchanged, in a process of its own. Importing it makes folders: not in the home."""
    (folder / "work").mkdir(parents=True)
    environment = os.environ | {
        "HOME": str(folder),
        "MSWEA_GLOBAL_CONFIG_DIR": str(folder / "config"),
        "MSWEA_SILENT_STARTUP": "1",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    done = subprocess.run(
        [sys.executable, "-c", AGENT, url, key, str(folder / "work"), task, str(steps)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


async def test_the_official_client_with_the_stub(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        ids = await asyncio.to_thread(talk, f"{rig.url}/v1", rig.key)
        assert ids.pop("calls found") == "2"
        recorded = {g.id: g for g in rig.generations()}
        assert set(recorded) == set(ids.values())
        assert all(not g.defect for g in recorded.values())
        assert recorded[ids["whole"]].user == "ada"
        assert [c.error for c in recorded[ids["streamed tools"]].tool_calls] == [""]


async def test_mini_swe_agent_with_the_stub(tmp_path: Path) -> None:
    """Two steps: the first call works on a file, the second one hands in. One episode, one chain."""
    command = (
        "if [ -e seen ]; then echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cat sum.py;"
        " else touch seen; echo fixed > sum.py; fi"
    )
    task = f"stub:call bash {json.dumps({'command': command})}"
    async with running(tmp_path / "gateway") as rig:
        result = await asyncio.to_thread(agent, f"{rig.url}/v1", rig.key, tmp_path / "agent", task, 5)
        assert result == {"exit": "Submitted", "submission": "fixed\n", "calls": 2}
        first, second = rig.generations()
    assert first.episode == second.episode
    assert (first.ordinal, second.ordinal) == (0, 1)
    assert second.prompt_base == first.id
    assert [call.name for call in (*first.tool_calls, *second.tool_calls)] == ["bash", "bash"]


def flushed(world: World) -> int:
    """The number of the last record of the served workspace's spool, once all are to be seen there."""
    admin = Admin(world.endpoint)
    return admin.flush_spool()


def recorded(world: World, wanted: set[str]) -> dict[str, Generation]:
    """Those generations from the served workspace's spool."""
    flushed(world)
    spool = Spool.open(world.workspace.spool_dir)
    found = {g.id: g for _, g, _ in spool.generations(0, 1 << 60) if g.id in wanted}
    spool.close()
    return found


@pytest.mark.vllm
def test_the_official_client_with_vllm(served: World) -> None:
    """Ids, text and lengths as the real engine reports them, whole and streamed, with and without tools."""
    from tokenizers import Tokenizer

    ids = talk(served.url, served.key)
    ids.pop("calls found")  # random weights: whatever it wrote
    found = recorded(served, set(ids.values()))
    assert set(found) == set(ids.values())
    spool, vault = Spool.open(served.workspace.spool_dir), Vault.open(served.workspace.keys_dir)
    tokenizer = Tokenizer.from_file(str(served.first.path / "tokenizer.json"))
    chains = spool.chains(vault)
    for name, generation_id in ids.items():
        generation = found[generation_id]
        assert generation.defect == "", name
        assert {span.checkpoint for span in generation.spans} == {served.first.digest}
        payload, tokens = chains.open(*spool.record(generation_id))
        assert len(tokens.output) == len(tokens.logprobs) == generation.output_tokens > 0
        assert (tokens.logprobs <= 0).all()
        text = tokenizer.decode(tokens.output.tolist())
        if "\ufffd" not in text + payload.answer:  # random bytes need not end on a character
            assert payload.answer == text, name
        prompt = tokenizer.decode(tokens.prompt.tolist(), skip_special_tokens=False)
        assert ("tools: read_file" in prompt) == ("tools" in name), "tool_choice none still shows the tools"
    spool.close()
    vault.close()


@pytest.mark.vllm
def test_a_call_that_is_forced_is_made_by_vllm(served: World) -> None:
    """Random weights write none by themselves."""
    ids = forced(served.url, served.key, 12)
    assert ids, "one in two thinks first, and none of these ends"
    for generation in recorded(served, set(ids)).values():
        assert not_reproducible(generation.sampling) == "grammar"
        assert [call.error for call in generation.tool_calls] in ([""], ["schema"])


@pytest.mark.vllm
def test_an_answer_ends_where_the_context_does(served: World) -> None:
    """More than what the prompt leaves may be asked for; a prompt that leaves nothing is refused."""
    import openai
    from openai import OpenAI

    client = OpenAI(base_url=served.url, api_key=served.key, max_retries=0, timeout=120)
    asked: Any = {"model": "rtrl", "max_tokens": 600}
    answer = client.completions.create(prompt=[40] * (CONTEXT - 1), **asked)
    assert answer.usage is not None
    assert (answer.usage.completion_tokens, answer.choices[0].finish_reason) in {(1, "length"), (1, "stop")}
    for more in (0, 1):
        with pytest.raises(openai.BadRequestError) as refused:
            client.completions.create(prompt=[40] * (CONTEXT + more), **asked)
        assert refused.value.code == "context_length_exceeded"
        assert "maximum context length is" in str(refused.value)


@pytest.mark.vllm
def test_mini_swe_agent_with_vllm(served: World, tmp_path: Path) -> None:
    """Random weights call no tool: the agent complains and stops at its limit, as with any bad model."""
    before = flushed(served)
    result = agent(served.url, served.key, tmp_path, "fix it", 2)
    assert (result["exit"], result["calls"]) == ("LimitsExceeded", 2)
    flushed(served)
    spool = Spool.open(served.workspace.spool_dir)
    made = [g for _, g, _ in spool.generations(before + 1, 1 << 60)]
    spool.close()
    assert [g.defect for g in made] == ["", ""]
