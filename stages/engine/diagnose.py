"""From an engine's log or answer to one sentence and what to do about it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from stages.errors import DependencyDownError, IntegrityError, RtrlError, UsageError

TAIL_BYTES = 200_000
LEAST_FREE = 64 << 10  # bytes: with less, what an engine said on its end may not have found room in its log

CORE_DIED = "EngineCore encountered an issue"  # vLLM's whole answer then; the reason is in the log alone

# (what the log says, the error it is, what to do). The first that matches wins.
KNOWN: tuple[tuple[str, type[RtrlError], str], ...] = (
    (r"No module named '?vllm", DependencyDownError, "vLLM is not installed: run scripts/setup"),
    (
        r"torchvision::nms does not exist",
        DependencyDownError,
        "a CUDA build of torchvision broke the imports: pip uninstall torchvision torchaudio torchcodec",
    ),
    (r"No space left on device", DependencyDownError, "free space (`rtrl gc`) and run again"),
    (r"Address already in use", DependencyDownError, "its port was taken: try again, or set engine.port"),
    (r"unrecognized arguments|invalid choice", UsageError, "look at engine.extra_args"),
    (
        r"max_model_len.{0,80}(is greater|is larger)|derived max_model_len",
        UsageError,
        "lower engine.max_model_len to what the model was made for",
    ),
    (
        r"No available memory for the cache blocks|CPU memory utilization|Cannot allocate memory|MemoryError"
        r"|KV cache is needed|out of memory",
        DependencyDownError,
        "free memory, or lower engine.kv_cache_gib, engine.max_model_len or engine.max_num_seqs",
    ),
    (
        r"SafetensorError|Error while deserializing header|incomplete metadata",
        IntegrityError,
        "the weight file is damaged: run `rtrl verify --full`",
    ),
    (
        r"Model architectures .* (are|is) not supported|does not recognize this architecture",
        UsageError,
        "vLLM does not know this architecture; `rtrl init --model` takes causal language models it knows",
    ),
    (
        r"Unsupported CPU attention configuration",
        UsageError,
        "vLLM has no attention on CPUs for this model (heads of 32, 64, 80, 96, 112, 128 and more); serve it "
        "on a GPU",
    ),
    (
        r"size mismatch|shape.{0,40}mismatch|There is no module or parameter named",
        IntegrityError,
        "config.json does not fit the weights",
    ),
)


class CoreDiedError(DependencyDownError):
    """The engine answered that what computes in it has ended."""


class Started(Protocol):
    """An engine's process: where its log is, and the byte at which that of this start begins."""

    log: Path
    log_start: int


EXCEPTION = re.compile(
    r"^(?:\[rank\d+\]: *)?(?:\([^)]*\) )?(?:\w+ [\d: -]+\[[^\]]*\] )?"
    r"((?:\w+\.)*\w*(?:Error|Exception)): ?(.+)$"
)


def tail(log: Path, start: int = 0) -> str:
    """The end of the log, at most TAIL_BYTES and nothing before byte `start`; "" without a log."""
    try:
        with log.open("rb") as handle:
            handle.seek(0, 2)
            handle.seek(max(start, handle.tell() - TAIL_BYTES))
            return handle.read().decode("utf-8", "replace")
    except OSError:
        return ""


@contextmanager
def explained(engine: Callable[[], Started]) -> Iterator[None]:
    """Where the engine's core dies of what it is asked before users get to it, raise what its log says."""
    try:
        yield
    except CoreDiedError as error:
        said = tail(engine().log, engine().log_start)
        raise diagnose(said, 1, engine().log, ended="died of its first requests") from error


def diagnose(
    text: str, status: int | None, log: Path, *, starting: bool = True, ended: str = ""
) -> RtrlError:
    """Why the engine is not there, from its log's text and its exit status (None: still running).

    Looks at the log's disk where the log is silent: on a full one nothing could be written to it.
    `ended`: how, where it is known better than by the status.
    """
    full = _full(log)
    silent = "the disk of its log is full" if full else "it gave no reason"
    reason = _last_exception(text) or ("it was killed (out of memory?)" if status == -9 else silent)
    by_status = "did not answer in time" if status is None else f"ended with status {status}"
    if starting:
        by_status = "did not become healthy in time" if status is None else f"{by_status} while starting"
    message = f"the engine {ended or by_status}: {reason}"
    for pattern, kind, hint in KNOWN:
        if re.search(pattern, text, re.IGNORECASE):
            return kind(message, hint=f"{hint}; log: {log}")
    if status is None:
        return DependencyDownError(
            message, hint=f"on a busy machine raise engine.startup_timeout_s; log: {log}"
        )
    if full:
        return DependencyDownError(message, hint=f"free space (`rtrl gc`) and run again; log: {log}")
    return DependencyDownError(message, hint=f"see {log}")


def _full(log: Path) -> bool:
    try:
        return shutil.disk_usage(log.parent).free < LEAST_FREE
    except OSError:
        return False


def _last_exception(text: str) -> str:
    """The root cause as far as the log tells: the first exception line of the last traceback block."""
    found = [match for line in text.splitlines() if (match := EXCEPTION.match(line.strip()))]
    if detail := re.search(r"validation error.*\n.*?Value error, (.+)", text):
        return f"ValueError: {detail.group(1)}"[:300]
    for match in found:
        if "Engine core initialization failed" not in match.group(2):
            return f"{match.group(1)}: {match.group(2)}"[:300]
    return ""


def refused(path: str, status: int, text: str) -> RtrlError:
    """The engine said no: IntegrityError with its own words, or CoreDiedError."""
    try:
        message = json.loads(text)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = text.strip()[:300] or "no reason given"
    if CORE_DIED in message:
        return CoreDiedError(f"the engine's core died at {path}", hint="its log, in store/logs, says of what")
    return IntegrityError(f"the engine refused {path} ({status}): {message}", hint="see the engine's log")
