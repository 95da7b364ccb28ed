"""One vLLM API server as a child process: start, wait for health, stop, leave nothing behind.

Not here: what it serves later on (`update.py`) and starting it again when it died (`stages/serve.py`).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import httpx

import stages
from stages import locks
from stages.engine import options
from stages.engine.config import EngineConfig
from stages.engine.diagnose import diagnose, tail
from stages.engine.free_port import HOST, free_port
from stages.engine.guard import KEY_VARIABLE
from stages.engine.lifetime import PARENT_VARIABLE
from stages.errors import InputMissingError
from stages.trust import nobody

LOG_BYTES = 8 << 20
FOLDER, FOLDERS = "rtrl-engine-", Path("/tmp")  # vLLM puts Unix sockets there, whose paths must be short
# Phases of the start, recognised in the log, for people who wait.
PHASES = (
    ("Waiting for application startup", "starting the HTTP server"),
    ("Loading weights took", "weights loaded"),
    ("Starting to load model", "loading weights"),
    ("Initializing a V1 LLM engine", "starting the engine core"),
)


def environment(config: EngineConfig) -> dict[str, str]:
    """The variables vLLM is started with: our defaults, the user's own, and what has to be so."""
    root = str(Path(stages.__file__).resolve().parent.parent)
    inherited = os.environ.get("PYTHONPATH", "")
    compiling = {"TORCHDYNAMO_DISABLE": "1"} if config.enforce_eager else {}
    return {
        "OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) - 1)),  # one core for HTTP
        **({"VLLM_ENABLE_V1_MULTIPROCESSING": "0"} if options.in_one_process(config) else {}),
        **os.environ,
        **compiling,
        **(options.RUNTIME if config.lora_rank else {}),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "VLLM_CPU_KVCACHE_SPACE": str(config.kv_cache_gib),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_SERVER_DEV_MODE": "1",
        "PYTHONPATH": f"{root}{os.pathsep}{inherited}" if inherited else root,
        "PYTHONUNBUFFERED": "1",
    }


def arguments(checkpoint_dir: Path, config: EngineConfig, port: int) -> list[str]:
    """vLLM's command line. `--generation-config vllm`: no sampling defaults hidden in the model folder.

    One backend holds grammars: of several, the one that the first such request needs holds all that follow,
    and those that force calls are XGrammar's.
    """
    return [
        *("--model", str(checkpoint_dir)),
        *("--served-model-name", config.served_name),
        *("--host", HOST),
        *("--port", str(port)),
        *("--dtype", config.dtype),
        *("--max-model-len", str(config.max_model_len)),
        *("--max-num-seqs", str(config.max_num_seqs)),
        *("--gpu-memory-utilization", str(config.gpu_memory_utilization)),
        *("--seed", str(config.seed)),
        *(("--enforce-eager",) if config.enforce_eager else ()),
        *(("--distributed-executor-backend", "uni") if options.in_one_process(config) else ()),
        "--disable-uvicorn-access-log",
        "--disable-log-stats",
        "--no-log-error-stack",  # the stack of a refused request holds its content
        *("--logprobs-mode", "processed_logprobs"),
        "--enable-prompt-tokens-details",  # whether a swap has emptied the prefix cache (update.py)
        *("--generation-config", "vllm"),
        *("--structured-outputs-config.backend", "xgrammar"),
        *("--worker-extension-cls", "stages.engine.worker.WorkerExtension"),
        *options.drafting(checkpoint_dir, config),
        *(options.adapters(checkpoint_dir, config) if options.in_one_process(config) else ()),
        *("--middleware", "stages.engine.guard.KeyGuard"),
        *config.extra_args,
    ]


def open_log(log: Path) -> BinaryIO:
    """The log, to append to, for its owner only. A long one is put aside, so that no disk fills up."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.replace(log.with_name(f"{log.name}.1"))
    return os.fdopen(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600), "ab")


def require_checkpoint(checkpoint_dir: Path) -> None:
    """Raise InputMissingError unless the folder looks like a Hugging Face model."""
    for name in ("config.json", "tokenizer.json"):
        if not (checkpoint_dir / name).is_file():
            raise InputMissingError(
                f"{checkpoint_dir} is no model folder: {name} is missing",
                hint="name a committed checkpoint, or run `rtrl verify --full`",
            )
    if not any(checkpoint_dir.glob("*.safetensors")):
        raise InputMissingError(
            f"{checkpoint_dir} holds no safetensors weights", hint="run `rtrl verify --full`"
        )


class EngineProcess:
    """A running vLLM server. Made by `start`; always `stop` it.

    Attributes:
        checkpoint_dir: what it was started on.
        base_url, key: where it listens (loopback) and the bearer token every route wants.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        checkpoint_dir: Path,
        config: EngineConfig,
        port: int,
        key: str,
    ) -> None:
        self.process = process
        self.checkpoint_dir = checkpoint_dir
        self.config = config
        self.base_url = f"http://{HOST}:{port}"
        self.port = port
        self.key = key
        self.log = Path()
        self.log_start = 0
        self.temporary = Path()
        self._occupied: locks.FileLock | None = None  # the temporary folder, as long as it is there
        self._killing = threading.Lock()  # whoever waits for its start kills it too, once it is killed
        self._swept = False

    @classmethod
    def start(
        cls, checkpoint_dir: Path, config: EngineConfig, log: Path, *, port: int = 0, key: str = ""
    ) -> EngineProcess:
        """Start the server and return at once. `log` is appended to.

        Call it from a thread that lives as long as the process: the engine dies with that thread.
        """
        require_checkpoint(checkpoint_dir)
        options.require_drafts_hold(config)
        port, key = port or config.port or free_port(), key or secrets.token_urlsafe(24)
        temporary = Path(tempfile.mkdtemp(prefix=FOLDER, dir=FOLDERS))
        launch = [sys.executable, "-m", "stages.engine.launch", config.program]
        command = [*launch, *arguments(checkpoint_dir, config, port)]
        with contextlib.ExitStack() as undo, open_log(log) as output:
            occupied = locks.occupy(temporary)
            undo.callback(occupied.release)
            undo.callback(shutil.rmtree, temporary, ignore_errors=True)
            log_start = output.tell()
            process = subprocess.Popen(
                command,
                env={
                    **environment(config),
                    KEY_VARIABLE: key,
                    PARENT_VARIABLE: str(os.getpid()),
                    "TMPDIR": str(temporary),
                },
                cwd=temporary,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            undo.pop_all()
        engine = cls(process, checkpoint_dir, config, port, key)
        engine.log, engine.log_start = log, log_start
        engine.temporary, engine._occupied = temporary, occupied
        return engine

    @property
    def pid(self) -> int:
        return self.process.pid

    def exit_status(self) -> int | None:
        """None while it runs."""
        return self.process.poll()

    def answers(self) -> bool:
        """Whether /health says 200 now."""
        headers = {"Authorization": f"Bearer {self.key}"}
        try:
            answer = httpx.get(f"{self.base_url}/health", headers=headers, timeout=5, verify=nobody())
        except httpx.HTTPError:
            return False
        return answer.status_code == 200

    def wait_healthy(
        self, progress: Callable[[str], None] = lambda _: None, cancelled: Callable[[], bool] = lambda: False
    ) -> bool:
        """Block until the engine answers. False when `cancelled` says so first.

        Raises RtrlError with a diagnosis from the log when the engine ends or takes too long.
        """
        begun = time.monotonic()
        shown = ""
        while not cancelled():
            if self.answers():
                return True
            status = self.exit_status()
            waited = time.monotonic() - begun
            if status is not None or waited > self.config.startup_timeout_s:
                raise diagnose(tail(self.log, self.log_start), status, self.log)
            phase = self._phase()
            if phase != shown:
                progress(f"engine: {phase} ({waited:.0f} s)")
                shown = phase
            time.sleep(0.25)
        return False

    def _phase(self) -> str:
        text = tail(self.log, self.log_start)
        return next((words for mark, words in PHASES if mark in text), "importing vLLM")

    def stop(self) -> int:
        """SIGTERM, patience, SIGKILL for the whole process group; then its exit status."""
        if self.exit_status() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(self.config.stop_timeout_s)
        return self.kill()

    def kill(self) -> int:
        """SIGKILL for the whole process group and its temporary folder gone; then its exit status.

        From any thread, from several at once too.
        """
        with self._killing:
            if not self._swept:  # once: later the number may be another process's
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
                self._swept = True
            status = self.process.wait()
            shutil.rmtree(self.temporary, ignore_errors=True)
            if self._occupied:
                self._occupied.release()
            return status
