"""vLLM drafts with the head that `train.mtp_passes` makes, and answers what it would answer without."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stages import modelio
from stages.engine import process
from stages.engine.config import EngineConfig
from stages.sequences import GenerationInfo
from stages.train import attention
from stages.train.batch import Row
from stages.train.config import TrainConfig
from stages.train.forward import Budget
from stages.train.mtp_head import MtpHead, write_head
from stages.train.self_distillation import _states, distil
from tests.stages.train.naive import PLAIN

if find_spec("vllm") is None:  # not importorskip: each worker would load vLLM, which takes it ten seconds
    pytest.skip("the vLLM engine is not installed", allow_module_level=True)
pytestmark = pytest.mark.vllm

SEED = Path(modelio.__file__).parent / "seed" / "asset"
ENGINE = """
import json, os, sys
from stages.engine.loading import load
load("vllm.v1.engine.core")
from vllm import LLM, SamplingParams
given = json.loads(sys.argv[1])
llm = LLM(model=given["model"], dtype="float32", max_model_len=256, max_num_seqs=8, enforce_eager=True,
          distributed_executor_backend="uni", logprobs_mode="processed_logprobs", disable_log_stats=False,
          speculative_config=given["speculative"], hf_overrides=given["overrides"])
sampling = SamplingParams(temperature=0, max_tokens=24, logprobs=0, ignore_eos=True)
prompts = [{"prompt_token_ids": ids} for ids in given["prompts"]]
answers = [each.outputs[0] for each in llm.generate(prompts, sampling, use_tqdm=False)]
counts = {metric.name: metric.value for metric in llm.get_metrics() if hasattr(metric, "value")}
print("RESULT", json.dumps({
    "ids": [list(each.token_ids) for each in answers],
    "logprobs": [
        [entry[token].logprob for token, entry in zip(each.token_ids, each.logprobs)] for each in answers
    ],
    "drafted": counts["vllm:spec_decode_num_draft_tokens"],
    "accepted": counts["vllm:spec_decode_num_accepted_tokens"],
}), flush=True)
os._exit(0)  # taking vLLM apart takes seconds
"""


def _row(ids: list[int], start: int) -> Row:
    targets = np.arange(start, len(ids))
    zeros = np.zeros(len(targets), np.int64)
    info = GenerationInfo("g", start, len(ids), PLAIN)
    return Row(0, np.array(ids, np.int32), targets, zeros.astype(np.float32), zeros, zeros, (info,), 0)


def _drafts(agree: list[list[bool]]) -> tuple[int, int]:
    """(drafted, accepted) where `agree` says of each sampled token whether its draft would be it.

    The first token is sampled; then one is drafted, and where it is right the next one is sampled too.
    """
    drafted = accepted = 0
    for each in agree:
        place = 1
        while place < len(each):
            drafted += 1
            accepted += each[place]
            place += 1 + each[place]
    return drafted, accepted


class _Quiet:
    def write(self, event: str, **fields: Any) -> None: ...

    def start(self, what: str, total: int) -> None: ...

    def advance(self, count: int) -> None: ...


def test_drafts_are_accepted_and_answers_are_the_models_own(tmp_path: Path) -> None:
    checkpoint = Path(shutil.copytree(SEED, tmp_path / "checkpoint"))
    model: Any = modelio.load_model(checkpoint, attention="sdpa")
    torch.manual_seed(0)
    prompts = torch.randint(3, 1000, (8, 4))
    texts = model.generate(prompts.repeat(12, 1), max_new_tokens=28, do_sample=True)
    greedy = model.generate(prompts, max_new_tokens=24, do_sample=False, min_new_tokens=24, eos_token_id=None)
    with torch.no_grad():
        expected = model(greedy).logits.log_softmax(-1)
    model.set_attn_implementation(attention.register())
    head = MtpHead(model, seed=0)
    rows = [_row(text.tolist(), prompts.shape[1]) for text in texts]
    config = TrainConfig(mtp_passes=30, mtp_learning_rate=3e-3)
    quiet: Any = _Quiet()
    done = distil(
        model, head, rows, config, budget=Budget(512, 64), seed=0, continued=False, log=quiet, progress=quiet
    )
    assert done.acceptance_after is not None
    assert done.acceptance_before is not None
    assert done.acceptance_after > done.acceptance_before
    write_head(head, checkpoint, "float32")

    arguments = process.arguments(checkpoint, EngineConfig(draft_tokens=1), 1)
    given = {
        "model": str(checkpoint),
        "prompts": prompts.tolist(),
        "speculative": json.loads(arguments[arguments.index("--speculative-config") + 1]),
        "overrides": json.loads(arguments[arguments.index("--hf-overrides") + 1]),
    }
    environment = {**os.environ, **process.environment(EngineConfig())}
    ran = subprocess.run(
        [sys.executable, "-c", ENGINE, json.dumps(given)],
        env=environment, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    found = [line for line in ran.stdout.splitlines() if line.startswith("RESULT ")]
    assert found, ran.stderr[-2000:]
    told = json.loads(found[0].removeprefix("RESULT "))
    start = prompts.shape[1]
    assert told["ids"] == greedy[:, start:].tolist()
    for row, logprobs in enumerate(told["logprobs"]):
        own = expected[row, start - 1 : -1].gather(1, greedy[row, start:, None])[:, 0]
        assert logprobs == pytest.approx(own.tolist(), abs=1e-4)
    # the engine accepts where the head agrees with the model: it reads the head as it was trained
    student, teacher = _states(model, head, [_row(ids, start) for ids in greedy.tolist()])
    agree = model.lm_head(student).argmax(-1) == model.lm_head(teacher).argmax(-1)
    drafted, accepted = _drafts(agree.view(len(prompts), -1).tolist())
    assert accepted > 20
    assert told["accepted"] == pytest.approx(accepted, abs=len(prompts))  # an answer's end may be drafted
    assert told["drafted"] == pytest.approx(drafted, abs=2 * len(prompts))


def test_without_a_head_nothing_is_drafted() -> None:
    assert "--speculative-config" not in process.arguments(SEED, EngineConfig(draft_tokens=1), 1)
