"""`run/serve.json`: where the running `rtrl serve` of a workspace listens, for commands of the same user.

Written (0600) when the gateway is up, removed at shutdown. Whether it is true, the lock beside it
says: `rtrl serve` holds `run/serve.lock` as long as it lives, so a file left by a killed one is stale.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from cursorbench.files import write_whole
from stages import faults, locks
from stages.errors import DependencyDownError, IntegrityError

FILE = "serve.json"
LOCK = "serve.lock"
SCHEMA = "rtrl-serve/1"


class EngineAt(msgspec.Struct, frozen=True):
    """The engine behind the gateway. `temporary` is its scratch folder, swept when it was killed; `model` the
    name of an adapter that it is asked for (`names.py`), never in the file."""

    pid: int
    url: str
    key: str
    log: str
    temporary: str
    model: str = ""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `serve.json`. The admin listener is a Unix socket or a loopback URL."""

    schema: str = SCHEMA
    pid: int
    started_at: str  # ISO 8601, UTC
    line: str
    url: str  # of the public listener
    admin_key: str
    admin_socket: str = ""
    admin_url: str = ""
    engine: EngineAt
    more: tuple[EngineAt, ...] = ()  # further engines of the live arm
    canary: EngineAt | None = None
    others: dict[str, EngineAt] = {}  # by line and arm: auto/holdback, acme, acme/canary
    settings: dict[str, Any] = {}  # it was started with, see `as_served.py`

    def canary_of(self, line: str) -> EngineAt | None:
        """The engine of a line's canary."""
        return self.canary if line == self.line else self.others.get(f"{line}/canary")

    def live_of(self, line: str) -> EngineAt:
        """An engine that answers a line's users: its own where it has one, else the served line's."""
        return self.others.get(line, self.engine)


def write_endpoint(run_dir: Path, endpoint: Endpoint) -> Path:
    """Write the file whole, readable by its owner only."""
    path = run_dir / FILE
    content = msgspec.json.format(msgspec.json.encode(endpoint))
    write_whole(path, content, private=True, renaming=faults.around("serve.endpoint.rename"))
    return path


def read_endpoint(run_dir: Path) -> Endpoint | None:
    """What the file says, true or stale; None without one. Raises IntegrityError when it is damaged."""
    path = run_dir / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Endpoint)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise IntegrityError(
            f"{path} cannot be read: {error}", hint="stop `rtrl serve`, remove it"
        ) from error


def remove_endpoint(run_dir: Path) -> None:
    """Forget the endpoint. No error when there is none."""
    (run_dir / FILE).unlink(missing_ok=True)


def running_endpoint(run_dir: Path) -> Endpoint | None:
    """The endpoint of a gateway that is running now; None when there is none (a stale file included)."""
    if locks.is_free(run_dir / LOCK):
        return None
    return read_endpoint(run_dir)


def require_endpoint(run_dir: Path) -> Endpoint:
    """Like `running_endpoint`. Raises DependencyDownError (exit 13) when nothing is served."""
    found = running_endpoint(run_dir)
    if found is not None:
        return found
    if not locks.is_free(run_dir / LOCK):
        raise DependencyDownError(
            "`rtrl serve` is still starting", hint="wait until it says that it is ready"
        )
    raise DependencyDownError(
        "nothing is being served in this workspace",
        hint="start `rtrl serve`; without one `rtrl deploy --offline` or `rtrl rollback --offline` says what "
        "the next one serves",
    )
