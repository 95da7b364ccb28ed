"""Ray as it behaves around what is asked of it: it takes SIGTERM for itself, and is not always there."""

from __future__ import annotations

import os
import signal
import sys
import types
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest

from cursorbench.errors import DependencyDownError
from evals.cluster import ray_cluster


class RayError(Exception):
    """As `ray.exceptions.RayError`."""


def theirs(number: int, _frame: object) -> NoReturn:
    """Ray's handler."""
    sys.exit(1)


def ours(number: int, _frame: object) -> NoReturn:
    """The program's handler."""
    raise SystemExit(128 + number)


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], object]], None]]:
    """Puts a Ray in place whose `init` takes SIGTERM for itself and then does this."""

    def put(then: Callable[[], object]) -> None:
        def init(**_: object) -> None:
            signal.signal(signal.SIGTERM, theirs)
            then()

        fake = types.SimpleNamespace(
            init=init,
            is_initialized=lambda: False,
            shutdown=lambda: None,
            exceptions=types.SimpleNamespace(RayError=RayError),
        )
        monkeypatch.setitem(sys.modules, "ray", fake)

    before = signal.signal(signal.SIGTERM, ours)
    yield put
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(("named", "asked"), [("", "local"), ("10.0.0.1:6379", None)])
def test_another_cluster_of_the_machine_is_not_joined(
    monkeypatch: pytest.MonkeyPatch, named: str, asked: str | None
) -> None:
    """Ray joins what runs on the machine unless told otherwise, and then refuses to be told of cores."""
    told: dict[str, object] = {}
    fake = types.SimpleNamespace(
        init=lambda **given: told.update(given), is_initialized=lambda: False, shutdown=lambda: None,
        exceptions=types.SimpleNamespace(RayError=RayError),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setenv("RAY_ADDRESS", named)
    with ray_cluster(2):
        assert (told.get("address"), told.get("num_cpus")) == (asked, None if named else 2)


def test_sigterm_ends_the_program_as_it_did_before_ray_was_there(
    ray: Callable[[Callable[[], object]], None],
) -> None:
    ray(lambda: None)
    with pytest.raises(SystemExit) as caught, ray_cluster(1):
        os.kill(os.getpid(), signal.SIGTERM)
    assert caught.value.code == 143


def test_also_while_it_connects(ray: Callable[[Callable[[], object]], None]) -> None:
    ray(lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit) as caught, ray_cluster(1):
        pass
    assert caught.value.code == 143


@pytest.mark.parametrize(
    "error", [ConnectionError("no cluster"), ValueError("no address"), RuntimeError("Ray 1"), RayError("")]
)
def test_a_cluster_that_is_not_there_is_a_dependency_that_is_down(
    ray: Callable[[Callable[[], object]], None], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail() -> NoReturn:
        raise error

    ray(fail)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.9:6379")
    with pytest.raises(DependencyDownError, match=type(error).__name__) as caught, ray_cluster(1):
        pass
    assert "10.0.0.9:6379" in caught.value.message
    assert caught.value.hint
    assert signal.getsignal(signal.SIGTERM) is ours
