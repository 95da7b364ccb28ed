"""Where one `rtrl serve` listens: its sockets, and `run/serve.json`, which says so to other commands."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from stages import locks
from stages.config import Settings
from stages.errors import IntegrityError
from stages.gateway.server import bind_tcp, bind_unix
from stages.serving.fleet import Engine, engine_at
from stages.serving.supervisor import Say, Supervisor
from stages.target.as_served import taken
from stages.target.endpoint import FILE, Endpoint, read_endpoint, remove_endpoint, write_endpoint

SOCKET_PATH_LIMIT = 100  # bytes; the kernel's is 107
_TEMPORARY = re.compile(rb"/tmp/rtrl-engine-\w+")  # as `EngineProcess.start` makes them


class Addresses:
    """Of one `rtrl serve`, in the `run` folder of its workspace.

    Attributes:
        public, admin: listening sockets, once `bind` was called.
        admin_key: bearer token of the admin listener; made anew each time.
    """

    public: socket.socket
    admin: socket.socket

    def __init__(self, run_dir: Path, settings: Settings, *, tls: bool) -> None:
        self._run_dir = run_dir
        self._scheme = "https" if tls else "http"
        self._config, self._taken = settings.gateway, taken(settings)
        self._admin_socket = ""
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self.admin_key = secrets.token_urlsafe(32)

    def bind(self, resources: contextlib.ExitStack) -> None:
        """Make the sockets; `resources` closes them. Raises UsageError (exit 2)."""
        config = self._config
        self.public = resources.enter_context(bind_tcp(config.host, config.port))
        root = self._run_dir.parent
        path = root / config.admin_socket if config.admin_socket else self._run_dir / "admin.sock"
        if config.admin_port is None and len(str(path).encode()) <= SOCKET_PATH_LIMIT:
            self.admin = resources.enter_context(bind_unix(path))
            self._admin_socket = str(path)
            resources.callback(path.unlink, missing_ok=True)
        else:
            self.admin = resources.enter_context(bind_tcp("127.0.0.1", config.admin_port or 0))

    def note(
        self, line: str, live: Sequence[Engine], canary: Supervisor | None, others: Mapping[str, Supervisor]
    ) -> Endpoint:
        """Write `serve.json`."""
        engines = [engine_at(each) for each in live]
        endpoint = Endpoint(
            pid=os.getpid(),
            started_at=self._started_at,
            line=line,
            url=url_of(self.public, self._scheme),
            admin_key=self.admin_key,
            admin_socket=self._admin_socket,
            admin_url="" if self._admin_socket else url_of(self.admin),
            engine=engines[0],
            more=tuple(engines[1:]),
            canary=engine_at(canary) if canary else None,
            others={name: engine_at(one) for name, one in others.items()},
            settings=self._taken,
        )
        write_endpoint(self._run_dir, endpoint)
        return endpoint

    def forget(self) -> None:
        """Remove `serve.json`."""
        remove_endpoint(self._run_dir)


def url_of(sock: socket.socket, scheme: str = "http") -> str:
    """`http://host:port` of a TCP socket."""
    host, port = sock.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def clean_up_after_killed(run_dir: Path, say: Say) -> None:
    """Remove what an `rtrl serve` that was killed left: its file, and its engines' temporary folders.

    Call it with the lock: then the file is of the past, also one that a power cut or another version left
    unreadable, and what can be seen in it is removed. What is in use is another's: the file was copied with
    the workspace.
    """
    try:
        if read_endpoint(run_dir) is None:
            return
    except IntegrityError as error:
        say(f"warning: {error.message}; an earlier `rtrl serve` left it so, and it is removed")
    for name in set(_TEMPORARY.findall((run_dir / FILE).read_bytes())):
        folder = Path(os.fsdecode(name))
        if not locks.in_use(folder):  # else this workspace is a copy of one that is being served
            shutil.rmtree(folder, ignore_errors=True)
    remove_endpoint(run_dir)
