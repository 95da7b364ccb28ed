"""A vLLM engine for batches, in a worker process of one's own: no port, no HTTP, ready in ten seconds.

For evaluation (5,900 tokens/s on one core where the server gives 4,200) and for tests. It renders the
same chat template with the same tools as the served engine and takes tool calls apart as the gateway
does, so that the harness sees the same messages. Not for serving users: nothing is captured here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

from cursorbench.harness.chat import ChatRequest, assistant_message
from cursorbench.scratch import scratch
from evals.suites.base import TextRequest
from stages.engine.config import EngineConfig
from stages.engine.diagnose import diagnose, tail
from stages.engine.identity import identity_of, require_same_model
from stages.engine.lifetime import PARENT_VARIABLE
from stages.engine.process import FOLDER, FOLDERS, environment, open_log, require_checkpoint
from stages.engine.verification import Verification, judge_probes, read_fingerprint, tensor_report
from stages.errors import DependencyDownError, IntegrityError, UsageError
from stages.model_forms import brief_ids, forms_of, with_brief_ids

_PLAIN = (
    "leave harness, behaviour and cursorbench out of eval.suites: snippets, perplexity: and lm_eval: ask none"
)


class InProcessEngine:
    """One engine in a worker process that dies with this one. Use as a context manager.

    Starting blocks until the model is loaded and what is held has been verified against the
    checkpoint's fingerprint. Start it from the main thread: it dies with the thread that started it.

    Args:
        checkpoint_dir: a checkpoint folder.
        config: the same settings as the served engine's; `max_num_seqs` may be raised for batches.
        sampling: parameters of requests that name none (vLLM's names); what a request names wins.
        log: where the worker's output goes, behind what it has. What died is looked into there, maybe days
            later: in no folder for temporary files, which a service's own /tmp goes with.

    Raises:
        InputMissingError (5), UsageError (2), DependencyDownError (13): it does not start; says why.
        IntegrityError (12): it holds something else than the checkpoint.
    """

    def __init__(
        self,
        checkpoint_dir: Path,
        config: EngineConfig,
        *,
        log: Path,
        sampling: Mapping[str, float] | None = None,
    ) -> None:
        require_checkpoint(checkpoint_dir)
        self.config = config
        self.sampling = dict(sampling or {})
        self._identity = identity_of(checkpoint_dir)
        self.checkpoint_dir = checkpoint_dir
        self.log = log
        self._starting = True
        with contextlib.ExitStack() as undo:  # what engines of killed commands left goes here, too
            self._temporary = undo.enter_context(scratch(FOLDER, FOLDERS))
            self._connection, self._process = self._spawn()
            self._undo = undo.pop_all()
        try:
            self._receive(config.startup_timeout_s)
            self._starting = False
            self.verification = self._verify(checkpoint_dir)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> InProcessEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def context(self) -> int:
        """Most tokens of a sequence, prompt and output together."""
        return self.config.max_model_len

    def chat(self, batch: Sequence[ChatRequest], *, seed: int | None = None) -> list[dict[str, Any]]:
        """Answer all requests, as one batch, in their order.

        Args:
            seed: start the random numbers afresh; the same batch after the same seed gives the same
                answers. Without it they go on from the last batch.

        Returns:
            OpenAI assistant messages (`role`, `content`, `reasoning_content`, `tool_calls`) and further keys:
            `finish_reason`, `text` (as the model wrote it), `prompt_tokens`, `output_tokens`,
            `prompt_ids`, `token_ids`, and `logprobs` (one per output token, nats, of the distribution
            sampled from). A request the engine refuses (the prompt does not fit) has `finish_reason`
            "error" and the reason in `error`.

        Raises UsageError (2) where the model has no chat template: no conversation can be put to it.
        """
        forms = forms_of(self.checkpoint_dir)
        named = with_brief_ids if brief_ids(forms.blocks) else list  # the harness names calls in its own way
        requests = [
            {
                "messages": named(request.messages),
                "tools": list(request.tools),
                "max_tokens": request.max_tokens,
                "sampling": sampling_of(request, self.sampling, shown=forms.hidden),
            }
            for request in batch
        ]
        answers = self._call("chat", requests, seed, timeout=None)
        if any(answer.get("untemplated") for answer in answers):
            raise UsageError("the model has no chat template: it cannot be asked in messages", hint=_PLAIN)
        pairs = zip(batch, answers, strict=True)
        return [_message(request, answer, self.checkpoint_dir) for request, answer in pairs]

    def load_weights(self, checkpoint_dir: Path) -> Verification:
        """Go on with another checkpoint's weights (same architecture and tokenizer); verified.

        Raises IntegrityError (12); after that the engine serves nothing trustworthy: load again or close.
        """
        require_same_model(self._identity, checkpoint_dir)
        self._call("load", str(checkpoint_dir), timeout=self.config.update_timeout_s)
        self.verification = self._verify(checkpoint_dir)
        self.checkpoint_dir = checkpoint_dir
        return self.verification

    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Logprob of each token after the first given those before it, temperature 1, nats."""
        rows = self._call("score", [list(ids) for ids in sequences], timeout=None)
        return [[float(value) for value in row] for row in rows]

    def ranked(self, sequences: Sequence[Sequence[int]]) -> list[list[tuple[float, int]]]:
        """As `score`, each logprob with the rank of the token among all, from 1."""
        rows = self._call("ranked", [list(ids) for ids in sequences], timeout=None)
        return [[(float(value), int(rank)) for value, rank in row] for row in rows]

    def continued(self, requests: Sequence[TextRequest]) -> list[str]:
        """Plain continuations of token ids, without chat template or the served sampling."""
        asked = [
            (
                list(one.prompt),
                {
                    **one.sampling,
                    "max_tokens": one.max_tokens,
                    "stop": list(one.stop),
                    "temperature": one.temperature,
                },
            )
            for one in requests
        ]
        return [str(text) for text in self._call("continued", asked, timeout=None)]

    def close(self) -> None:
        """End the worker and remove what it left. Safe to call twice."""
        with contextlib.suppress(OSError):
            self._connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2)
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._undo.close()

    def _verify(self, checkpoint_dir: Path) -> Verification:
        expected = read_fingerprint(checkpoint_dir)
        sums = {name: entry.sha256 for name, entry in expected.tensors.items()}
        answer = self._call("verify", str(checkpoint_dir), sums, timeout=self.config.update_timeout_s)
        probes = judge_probes(expected.logprobs, self.score(expected.probes), self.config.dtype)
        return Verification(str(checkpoint_dir), tensor_report(answer), probes).require()

    def _spawn(self) -> tuple[Connection, subprocess.Popen[bytes]]:
        ours, theirs = socket.socketpair()
        with theirs, open_log(self.log) as output:
            self._log_start = output.tell()
            process = subprocess.Popen(
                [sys.executable, "-m", "stages.engine.inprocess_worker", str(theirs.fileno())],
                env={
                    **environment(self.config),
                    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
                    "OMP_NUM_THREADS": "1",
                    "TMPDIR": str(self._temporary),
                    PARENT_VARIABLE: str(os.getpid()),
                },
                cwd=self._temporary,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        connection = Connection(ours.detach())
        connection.send((str(self.checkpoint_dir), self.config.model_dump(mode="json")))
        return connection, process

    def _call(self, method: str, *arguments: Any, timeout: float | None) -> Any:
        try:
            self._connection.send((method, arguments))
        except OSError as error:
            raise self._dead() from error
        return self._receive(timeout)

    def _receive(self, timeout: float | None) -> Any:
        try:
            if not self._connection.poll(timeout):
                raise DependencyDownError(
                    f"the engine's worker did not answer within {timeout:.0f} s", hint=f"see {self.log}"
                )
            kind, value = self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._dead() from error
        if kind == "error":
            raise IntegrityError(f"the engine refused: {value}", hint=f"see {self.log}")
        return value

    def _dead(self) -> Exception:
        deadline = time.monotonic() + 5
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        said = tail(self.log, self._log_start)
        return diagnose(said, self._process.returncode, self.log, starting=self._starting)


def sampling_of(
    request: ChatRequest, defaults: Mapping[str, float], *, shown: bool = False
) -> dict[str, float]:
    """What one request is sampled with: vLLM's parameters by name. `shown`: its text with special tokens."""
    asked = {} if request.temperature is None else {"temperature": request.temperature}
    return {**defaults, **asked, **({"skip_special_tokens": False} if shown else {})}


def _message(request: ChatRequest, answer: dict[str, Any], checkpoint: Path) -> dict[str, Any]:
    if "error" in answer:
        return {"role": "assistant", "content": None, **answer}
    turn = sum(1 for message in request.messages if message.get("role") == "assistant")
    forms = forms_of(checkpoint)
    begun = forms.begins_within(answer["prompt_ids"])
    return {**assistant_message(answer["text"], turn, request.tools, forms.blocks, begun=begun), **answer}
