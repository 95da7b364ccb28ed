"""Attempts on what reads a model's diff, report and words outside, where no sandbox holds it.

Each is made in a process of its own with a limit of time and memory. Succeeded: it was believed, took more
than its limits, or came through.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from cursorbench.graders import restoring
from cursorbench.sandbox.protocol import Environment
from escapes.world import LIMITS, Attempt, World

ROOT = Path(__file__).resolve().parents[2]
SECONDS, MEMORY = 20, 1 << 30
_HEAD = "diff --git a/x.py b/x.py\\nnew file mode 100644\\n--- /dev/null\\n+++ b/x.py\\n@@ -0,0 +1 @@\\n+"


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def _read(name: str, wall: str, code: str) -> Attempt:
    """Code that ends with the word `held` when it was held; anything else, or no end, is a success."""

    def run(world: World) -> tuple[bool, str]:
        line = [sys.executable, "-c", code]
        variables = {**os.environ, "PYTHONPATH": str(ROOT)}
        try:
            done = subprocess.run(
                line,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                env=variables,
                preexec_fn=_limited,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return True, f"nothing within {SECONDS} s"
        said = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["nothing"]
        return said != ["held"], f"{wall} ({said[0][:80]})"

    return Attempt(name, "what is read outside", run)


def _refused(report: str) -> str:
    return (
        "from cursorbench.graders import junit\n"
        f"try: print(junit.read({report}))\nexcept ValueError: print('held')"
    )


def _below_a_link(world: World) -> tuple[bool, str]:
    """A base with a link to a folder of the host, and a diff with a folder in its place."""
    with tempfile.TemporaryDirectory() as scratch:
        root, test = Path(scratch, "base"), "tests/test_a.py"
        (root / "tests").mkdir(parents=True)
        (root / test).touch()
        (root / "tests" / "data").symlink_to(world.folder)
        for folder in (root.parent, root):
            folder.chmod(0o755)
        with world.backend.start(Environment(root), LIMITS) as sandbox:
            sandbox.exec("rm tests/data; mkdir tests/data; echo x > tests/data/canary")
            restoring.put_back(sandbox, root, ["tests/data", "tests/data/canary"], {test: b""})
            said = sandbox.exec("cat tests/data/canary").output
    return world.judge(said), f"below a base's link nothing is the base's ({said.strip()[:80]})"


def _longest_path(world: World) -> tuple[bool, str]:
    """A file whose path is as long as one may be, and so longer than one may be below the base's folder."""
    deep = f"for _ in $(seq 40); do mkdir {'a' * 100} && cd {'a' * 100}; done; mkdir {'b' * 43}"
    with tempfile.TemporaryDirectory() as scratch:
        root, test = Path(scratch, "base"), "tests/test_a.py"
        (root / "tests").mkdir(parents=True)
        (root / test).touch()
        for folder in (root.parent, root):
            folder.chmod(0o755)
        with world.backend.start(Environment(root), LIMITS) as sandbox:
            sandbox.exec(f"{deep}; cd {'b' * 43}; echo x > conftest.py")
            diff = sandbox.diff()
            try:
                restoring.put_back(sandbox, root, restoring.apply(sandbox, diff), {test: b""})
            except restoring.PatchError as error:
                return "conftest.py" not in diff, str(error)
            except OSError as error:
                return True, f"the grader ended: {error.strerror}"
    return "conftest.py" not in diff, "it is a path like any other"


_ENTITIES = (
    "('<!DOCTYPE l [<!ENTITY a \"' + 'A' * 1000 + '\">' + ''.join("
    "f'<!ENTITY {chr(98 + i)} \"' + f'&{chr(97 + i)};' * 10 + '\">' for i in range(7))"
    " + ']><testsuites>&h;</testsuites>')"
)
ATTEMPTS: list[Attempt] = [
    Attempt("what the host has below a link of the base", "what is read outside", _below_a_link),
    Attempt("a path as long as there can be", "what is read outside", _longest_path),
    _read(
        "a key of 100,000 parts in a task's settings",
        "limit of a key's parts",
        "from cursorbench.tasks import settings\n"
        "try: settings.document('a.' * 100_000 + 'a = 1')\nexcept settings.Invalid: print('held')",
    ),
    _read("a report that is a bomb of entities", "no document types", _refused(f"{_ENTITIES}.encode()")),
    _read(
        "the same in UTF-16",
        "no document types, as the parser sees them",
        _refused(f"('<?xml version=\"1.0\" encoding=\"UTF-16\"?>' + {_ENTITIES}).encode('utf-16')"),
    ),
    _read(
        "a report of three million elements, one in the other",
        "limit of depth",
        _refused("b'<testsuites>' + b'<a>' * 3_000_000"),
    ),
    _read(
        "a report of 64 MB of elements",
        "no tree is made, limit of elements",
        _refused("b'<testsuites>' + b'<a/>' * (16 << 20) + b'</testsuites>'"),
    ),
    _read(
        "a test that is there twice, failed and passed",
        "the worst counts",
        "from cursorbench.graders import junit\n"
        'case = b\'<testcase classname="a" name="t"\'\n'
        "found = junit.read(b'<testsuite>' + case + b'><failure/></testcase>' + case + b'/></testsuite>')\n"
        "print('held' if found == {'a::t': 'failed'} else found)",
    ),
    *(
        _read(
            f"a line of a megabyte of {word!r}",
            "patterns without loops in loops",
            f"from cursorbench.graders import flags\nflags.of_diff('{_HEAD}' + {word!r} * 80_000 + '\\n')\n"
            "print('held')",
        )
        for word in ("sys.modules ", "def __eq__(", "ctypes. ")
    ),
    _read(
        "requests of very many empty lists to the relay",
        "limit of values, of bodies at a time",
        "from http.client import HTTPConnection\nimport socket\n"
        "from cursorbench.harness.budget import Budget\nfrom cursorbench.harness.driver import Endpoint\n"
        "from cursorbench.harness.relay import Relay\n"
        "body = b'{\"x\":[' + b'[],' * 5_000_000 + b'[]]}'; said = set()\n"
        "with Relay(Endpoint('http://127.0.0.1:9', model='m'), Budget(turns=9)) as relay:\n"
        "    for _ in range(3):\n"
        "        line = HTTPConnection('x'); line.sock = socket.socket(socket.AF_UNIX)\n"
        "        line.sock.connect(str(relay.folder / 'model.sock'))\n"
        "        key = {'Authorization': f'Bearer {relay.key}'}\n"
        "        line.request('POST', '/v1/chat/completions', body, key)\n"
        "        said.add(line.getresponse().status)\n"
        "print('held' if said == {413} else said)",
    ),
    _read(
        "a model whose templates are a link to the machine",
        "no folder is followed",
        "import pathlib, tempfile\nfrom stages.modelio import copy_templates\n"
        "with tempfile.TemporaryDirectory() as scratch:\n"
        "    folder = pathlib.Path(scratch, 'm', 'additional_chat_templates'); folder.mkdir(parents=True)\n"
        "    (folder / 'all').symlink_to('/usr/share'); (folder / 'loop').symlink_to('.')\n"
        "    copy_templates(folder.parent, pathlib.Path(scratch, 'out'))\n"
        "    found = list(pathlib.Path(scratch, 'out').rglob('*'))\n"
        "print('held' if not found else len(found))",
    ),
    _read(
        "control sequences in what a terminal shows",
        "shown as text",
        "from rtrl_cli.output import table, visible\n"
        "said = visible(table(('A', 'B'), [('x\\x1b[2J\\x9b8m\\r\\nsolved  100', 'y')]))\n"
        "print('held' if not set(said) & set('\\x1b\\x9b\\r') and said.count('\\n') == 1 else ascii(said))",
    ),
]
