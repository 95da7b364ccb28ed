"""A Ray cluster for a while: the one that RAY_ADDRESS names, else one of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cursorbench.errors import InputMissingError


@contextmanager
def ray_cluster(cpus: int) -> Iterator[Any]:
    """The module `ray`, connected; what this started is shut down at the end.

    Raises:
        InputMissingError: (exit 5) Ray is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise InputMissingError("Ray is not installed", hint="pip install 'rtrl[ray]'") from error
    started = not ray.is_initialized()
    if started:
        local: dict[str, Any] = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": max(1, cpus)}
        ray.init(include_dashboard=False, log_to_driver=False, **local)
    try:
        yield ray
    finally:
        if started:
            ray.shutdown()
