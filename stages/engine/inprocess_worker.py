"""`python -m stages.engine.inprocess_worker FD`: the other end of `InProcessEngine`. Imports vLLM.

Reads (method, arguments) from the socket FD until it closes, answers ("ok", value) or
("error", text). Not for importing.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from stages.engine.config import EngineConfig
from stages.engine.discreet import hush
from stages.engine.lifetime import PARENT_VARIABLE, die_with_parent
from stages.engine.loading import load
from stages.engine.options import DRAFTING, SPREADING
from stages.engine.process import arguments

# Tokens of a block of the KV cache on CPUs: the fewest their attention takes. Only whole blocks are found
# again by the prefix cache; of vLLM's 128 a conversation of short turns has none.
CPU_BLOCK = 32


def as_served(model: Path, config: EngineConfig) -> Namespace:
    """The served engine's command line, `engine.extra_args` and all, as vLLM reads it.

    But for what no answer depends on: drafting, room for adapters, and over how many processes it is spread.
    """
    from vllm import EngineArgs
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    plain = config.model_copy(update={"draft_tokens": 0, "lora_rank": 0})
    told: Namespace = make_arg_parser(FlexibleArgumentParser()).parse_args(arguments(model, plain, port=0))
    usual = EngineArgs(model=str(model))
    for name in (*SPREADING, *DRAFTING):
        field = name.lstrip("-").replace("-", "_")
        if hasattr(usual, field):
            setattr(told, field, getattr(usual, field))
    told.distributed_executor_backend = "uni"
    return told


class Worker:
    """vLLM's `LLM` behind six methods."""

    def __init__(self, model: str, config: dict[str, Any]) -> None:
        load("vllm.v1.engine.core")  # most of what it needs
        from vllm import LLM, EngineArgs
        from vllm.platforms import current_platform
        from vllm.renderers.chat_utils import load_chat_template

        told = as_served(Path(model), EngineConfig(**config))
        engine = EngineArgs.from_cli_args(told)
        if current_platform.is_cpu() and engine.block_size is None:
            engine.block_size = CPU_BLOCK
        self.llm = LLM.from_engine_args(engine)
        self._rendering = {
            "chat_template": load_chat_template(told.chat_template),
            "chat_template_content_format": told.chat_template_content_format,
            "chat_template_kwargs": told.default_chat_template_kwargs,
        }

    def chat(self, requests: list[dict[str, Any]], seed: int | None) -> list[dict[str, Any]]:
        """Queue every request by itself, so that one that does not fit spoils no other, then run all."""
        from vllm import RequestOutput, SamplingParams
        from vllm.exceptions import VLLMClientError
        from vllm.renderers.chat_utils import ChatTemplateResolutionError

        if seed is not None:
            self.llm.collective_rpc("rtrl_seed", args=(seed,))
            self.llm.reset_prefix_cache()
        queued: list[int] = []  # vLLM returns the outputs in the order of queueing
        answers: list[dict[str, Any]] = [{} for _ in requests]
        for index, request in enumerate(requests):
            sampling = SamplingParams(**request["sampling"], max_tokens=request["max_tokens"], logprobs=0)
            try:
                self.llm.enqueue_chat(
                    [request["messages"]],
                    sampling,
                    use_tqdm=False,
                    tools=request["tools"] or None,
                    **self._rendering,
                )
            except (VLLMClientError, ValueError) as error:
                untemplated = isinstance(error, ChatTemplateResolutionError)
                answers[index] = {"finish_reason": "error", "error": str(error), "untemplated": untemplated}
                continue
            queued.append(index)
        outputs = self.llm.wait_for_completion(RequestOutput, use_tqdm=False)
        for index, output in zip(queued, outputs, strict=True):
            answers[index] = _answer(output)
        return answers

    def score(self, sequences: list[list[int]]) -> list[list[float]]:
        """Logprobs of the sequences' own tokens after the first."""
        return [[logprob for logprob, _ in row] for row in self.ranked(sequences)]

    def ranked(self, sequences: list[list[int]]) -> list[list[tuple[float, int]]]:
        """Logprob and rank of the sequences' own tokens after the first."""
        from vllm import SamplingParams

        sampling = SamplingParams(temperature=1.0, max_tokens=1, prompt_logprobs=0)
        prompts = [{"prompt_token_ids": ids} for ids in sequences]
        outputs = self.llm.generate(prompts, sampling, use_tqdm=False)
        return [
            [
                (entry[token].logprob, entry[token].rank)
                for token, entry in zip(ids[1:], output.prompt_logprobs[1:], strict=True)
            ]
            for ids, output in zip(sequences, outputs, strict=True)
        ]

    def continued(self, requests: list[tuple[list[int], dict[str, Any]]]) -> list[str]:
        """Texts that go on after the prompts."""
        from vllm import SamplingParams

        prompts = [{"prompt_token_ids": ids} for ids, _ in requests]
        sampling = [SamplingParams(**settings) for _, settings in requests]
        return [output.outputs[0].text for output in self.llm.generate(prompts, sampling, use_tqdm=False)]

    def load(self, path: str) -> None:
        """Replace the weights and forget keys and values of the old ones."""
        self.llm.collective_rpc("rtrl_load", kwargs={"path": path})
        if not self.llm.reset_prefix_cache():
            raise ValueError("the prefix cache could not be reset")

    def verify(self, path: str, expected: dict[str, str]) -> dict[str, Any]:
        """The worker's comparison of held weights with the file."""
        result: dict[str, Any] = self.llm.collective_rpc(
            "rtrl_verify", kwargs={"path": path, "expected": expected}
        )[0]
        return result


def _answer(output: Any) -> dict[str, Any]:
    best = output.outputs[0]
    return {
        "text": best.text,
        "finish_reason": best.finish_reason,
        "prompt_tokens": len(output.prompt_token_ids),
        "output_tokens": len(best.token_ids),
        "prompt_ids": list(output.prompt_token_ids),
        "token_ids": list(best.token_ids),
        "logprobs": [
            entry[token].logprob for token, entry in zip(best.token_ids, best.logprobs, strict=True)
        ],
    }


class StubWorker:
    """The deterministic stub in the place of vLLM; see `stages/gateway/stub_engine.py`."""

    def __init__(self, model: str) -> None:
        from stages.gateway.stub_weights import StubWeights

        self.weights = StubWeights(Path(model))

    def chat(self, requests: list[dict[str, Any]], seed: int | None) -> list[dict[str, Any]]:
        """Fixed answers, steered by words in the last user message."""
        from stages.gateway.stub_script import EOS, Script, logprob, render

        answers = []
        for request in requests:
            users = [m for m in request["messages"] if m.get("role") == "user"]
            words = str(users[-1].get("content")) if users else ""
            if words == "stub:untemplated":
                answers.append({"finish_reason": "error", "error": "no template", "untemplated": True})
                continue
            script = Script(words, request["max_tokens"])
            prompt = list(render(request["messages"], request["tools"]))
            answers.append(
                {
                    "text": bytes(i for i in script.ids if i != EOS).decode(errors="replace"),
                    "finish_reason": script.finish,
                    "prompt_tokens": len(prompt),
                    "output_tokens": len(script.ids),
                    "prompt_ids": prompt,
                    "token_ids": script.ids,
                    "logprobs": [logprob(i, t, self.weights.salt) for i, t in enumerate(script.ids)],
                }
            )
        return answers

    def score(self, sequences: list[list[int]]) -> list[list[float]]:
        """The held folder's probe logprobs, and a constant for everything else."""
        choices = self.weights.probe({"prompt": sequences})["choices"]
        return [
            [
                entry[str(t)]["logprob"]
                for t, entry in zip(ids[1:], choice["prompt_logprobs"][1:], strict=True)
            ]
            for ids, choice in zip(sequences, choices, strict=True)
        ]

    def ranked(self, sequences: list[list[int]]) -> list[list[tuple[float, int]]]:
        """The scores; every token is said to be the likeliest."""
        return [[(logprob, 1) for logprob in row] for row in self.score(sequences)]

    def continued(self, requests: list[tuple[list[int], dict[str, Any]]]) -> list[str]:
        """Nothing is written: the stub steers by chat messages alone."""
        return ["" for _ in requests]

    def load(self, path: str) -> None:
        """Hold another folder."""
        self.weights.call({"method": "rtrl_load", "kwargs": {"path": path}})

    def verify(self, path: str, expected: dict[str, str]) -> dict[str, Any]:
        """Whether that folder is held."""
        body = {"method": "rtrl_verify", "kwargs": {"path": path, "expected": expected}}
        result: dict[str, Any] = self.weights.call(body)["results"][0]
        return result


def _serve(connection: Connection, worker: Worker | StubWorker, errors: tuple[type[Exception], ...]) -> None:
    """Answer calls until the other end is gone."""
    connection.send(("ok", os.getpid()))
    while True:
        try:
            method, arguments = connection.recv()
        except EOFError:
            # vLLM's own shutdown takes seconds and has nothing to save here.
            os._exit(0)
        try:
            value = getattr(worker, method)(*arguments)
        except errors as error:
            connection.send(("error", f"{type(error).__name__}: {error}"))
        else:
            connection.send(("ok", value))


def main() -> None:
    parent = os.environ.pop(PARENT_VARIABLE, None)
    die_with_parent(int(parent) if parent else None)
    hush()
    connection = Connection(int(sys.argv[1]))
    model, config = connection.recv()
    errors: tuple[type[Exception], ...] = (ValueError, RuntimeError, OSError)
    if config["program"] == "stub":
        _serve(connection, StubWorker(model), errors)
        return
    worker = Worker(model, config)
    from vllm.exceptions import VLLMError

    _serve(connection, worker, (VLLMError, *errors))


if __name__ == "__main__":
    main()
