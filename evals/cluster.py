"""A Ray cluster for a while: the one that RAY_ADDRESS names, else one of this machine."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cursorbench.errors import DependencyDownError, InputMissingError

_SIGNALLED = 128  # exit statuses above it are of the program's own handlers


@contextmanager
def ray_cluster(cpus: int) -> Iterator[Any]:
    """The module `ray`, connected; what this started is shut down at the end.

    Raises:
        InputMissingError: (exit 5) Ray is not installed.
        DependencyDownError: (exit 13) there is no cluster at RAY_ADDRESS, or none can be started.
    """
    try:
        import ray
    except ImportError as error:
        raise InputMissingError("Ray is not installed", hint="pip install 'rtrl[ray]'") from error
    started = not ray.is_initialized()
    if started:
        with _own_end():
            _connect(ray, cpus)
    try:
        yield ray
    finally:
        if started:
            ray.shutdown()


def _connect(ray: Any, cpus: int) -> None:
    address = os.environ.get("RAY_ADDRESS")
    local: dict[str, Any] = {} if address else {"address": "local", "num_cpus": max(1, cpus)}
    try:
        ray.init(include_dashboard=False, log_to_driver=False, **local)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        where = f"at {address} (RAY_ADDRESS)" if address else "of this machine"
        said = " ".join(str(error).split())[:300]  # some are a page
        raise DependencyDownError(
            f"the Ray cluster {where} cannot be used: {type(error).__name__}: {said}",
            hint="`ray status` says whether it is up and lets this machine in; without RAY_ADDRESS one is "
            "started here",
        ) from error


@contextmanager
def _own_end() -> Iterator[None]:
    """SIGTERM ends the program as before: Ray puts a handler of its own there, with another exit status."""
    before = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield
        return
    try:
        yield
    except SystemExit as error:
        if callable(before) and isinstance(error.code, int) and error.code < _SIGNALLED:
            before(signal.SIGTERM, None)  # it came meanwhile
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
