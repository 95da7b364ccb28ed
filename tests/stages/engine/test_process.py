"""Starting, diagnosing and stopping with a process that is not vLLM; and that children die with parents."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest
from pydantic import ValidationError

from stages import locks
from stages.engine import options, process
from stages.engine.config import EngineConfig
from stages.engine.free_port import HOST, first_ephemeral_port, free_port
from stages.engine.process import EngineProcess, arguments, environment
from stages.errors import InputMissingError, RtrlError, UsageError

ROOT = Path(process.__file__).parents[2]


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_gone(pid: int, seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not gone(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return gone(pid)


def test_the_command_line_has_the_measured_flags() -> None:
    config = EngineConfig(extra_args=("--api-server-count", "1"))
    line = " ".join(arguments(Path("/m"), config, 81))
    for part in (
        "--model /m",
        "--dtype float32",
        "--host 127.0.0.1",
        "--port 81",
        "--logprobs-mode processed_logprobs",
        "--generation-config vllm",
        "--structured-outputs-config.backend xgrammar",
        "--enforce-eager",
        "--api-server-count 1",
    ):
        assert part in line
    variables = environment(EngineConfig(kv_cache_gib=3))
    assert variables["VLLM_CPU_KVCACHE_SPACE"] == "3"
    assert variables["TORCHDYNAMO_DISABLE"] == "1"
    assert "RTRL_ENGINE_KEY" not in line


@pytest.mark.parametrize(
    ("argument", "refused"),
    [
        ("--logprobs-mode=raw_logprobs", True),  # of what was not sampled from, without a word
        ("--logprobs_mode", True),
        ("--logprobs", True),  # vLLM takes a beginning for the name
        ("--logits-processors", True),  # what is sampled would be in no record
        ("--reasoning-parser", True),
        ("--enable-log-requests", True),
        ("--dtype", True),
        ("--model-impl", False),
        ("--max-num-batched-tokens", False),
        ("--no-log-error-stack", False),
        ("--structured-outputs-config.disable_fallback", False),
        ("-tp", False),
        ("--", False),
        ("raw_logprobs", False),
    ],
)
def test_what_would_undo_the_measured_flags_is_refused(argument: str, refused: bool) -> None:
    with pytest.raises(ValidationError, match="extra_args") if refused else nullcontext():
        EngineConfig(extra_args=(argument,))


def test_the_model_runs_in_one_process_unless_it_is_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("VLLM_ENABLE_V1_MULTIPROCESSING", raising=False)
    alone = EngineConfig()
    assert "--distributed-executor-backend uni" in " ".join(arguments(Path("/m"), alone, 81))
    assert environment(alone)["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert int(environment(alone)["OMP_NUM_THREADS"]) == max(1, len(os.sched_getaffinity(0)) - 1)
    for spread in (
        ("--tensor-parallel-size", "2"),
        ("-tp=2",),
        ("--distributed-executor-backend=mp",),
        ("--tensor_parallel_size", "2"),
        ("--pipeline_parallel_size=2",),
        ("-dpl", "2"),
        ("--data-parallel-size-local", "2"),
        ("--decode-context-parallel-size", "2"),
        ("-dcp", "2"),
        ("--prefill_context_parallel_size", "2"),
        ("-pcp", "2"),
        ("--nnodes", "2"),
        ("-n", "2"),
    ):
        config = EngineConfig(extra_args=spread)
        assert "uni" not in arguments(Path("/m"), config, 81)
        assert "VLLM_ENABLE_V1_MULTIPROCESSING" not in environment(config)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert environment(alone)["OMP_NUM_THREADS"] == "7"
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    assert environment(alone)["VLLM_ENABLE_V1_MULTIPROCESSING"] == "1"  # the user's own wins


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_folder_that_is_no_model_is_refused_before_anything_starts(tmp_path: Path, missing: str) -> None:
    for name in {"config.json", "tokenizer.json", "model.safetensors"} - {missing}:
        (tmp_path / name).touch()
    with pytest.raises(InputMissingError) as caught:
        EngineProcess.start(tmp_path, EngineConfig(), tmp_path / "log")
    assert caught.value.hint
    assert not (tmp_path / "log").exists()


def start_script(tmp_path: Path, script: str, config: EngineConfig) -> EngineProcess:
    log = tmp_path / "log"
    with log.open("ab") as output:
        child = subprocess.Popen(
            [sys.executable, "-c", script], stdout=output, stderr=output, start_new_session=True
        )
    engine = EngineProcess(child, tmp_path, config, free_port(), "key")
    engine.log = log
    engine.temporary = tmp_path / "temporary"
    return engine


def test_an_engine_that_ends_while_starting_is_diagnosed(tmp_path: Path) -> None:
    engine = start_script(tmp_path, "raise MemoryError('KV cache is needed')", EngineConfig())
    with pytest.raises(RtrlError, match="MemoryError: KV cache is needed") as caught:
        engine.wait_healthy()
    assert caught.value.code == 13
    assert "kv_cache_gib" in caught.value.hint
    engine.kill()


def test_an_engine_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    engine = start_script(tmp_path, "import time; time.sleep(60)", EngineConfig(startup_timeout_s=0.5))
    with pytest.raises(RtrlError, match="in time"):
        engine.wait_healthy()
    assert engine.kill() == -signal.SIGKILL


def test_two_threads_kill_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waited for the start saw it die and killed it as well: its lock's descriptor was closed twice, and
    `rtrl serve` that was told to end left with 13; the number may have been another file's by then."""
    engine = start_script(tmp_path, "import time; time.sleep(60)", EngineConfig())
    engine.temporary.mkdir()
    engine._occupied = locks.occupy(engine.temporary)
    ours, close = engine._occupied._fd, os.close
    closed: list[int] = []
    threads: list[Thread] = []

    def slow_close(descriptor: int) -> None:
        if descriptor == ours:
            closed.append(descriptor)
        if descriptor == ours and len(closed) == 1:  # in the midst of the first one's end
            threads.append(Thread(target=engine.kill))
            threads[0].start()
            threads[0].join(0.3)
        close(descriptor)

    monkeypatch.setattr(locks.os, "close", slow_close)
    assert engine.kill() == -signal.SIGKILL
    threads[0].join()
    assert closed.count(ours) == 1


def test_stop_kills_what_does_not_listen_and_its_children(tmp_path: Path) -> None:
    script = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    engine = start_script(tmp_path, script, EngineConfig(stop_timeout_s=0.3))
    while not (text := engine.log.read_text()).strip():
        time.sleep(0.02)
    assert engine.stop() == -signal.SIGKILL
    assert wait_gone(int(text))


def test_sigkill_of_the_parent_ends_the_child() -> None:
    child = (
        "import os, time; from stages.engine.lifetime import die_with_parent; "
        "die_with_parent(int(os.environ['P'])); print(os.getpid(), flush=True); time.sleep(60)"
    )
    parent = (
        "import os, subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {child!r}], env=dict(os.environ, P=str(os.getpid())))\n"
        "time.sleep(60)\n"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
    )
    assert started.stdout is not None
    pid = int(started.stdout.readline())
    assert not gone(pid)
    started.kill()
    started.wait()
    assert wait_gone(pid)
    started.stdout.close()


def test_sigkill_of_the_parent_ends_the_children_that_it_forked() -> None:
    """vLLM's engine core stayed, where a user's environment has it forked."""
    parent = (
        "import os, time; from stages.engine.lifetime import and_those_forked; and_those_forked()\n"
        "if not os.fork():\n"
        "    if os.fork():\n        os.wait()\n"
        "    print(os.getppid(), os.getpid(), flush=True)\n"
        "time.sleep(60)\n"
    )
    started = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert started.stdout is not None
    pids = [int(pid) for pid in started.stdout.readline().split()]
    started.kill()
    started.wait()
    assert all(wait_gone(pid) for pid in pids)
    started.stdout.close()


def test_a_child_whose_parent_died_before_it_could_ask_ends_at_once() -> None:
    script = "from stages.engine.lifetime import die_with_parent; die_with_parent(1); print('alive')"
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert os.getpid() != 1
    assert (ended.returncode, ended.stdout) == (143, "")


def test_the_log_is_private_and_a_long_one_is_put_aside(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "engine.log"
    with process.open_log(log) as output:
        output.write(b"x" * (process.LOG_BYTES + 1))
    assert log.stat().st_mode & 0o777 == 0o600
    with process.open_log(log) as output:
        assert output.tell() == 0
    assert log.with_name("engine.log.1").stat().st_size > process.LOG_BYTES


def test_the_engines_port_is_none_that_an_outgoing_connection_takes() -> None:
    """Found by the kill sweep: between choosing the port and binding it, a client's connection had it."""
    lowest = first_ephemeral_port()
    ports = {free_port() for _ in range(50)}
    assert len(ports) > 25
    assert lowest < 4096 or all(1024 < port < lowest for port in ports)


def test_a_port_that_was_given_is_given_to_nobody_else_and_can_be_bound_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two engines that started at once took the same one, once in some hundred starts of so many."""
    port = free_port()
    offered = [int(port)] * 3  # the dice fall on it three times more
    monkeypatch.setattr("stages.engine.free_port.first_ephemeral_port", lambda: 32_768)
    monkeypatch.setattr("secrets.choice", lambda of: offered.pop() if offered else random.choice(of))
    assert free_port() != port
    assert offered == []
    for _ in range(2):  # an engine, and the one that is started in its place
        with socket.socket() as server, socket.socket() as client:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((HOST, port))
            server.listen()
            client.connect((HOST, port))
            server.accept()[0].close()
        with socket.socket() as client, pytest.raises(ConnectionRefusedError):
            client.connect((HOST, port))
    number = int(port)
    del port
    with socket.socket() as after:
        after.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        after.bind((HOST, number))


NGRAM = '{"method": "ngram", "num_speculative_tokens": 3}'


@pytest.mark.parametrize(
    ("settings", "drafts"),
    [
        ({"draft_tokens": 1}, True),
        ({"extra_args": ["--speculative-config", NGRAM]}, True),
        ({"extra_args": ["--speculative_config.method=ngram"]}, True),
        ({"extra_args": ["-sc", NGRAM]}, True),
        ({"extra_args": ["--spec-method", "ngram"]}, True),
        ({"extra_args": ["--specialize-active-lora"]}, False),
        ({}, False),
    ],
)
def test_an_engine_on_a_cpu_does_not_draft(
    settings: dict[str, Any], drafts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM 0.32 divides a drafted token's logits there by what memory held before."""
    config = EngineConfig(**settings)
    assert config.drafts is drafts
    monkeypatch.setattr("importlib.metadata.version", lambda _: "2.13.0+cpu")
    with pytest.raises(UsageError, match="wrongly") if drafts else nullcontext():
        options.require_drafts_hold(config)
    monkeypatch.setattr("importlib.metadata.version", lambda _: "2.13.0")
    options.require_drafts_hold(config)


def test_drafting_is_said_once() -> None:
    with pytest.raises(ValidationError, match="both say how to draft"):
        EngineConfig(draft_tokens=1, extra_args=["--speculative-config", NGRAM])


def test_a_start_on_a_cpu_that_would_draft_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: "2.13.0+cpu")
    monkeypatch.setattr("stages.engine.process.require_checkpoint", lambda _: None)
    with pytest.raises(UsageError, match="wrongly"):
        EngineProcess.start(tmp_path, EngineConfig(draft_tokens=1), tmp_path / "engine.log")
