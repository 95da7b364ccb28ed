"""The batch engine with real vLLM: same prompts as the served one, reproducible, and not fooled."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from cursorbench.harness.chat import ChatRequest
from evals.suites.base import TextRequest
from stages.engine.config import EngineConfig
from stages.engine.inprocess import InProcessEngine
from stages.engine.process import environment
from stages.engine.questions import CACHED_TOKENS
from stages.errors import DependencyDownError
from stages.gateway.config import DefaultSampling
from stages.served_fingerprint import write_fingerprint
from tests.e2e.conftest import World
from tests.e2e.tiny import nudge_checkpoint, write_checkpoint
from tests.stages.train.moe import moe_model

pytestmark = pytest.mark.vllm

RUN = {"type": "function", "function": {"name": "run", "parameters": {"type": "object", "properties": {}}}}
CALLED: tuple[dict[str, Any], ...] = (
    {"role": "system", "content": "be terse"},
    {"role": "user", "content": "fix it"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "run", "arguments": '{"x": [1, "a"]}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "ok"},
)


@pytest.fixture
def engine(world: World, batch: InProcessEngine, monkeypatch: pytest.MonkeyPatch) -> InProcessEngine:
    """The one that all share, with the weights of `first`; what a request leaves open is vLLM's to say."""
    monkeypatch.setattr(batch, "sampling", {})
    if batch.checkpoint_dir != world.first.path:
        batch.load_weights(world.first.path)
    return batch


def requests() -> list[ChatRequest]:
    plain = [ChatRequest(({"role": "user", "content": f"hello {i}"},), (), 12) for i in range(6)]
    return [*plain, ChatRequest(CALLED, (RUN,), 12)]


def test_prompts_are_those_of_the_served_engine(engine: InProcessEngine, served: World) -> None:
    batch = requests()
    answers = engine.chat(batch)
    at = served.endpoint.engine
    for request, answer in zip(batch, answers, strict=True):
        body = request.body("rtrl") | {"return_token_ids": True, "tool_choice": "none", "max_tokens": 1}
        if not body["tools"]:
            del body["tools"], body["tool_choice"]
        reply = httpx.post(
            f"{at.url}/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {at.key}"}
        )
        assert reply.json()["prompt_token_ids"] == answer["prompt_ids"]
        assert answer["prompt_tokens"] == len(answer["prompt_ids"])


def test_answers_are_reproducible_and_their_logprobs_exact(engine: InProcessEngine) -> None:
    batch = requests()
    first, again, other = engine.chat(batch, seed=3), engine.chat(batch, seed=3), engine.chat(batch, seed=4)
    assert [a["token_ids"] for a in first] == [a["token_ids"] for a in again]
    assert [a["token_ids"] for a in first] != [a["token_ids"] for a in other]
    for answer in first:
        assert answer["role"] == "assistant"
        assert answer["output_tokens"] == len(answer["token_ids"]) == len(answer["logprobs"])
        assert answer["finish_reason"] in ("stop", "length")
        (scored,) = engine.score([answer["prompt_ids"] + answer["token_ids"]])
        assert answer["logprobs"] == pytest.approx(scored[-len(answer["token_ids"]) :], abs=1e-4)


def test_what_a_request_leaves_open_is_sampled_as_the_engine_is_set_up(
    engine: InProcessEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "sampling", DefaultSampling(top_k=1).model_dump())
    batch = requests()
    first, other = engine.chat(batch, seed=3), engine.chat(batch, seed=4)
    assert [a["token_ids"] for a in first] == [a["token_ids"] for a in other], "the likeliest token each time"


def test_ranks_and_plain_continuations(engine: InProcessEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "sampling", DefaultSampling(top_k=1).model_dump())
    answer = engine.chat(requests()[:1], seed=3)[0]
    ids, written = answer["prompt_ids"] + answer["token_ids"], len(answer["token_ids"])
    (row,) = engine.ranked([ids])
    assert [logprob for logprob, _ in row] == pytest.approx(engine.score([ids])[0], abs=1e-5)
    assert {rank for _, rank in row[-written:]} == {1}, "greedy answers are the likeliest tokens"
    asked = TextRequest(tuple(answer["prompt_ids"]), written)
    (text,) = engine.continued([asked])
    assert answer["text"].startswith(text) or text.startswith(answer["text"])
    (cut,) = engine.continued([TextRequest(asked.prompt, written, stop=(text[1:2],))])
    assert cut == text[: text.index(text[1:2])]


def test_a_prompt_that_does_not_fit_spoils_no_other(engine: InProcessEngine) -> None:
    long = ChatRequest(({"role": "user", "content": "x" * 4000},), (), 4)
    refused, answered = engine.chat([long, requests()[0]])
    assert (refused["finish_reason"], refused["content"]) == ("error", None)
    assert "context length" in refused["error"]
    assert answered["output_tokens"] > 0


def test_weights_change_without_a_restart(engine: InProcessEngine, world: World, tmp_path: Path) -> None:
    """Also when the folder of those before is gone: what was rebuilt from deltas is removed in time."""
    ids = [[5, 6, 7, 8, 9, 10]]
    before = engine.score(ids)
    second = shutil.copytree(world.second.path, tmp_path / "second")
    assert engine.load_weights(second).probes.verdict == "child"
    shutil.rmtree(second)
    assert engine.score(ids)[0] != pytest.approx(before[0], abs=1e-3)
    engine.load_weights(world.first.path)
    assert engine.score(ids)[0] == pytest.approx(before[0], abs=1e-5)


SCRIPT = """
import json, os, sys
from stages.engine.loading import load
load("vllm.v1.engine.llm_engine")
import torch
from stages.engine.config import EngineConfig
from stages.engine.inprocess_worker import Worker
from stages.engine.verification import judge_probes, read_fingerprint, weights_key
from pathlib import Path

first, second, other, experts, nudged, *dtypes = sys.argv[1:]
for dtype in (*dtypes, "experts"):  # one process each, which need not load vLLM again
    child = os.fork()
    if not child:
        break
    if os.waitpid(child, 0)[1]:
        os._exit(1)
if child:
    os._exit(0)  # taking vLLM apart again takes seconds, three times
def answers_as(folder):
    expected = read_fingerprint(Path(folder))
    return judge_probes(expected.logprobs, worker.score(expected.probes), dtype).verdict

if dtype == "experts":
    dtype, found = "float32", []
    worker = Worker(experts, EngineConfig(dtype=dtype).model_dump(mode="json"))
    for folder in (nudged, experts, nudged):
        worker.load(folder)
        found.append(answers_as(folder))
    print("RESULT" + json.dumps(["experts", found]), flush=True)
    os._exit(0)
said = ("--chat-template", "{% for m in messages %}<{{ m['content'] }}{{ mark }}{% endfor %}")
said = (*said, "--default-chat-template-kwargs", '{"mark": ">"}', "--tensor_parallel_size", "2")
said = (*said, "--spec-method", "ngram", "--spec-tokens", "2")
config = EngineConfig(dtype=dtype, lora_rank=8, extra_args=(*said, "--max-num-batched-tokens", "4096"))
worker = Worker(first, config.model_dump(mode="json"))
model = worker.llm.llm_engine.model_executor.driver_worker.worker.model_runner.get_model()

def look(folder):
    expected = read_fingerprint(Path(folder))
    held = worker.verify(folder, {name: entry.sha256 for name, entry in expected.tensors.items()})
    judged = judge_probes(expected.logprobs, worker.score(expected.probes), dtype)
    return held | {"verdict": judged.verdict}

def vllm_alone(folder):
    worker.llm.collective_rpc("reload_weights", kwargs={"weights_path": folder})
    worker.llm.reset_prefix_cache()

def without_a_layer(folder):
    kept = model.model.layers[1].mlp.gate_up_proj.cpu_linear
    worker.load(folder)
    model.model.layers[1].mlp.gate_up_proj.cpu_linear = kept

def without_a_norm(folder):
    kept = model.model.norm.weight.detach().clone()
    worker.load(folder)
    model.model.norm.weight.data.copy_(kept)

found = {"start": look(first)}
asked = {"messages": [{"role": "user", "content": "ab"}], "tools": [], "sampling": {}, "max_tokens": 1}
limits, tokenizer = worker.llm.llm_engine.vllm_config.scheduler_config, worker.llm.get_tokenizer()
prompt = tokenizer.decode(worker.chat([asked], None)[0]["prompt_ids"])
found["told"] = [prompt, limits.max_num_batched_tokens, worker.llm.get_world_size()]
found["drafts"] = worker.llm.llm_engine.vllm_config.speculative_config is not None
kernel, table = model.lm_head.cpu_linear, model.lm_head.weight
ones, nothing = torch.ones(1, model.config.hidden_size, dtype=table.dtype), torch.zeros_like(table)
found["packed"] = bool(kernel(ones, nothing, None).any())  # else it computes with the matrix it is given
for after, to, back in (("update", second, first), ("rollback", first, second)):
    worker.load(back)
    for lie in (vllm_alone, without_a_layer, without_a_norm):
        lie(to)
        found[f"{after} {lie.__name__}"] = look(to)
        worker.load(back)
    worker.load(other)
    found[f"{after} wrong"] = look(to)
    worker.load(to)
    found[f"{after} ours"] = look(to)
    found[f"{after} stale"] = look(back)
keys = {folder: weights_key(read_fingerprint(Path(folder))) for folder in (first, second)}

def call(method, folder, **more):
    named = {} if method in ("rtrl_unstage", "rtrl_cached") else {"path": folder, "key": keys[folder], **more}
    return worker.llm.collective_rpc(method, kwargs=named)[0]

def kept(folder, **more):
    loaded = call("rtrl_load", folder, **more)
    worker.llm.reset_prefix_cache()
    expected = read_fingerprint(Path(folder))
    judged = judge_probes(expected.logprobs, worker.score(expected.probes), dtype)
    return loaded | call("rtrl_verify", folder, expected={}) | {"verdict": judged.verdict}

from stages.engine.inprocess_worker import CPU_BLOCK
from vllm import EngineArgs, SamplingParams

found["served block"] = EngineArgs(model=first).create_engine_config().cache_config.block_size
found["cache"] = []
for prompt, reset in ((4 * CPU_BLOCK + 2, True), (CPU_BLOCK // 2, True), (CPU_BLOCK // 2, False)):
    if reset:
        worker.llm.reset_prefix_cache()
    ids = [{"prompt_token_ids": [5 + i % 7 for i in range(prompt)]}]
    worker.llm.generate(ids, SamplingParams(max_tokens=1), use_tqdm=False)
    found["cache"].append(call("rtrl_cached", first)["blocks"])
kept(first, file=True)
for name, folder in (("away", second), ("back", first), ("again", second)):
    found[f"memory {name}"] = kept(folder)

def staged(folder, after=lambda: None, limit_gib=None):
    call("rtrl_unstage", folder)
    slices = []
    while not slices or slices[-1]["state"] == "going":
        slices.append(call("rtrl_stage", folder, expected={}, limit_gib=limit_gib, seconds=0))
        if len(slices) == 3:  # what is served is not touched by it
            assert answers_as(first) == "child", "before the exchange"
    loaded = call("rtrl_load", folder)
    after()
    worker.llm.reset_prefix_cache()
    told = {"slices": len(slices), "why": slices[-1]["why"], "verdict": answers_as(folder)}
    return loaded | call("rtrl_verify", folder, expected={}) | told

def from_first():
    call("rtrl_load", first, file=True, limit_gib=0)
    worker.llm.reset_prefix_cache()
    call("rtrl_verify", first, expected={})
    layer = model.model.layers[1].mlp.gate_up_proj
    return layer, layer.cpu_linear, model.model.norm.weight.detach().clone(), model.lm_head.cpu_linear

layer, kernel, norm, head = from_first()
found["staged"] = staged(second)
for name, lie in (
    ("layer", lambda: setattr(layer, "cpu_linear", kernel)),
    ("norm", lambda: model.model.norm.weight.data.copy_(norm)),
    ("head", lambda: setattr(model.lm_head, "cpu_linear", head)),
):
    layer, kernel, norm, head = from_first()
    found[f"staged without {name}"] = staged(second, lie)
found["head"] = next(name for name, each in model.named_modules() if each is model.lm_head)
from_first()
found["staged no room"] = staged(second, limit_gib=0)
call("rtrl_load", first, file=True, limit_gib=0)
worker.llm.reset_prefix_cache()
found["staged unproven"] = staged(second)
kept(first, file=True)
kept(second)
model.model.norm.weight.data[0] += 0.5
found["memory damaged"] = call("rtrl_verify", second, expected={})
found["memory none"] = kept(first, limit_gib=0, file=True)
print("RESULT" + json.dumps([dtype, found]), flush=True)
os._exit(0)
"""
STALE = {
    "vllm_alone": ["model.embed_tokens.weight"],
    "without_a_layer": [f"model.layers.1.mlp.{part}_proj.weight" for part in ("gate", "up")],
    "without_a_norm": ["model.norm.weight"],
}


def experts(folder: Path) -> tuple[Path, Path]:
    """A mixture of experts, and its child."""
    parent = write_checkpoint(folder / "experts", seed=1)
    vocabulary = int(json.loads((parent / "config.json").read_text())["vocab_size"])
    changes = {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
    changes |= {"moe_intermediate_size": 32, "vocab_size": vocabulary, "max_position_embeddings": 16384}
    moe_model(1, "qwen2_moe", **changes).save_pretrained(parent)
    write_fingerprint(parent, parent=None)
    child = nudge_checkpoint(parent, folder / "nudged", seed=2, step=0.05)
    write_fingerprint(child, parent=parent)
    return parent, child


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By dtype, what `SCRIPT` found."""
    folder = tmp_path_factory.mktemp("held")
    first = write_checkpoint(folder / "first", seed=1, tied=True)
    write_fingerprint(first, parent=None)
    second = nudge_checkpoint(first, folder / "second", seed=2, step=0.05)
    write_fingerprint(second, parent=first)
    other = nudge_checkpoint(first, folder / "other", seed=3, step=0.05)
    write_fingerprint(other, parent=first)
    variables = environment(EngineConfig()) | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [
            sys.executable,
            "-c",
            SCRIPT,
            *map(str, (first, second, other, *experts(folder))),
            "float32",
            "bfloat16",
        ],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return dict(json.loads(part.splitlines()[0]) for part in run.stdout.split("RESULT")[1:])


def was_staged(found: dict[str, Any]) -> None:
    """And what was left behind afterwards is told."""
    exchanged = found["staged"]
    assert (exchanged["source"], exchanged["different"], exchanged["verdict"]) == ("staged", [], "child")
    assert exchanged["parameters_checked"] == found["start"]["parameters"]
    assert exchanged["slices"] > exchanged["tensors"], "in many pieces"
    names = {"layer": "model.layers.1.mlp.gate_up_proj", "norm": "model.norm.weight"}
    names["head"] = found["head"]
    for lie, name in names.items():
        assert found[f"staged without {lie}"]["source"] == "staged"
        assert found[f"staged without {lie}"]["different"] == [name], lie


def was_loaded_instead(found: dict[str, Any]) -> None:
    """By vLLM: only packed matrices can be staged."""
    lies = {"": [], " without layer": [], " without head": [], " without norm": ["model.norm.weight"]}
    for name, different in lies.items():
        one = found[f"staged{name}"]
        assert (one["source"], one["different"]) == ("file", different), name
        assert one["why"].endswith("is not computed with as a packed matrix")
    assert found["staged"]["verdict"] == "child"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_vllm_holds_is_told_from_what_it_should(held: dict[str, Any], dtype: str) -> None:
    """A tied head that vLLM leaves behind, a layer and a norm that were not loaded, another checkpoint.

    Of bfloat16 vLLM packs nothing on a processor without instructions for it: there nothing packed can be
    left behind.
    """
    found = held[dtype]
    assert found["packed"] or dtype == "bfloat16"
    assert found["told"] == ["<ab>", 4096, 1], "engine.extra_args, as the served engine has them"
    assert not found["drafts"]
    for name in ("start", "update ours", "rollback ours"):
        assert (found[name]["different"], found[name]["verdict"]) == ([], "child"), name
        assert found[name]["parameters_checked"] == found[name]["parameters"]
        assert found[name]["file_mismatch"] == []
    for after in ("update", "rollback"):
        for lie, names in STALE.items():
            stale = names if found["packed"] or lie == "without_a_norm" else []
            assert sorted(found[f"{after} {lie}"]["different"]) == sorted(stale), (after, lie)
        for name in ("stale", "wrong"):
            assert len(found[f"{after} {name}"]["different"]) == found["start"]["tensors"]
    assert found["served block"] == CACHED_TOKENS - 1, "the served engine's: what asks it fills one"
    assert found["cache"] == [4, 0, 0], "whole blocks; a cache that is not emptied gives itself away"
    sources = {"away": "file", "back": "memory", "again": "memory"}
    for name, source in sources.items():
        one = found[f"memory {name}"]
        assert (one["source"], one["keeps"], one["different"], one["verdict"]) == (source, "", [], "child")
        assert one["kept"], "what was held before is kept"
    was_staged(found) if found["packed"] else was_loaded_instead(found)
    reasons = {"no room": "engine.resident_gib is 0", "unproven": "what was held was not proven"}
    for name, why in reasons.items():
        one = found[f"staged {name}"]
        assert (one["source"], one["different"], one["verdict"]) == ("file", [], "child"), name
        assert one["why"].startswith(why)
    assert found["memory none"]["keeps"] == "engine.resident_gib is 0"
    assert found["memory none"]["source"] == "file"
    assert found["memory damaged"]["different"] == ["model.norm.weight"]
    if dtype == "float32":
        assert found["update vllm_alone"]["verdict"] == "neither"


def test_experts_are_packed_again_when_weights_change(held: dict[str, Any]) -> None:
    """vLLM packs them for the CPU when it starts, and computed with unpacked ones after a reload."""
    assert held["experts"] == ["child", "child", "child"]


def test_a_killed_worker_is_told_from_a_wrong_answer(engine: InProcessEngine) -> None:
    import os
    import signal

    os.kill(engine.pid, signal.SIGKILL)
    with pytest.raises(DependencyDownError, match="ended with status -9"):
        engine.chat(requests())
