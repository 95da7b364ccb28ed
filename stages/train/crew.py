"""The processes that train one run: started, joined, and ended together.

Two ways to more than one:

    train.processes = N                      rank 0 is `rtrl train`; it starts the others on this machine
    torchrun ... -m rtrl_cli.main train      torchrun starts all, on one machine or many with one file system

Rank 0 does what a single process does: it resolves, locks, logs, publishes. The others (`worker.py`)
wait until it has a run to train, get it as a `Job`, and take part. When one dies, all end, and the
next command goes on behind the last micro-checkpoint.

Not here: what the processes do (`pipeline.py`), what they tell one another (`ranks.py`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.engine.lifetime import PARENT_VARIABLE
from stages.errors import DependencyDownError
from stages.wording import exit_status

if TYPE_CHECKING:
    import torch.distributed as dist

JOB_KEY = "job"
HERE_KEY = "here/{}"  # of a rank: it is about to join
PATIENCE = timedelta(hours=12)  # of a rank for the others; one that is dead is noticed at once
NOTICE_S = 20.0  # in which rank 0 has noticed by itself that another one is dead
END_S = 20.0  # in which the others end by themselves once rank 0 has failed


@dataclass(frozen=True)
class Job:
    """What rank 0 has decided, for the others: artifacts are named by digest, folders by path.

    They must see the same files. `batch` is the batch's digest: what they load themselves must be it.
    """

    workspace: str
    store: str
    scratch: str
    run_id: str
    seed: int
    config: Mapping[str, Any]
    extra: Mapping[str, Any]
    inputs: Mapping[str, str]
    batch: str


def from_torchrun() -> bool:
    """Whether torchrun (or what speaks like it) started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def follows() -> bool:
    """Whether this process is to be a worker of a run and not its rank 0."""
    return from_torchrun() and os.environ.get("RANK", "0") != "0"


@contextmanager
def leading() -> Iterator[None]:
    """Around the command on rank 0: whatever becomes of it, workers of torchrun do not wait for ever."""
    try:
        yield
    finally:
        if from_torchrun():
            _meeting_point().set(JOB_KEY, "")


@contextmanager
def together(job: Job, processes: int, device: str, log: Path) -> Iterator[None]:
    """Rank 0 joined by the others for the length of the block; alone, a group of one.

    `log`: folder for what the started processes say. Raises DependencyDownError when one of them ends.
    """
    import torch.distributed as dist

    children: list[subprocess.Popen[bytes]] = []
    if from_torchrun():
        store: dist.Store = _meeting_point()
        count = int(os.environ["WORLD_SIZE"])
    else:
        host = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=PATIENCE)
        store = dist.PrefixStore(_prefix(), host)
        count = processes
        children = [_start(rank, count, host.port, log) for rank in range(1, count)]
    store.set(JOB_KEY, json.dumps(asdict(job)))
    over = threading.Event()
    try:
        threading.Thread(target=_guard, args=(children, log, over), daemon=True).start()
        with _explained(children, log), _environment(count if children else None):
            _await_all(children, store, log)
            join(store, 0, count, device)
            try:
                yield
            finally:
                dist.destroy_process_group()
    finally:
        over.set()
        _end(children)


@contextmanager
def alone(device: str) -> Iterator[None]:
    """This process in a group of one for the length of the block, whoever else was started."""
    import torch.distributed as dist

    join(dist.HashStore(), 0, 1, device)
    try:
        yield
    finally:
        dist.destroy_process_group()


def await_job() -> tuple[Job, dist.Store] | None:
    """On a worker: what rank 0 wants trained; None when nothing."""
    store = _meeting_point()
    store.wait([JOB_KEY], PATIENCE)
    told = store.get(JOB_KEY)
    return (Job(**json.loads(told)), store) if told else None


def join(store: dist.Store, rank: int, count: int, device: str) -> None:
    """Make this process a member of the run's group: gloo for data on CPUs, NCCL for data on GPUs."""
    import torch
    import torch.distributed as dist

    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    store.set(HERE_KEY.format(rank), "")
    backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
    group = dist.PrefixStore("group", store)
    dist.init_process_group(backend, store=group, rank=rank, world_size=count, timeout=PATIENCE)


def _await_all(children: Sequence[subprocess.Popen[bytes]], store: dist.Store, log: Path) -> None:
    """Wait until all that were started are about to join. Raises DependencyDownError when one has ended.

    The group is waited for by torch, which notices no death there, and lets no signal be handled.
    """
    keys = [HERE_KEY.format(rank) for rank in range(1, len(children) + 1)]
    while keys and not store.check(keys):
        if dead := _ended(children):
            raise _death(dead, len(children) + 1, _last_words(_log_of(log, dead[0][0])))
        time.sleep(0.05)


def _meeting_point() -> dist.Store:
    """The key-value store where the processes of torchrun, or of `together`, find one another."""
    import torch.distributed as dist

    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    hosted = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    first = os.environ.get("RANK", "0") == "0"
    store = dist.TCPStore(
        host,
        port,
        is_master=first and not hosted,
        wait_for_workers=False,
        timeout=PATIENCE,
        multi_tenant=True,
    )
    return dist.PrefixStore(_prefix(), store)


def _prefix() -> str:
    """Of this run's keys: torchrun may start the processes again."""
    return f"rtrl/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"


def _start(rank: int, count: int, port: int, log: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {
        "RANK": str(rank),
        "WORLD_SIZE": str(count),
        **_local(rank, count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        PARENT_VARIABLE: str(os.getpid()),
    }
    with _log_of(log, rank).open("wb") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "stages.train.worker"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )


def _local(rank: int, count: int) -> dict[str, str]:
    """Of the processes on this one machine, which need no other interface than its own."""
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    return {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(count), "GLOO_SOCKET_IFNAME": interface}


@contextmanager
def _environment(count: int | None) -> Iterator[None]:
    """Rank 0's own variables for the length of the block; as they are under torchrun (None)."""
    before = dict(os.environ)
    os.environ.update(_local(0, count) if count else {})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _guard(children: Sequence[subprocess.Popen[bytes]], log: Path, over: threading.Event) -> None:
    """End this process when a rank is dead and rank 0, waiting on a GPU, does not notice."""
    while not over.wait(1.0):
        dead = [(rank, code) for rank, child in enumerate(children, 1) if (code := child.poll())]
        if dead and not over.wait(NOTICE_S):
            rank, code = dead[0]
            text = f"rank {rank} ended with {exit_status(code)}: {_last_words(_log_of(log, rank))}"
            print(f"{text}; the next `rtrl train` goes on", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGTERM)
            if not over.wait(NOTICE_S):
                os.kill(os.getpid(), signal.SIGKILL)
            return


def _log_of(log: Path, rank: int) -> Path:
    return log / f"rank-{rank}.log"


@contextmanager
def _explained(children: Sequence[subprocess.Popen[bytes]], log: Path) -> Iterator[None]:
    """A broken connection between the processes is the death of one of them: which, and what it said."""
    import torch.distributed as dist

    try:
        yield
    except (dist.DistError, RuntimeError) as error:
        if not children and not from_torchrun():
            raise
        time.sleep(1.0)  # for the dead one to be seen as such
        dead = _ended(children)
        if not dead and not _is_of_connection(error):
            raise
        said = _last_words(_log_of(log, dead[0][0])) if dead else str(error).splitlines()[0]
        count = len(children) + 1 if children else int(os.environ["WORLD_SIZE"])
        raise _death(dead, count, said) from error


def _ended(children: Sequence[subprocess.Popen[bytes]]) -> list[tuple[int, int]]:
    """(rank, exit status) of those that have."""
    return [(rank, code) for rank, child in enumerate(children, 1) if (code := child.poll()) is not None]


def _death(dead: Sequence[tuple[int, int]], count: int, said: str) -> DependencyDownError:
    who = (
        ", ".join(f"rank {rank} ended with {exit_status(code)}" for rank, code in dead)
        or "another rank ended"
    )
    return DependencyDownError(
        f"training in {count} processes: {who}: {said}",
        hint="nothing was published; the next `rtrl train` goes on behind the last optimizer step",
    )


def _is_of_connection(error: BaseException) -> bool:
    import torch.distributed as dist

    words = ("connection", "gloo", "nccl", "socket", "timed out", "broken pipe")
    return isinstance(error, dist.DistError) or any(word in str(error).lower() for word in words)


def _last_words(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "it said nothing"


def _end(children: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait for them; who does not come to an end is ended."""
    deadline = time.monotonic() + END_S
    for child in children:
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
