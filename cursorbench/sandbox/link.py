"""The caller's end of a keeper process (`keeper.py`): starting it, asking it, ending it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cursorbench.errors import SandboxError

PACKAGES = Path(__file__).resolve().parent.parent.parent
START_S = 30.0
HINT = "install bubblewrap (Debian, Ubuntu: apt install bubblewrap) and allow user namespaces"


def supervisor_python() -> tuple[str, str]:
    """The interpreter for the supervisor: its path inside, and the host folder to mount ("" when in /usr)."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if Path(sys.base_prefix).resolve() == Path("/usr"):
        return f"/usr/bin/{name}", ""
    return f"/run/sandbox/python/bin/{name}", sys.base_prefix


class KeeperLink:
    """The caller's end of a keeper process; made on first use, ended with `close` or the caller."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fd = theirs.fileno()
        code = (
            f"import sys; sys.path.insert(0, {str(PACKAGES)!r}); "
            f"from cursorbench.sandbox.keeper import main; main({fd}, {os.getpid()})"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", code],
            pass_fds=(fd,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        theirs.close()
        self.owner = os.getpid()
        self._control = ours
        ours.settimeout(START_S)
        try:
            said = json.loads(ours.recv(4096) or b'{"error": "it ended at once"}')
        except OSError as error:
            said = {"error": str(error)}
        if "error" in said:
            raise SandboxError(f"no sandboxes can be made here: {said['error']}", hint=HINT)
        ours.settimeout(None)

    def alive(self) -> bool:
        """Whether the keeper, a child of this process, still runs."""
        return self.process.poll() is None

    def ask(self, request: Mapping[str, Any], fds: Sequence[int] = ()) -> tuple[dict[str, Any], list[int]]:
        """One request and its answer with descriptors. Raises SandboxError when it says why not."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            ours.settimeout(START_S)
            try:
                with theirs:
                    data = json.dumps(request).encode()
                    socket.send_fds(self._control, [data], [theirs.fileno(), *fds])
                answer, received, _, _ = socket.recv_fds(ours, 1 << 18, 8, socket.MSG_CMSG_CLOEXEC)
            except (TimeoutError, OSError) as error:
                raise SandboxError(f"the sandboxes' keeper does not answer: {error}", hint=HINT) from error
        said = json.loads(answer or b'{"error": "the sandboxes\' keeper has died"}')
        if "error" in said:
            raise SandboxError(f"no sandbox could be made: {said['error']}", hint=HINT)
        return said, received

    def close(self) -> None:
        """End the keeper and with it every sandbox."""
        self._control.close()
        if self.owner == os.getpid():
            self.process.wait(START_S)
            if self.process.stderr:
                self.process.stderr.close()


def close(link: KeeperLink) -> None:
    """End a keeper; one that is gone already is no error."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        link.close()
