"""Attempts of one trial to reach what another one holds that runs beside it, or that it was forked from.

The holder keeps a port on loopback, an abstract socket, a file of shared memory, a segment of System V's and
a living process. Each is tried by the next command in its own sandbox, which must succeed, and by the other.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator

from cursorbench.sandbox.protocol import Sandbox
from escapes.world import LIMITS, Attempt, World, script

_Opened = Callable[[World, Sandbox], contextlib.AbstractContextManager[Sandbox]]
_PORT, _KEY = 8765, 4242
_HOLD = f"""
if os.fork():
    time.sleep(1)
    os._exit(0)
os.setsid()
tcp = socket.create_server(("127.0.0.1", {_PORT}))
name = socket.socket(socket.AF_UNIX)
name.bind("\\0rtrl-neighbour")
name.listen()
open("/dev/shm/rtrl-neighbour", "w").write("ESCAPED")
call(libc.shmget({_KEY}, 4096, 0o1666))
for descriptor in range(3):
    os.close(descriptor)
while True:
    time.sleep(1)
"""
_TRIES = {
    "a port on loopback": f"socket.create_connection(('127.0.0.1', {_PORT}), 2); print('ESCAPED')",
    "an abstract Unix socket": "socket.socket(socket.AF_UNIX).connect('\\0rtrl-neighbour'); print('ESCAPED')",
    "a file in /dev/shm": "print(open('/dev/shm/rtrl-neighbour').read())",
    "shared memory by its key": f"call(libc.shmget({_KEY}, 4096, 0)); print('ESCAPED')",
    "its processes": (
        "mine = {'1', str(os.getpid()), str(os.getppid())}\n"
        "told = [open(f'/proc/{pid}/cmdline').read() for pid in os.listdir('/proc') if pid.isdigit() and "
        "pid not in mine]\n"
        "print('ESCAPED' if any('rtrl-neighbour' in one and 'setsid' in one for one in told) else told)"
    ),
}


@contextlib.contextmanager
def _beside(world: World, holder: Sandbox) -> Iterator[Sandbox]:
    with world.backend.start(world.environment, LIMITS) as other:
        yield other


@contextlib.contextmanager
def _forked(world: World, holder: Sandbox) -> Iterator[Sandbox]:
    with holder.fork() as other:
        yield other


def _python(world: World, sandbox: Sandbox, code: str) -> str:
    line = [world.python, "-I", "-c", script(code), json.dumps(world.given())]
    return sandbox.exec(line, timeout_s=20).output.strip()


def _attempt(what: str, where: str, opened: _Opened) -> Attempt:
    def tried(world: World, opened_by: _Opened) -> str:
        with world.backend.start(world.environment, LIMITS) as holder:
            _python(world, holder, _HOLD)
            with opened_by(world, holder) as other:
                return _python(world, other, _TRIES[what])

    def run(world: World) -> tuple[bool, str]:
        said = tried(world, opened)
        return world.judge(said), f"namespaces of each sandbox's own ({said[-100:]})"

    def control(world: World) -> bool:
        return world.judge(tried(world, lambda _, holder: contextlib.nullcontext(holder)))

    return Attempt(f"{what} of {where}", "neighbours", run, control)


ATTEMPTS = [
    _attempt(what, where, opened)
    for where, opened in {"a trial beside this one": _beside, "the trial it was forked from": _forked}.items()
    for what in _TRIES
]
