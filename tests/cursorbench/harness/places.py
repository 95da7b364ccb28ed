"""Workplaces for tests: a sandbox's protocol over a plain folder, and a toolbox of everything."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cursorbench.harness.sandboxed import SandboxPlace
from cursorbench.harness.task_tools import ToolSettings, task_tools
from cursorbench.harness.toolbox import Toolbox
from cursorbench.sandbox.protocol import Done


class Unboxed:
    """A sandbox's files and commands without any walls: only for commands that a test wrote itself."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.dead = False

    def exec(
        self,
        command: str | Sequence[str],
        *,
        timeout_s: float | None = None,
        cwd: str = ".",
        variables: Mapping[str, str] | None = None,
        stdin: bytes = b"",
    ) -> Done:
        if self.dead:
            return Done("sandbox_died", -1, "", 0.0)
        line = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        started = time.perf_counter()
        try:
            done = subprocess.run(
                line,
                cwd=self.root / cwd,
                input=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            return Done("timeout", -9, (error.stdout or b"").decode(), time.perf_counter() - started)
        except OSError as error:
            return Done("exited", 127, f"{line[0]}: {error.strerror}", 0.0)
        output = done.stdout.decode("utf-8", "replace")
        return Done("exited", done.returncode, output, time.perf_counter() - started)

    def read(self, path: str, limit: int = 1 << 20) -> bytes:
        if self.dead:
            raise OSError(5, "died")
        content = (self.root / path).read_bytes()
        if len(content) > limit:
            raise ValueError(path)
        return content

    def write(self, path: str, content: bytes) -> None:
        if self.dead:
            raise OSError(32, "died")
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


def unboxed(root: Path, **settings: Any) -> tuple[Toolbox, Any]:
    sandbox: Any = Unboxed(root)
    return Toolbox(
        SandboxPlace(sandbox, python=sys.executable), task_tools(ToolSettings(**settings))
    ), sandbox
