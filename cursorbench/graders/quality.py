"""New lint and type findings that a diff adds, and its size against the change that was kept.

ruff (its default rules, bugbear and pylint's errors) and mypy look at the diff's Python files before and
after, with settings of ours, in a sandbox: mypy follows what the repository's files import. A finding is
its file, rule and message, without its line, so that code that moved adds nothing. Both tools are those
installed beside rtrl (`pip install 'rtrl[bench]'`); one that is not there is not measured. Reported beside
correctness, never pooled with it.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import sysconfig
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from cursorbench.errors import SandboxError
from cursorbench.graders import infrastructure, patch, restoring
from cursorbench.sandbox.protocol import Backend, Environment, Limits, Sandbox

RULES = "E4,E7,E9,F,B,PLE"
PYTHON, PACKAGES, TOOLS = "/run/rtrl-python", "/run/rtrl-packages", "/run/rtrl-tools"
MAX_FILES = 200
_SECONDS = 120.0
_MYPY = re.compile(r"^(?P<path>[^:\n]+):\d+: error: (?P<text>.*)$", re.MULTILINE)
_NUMBER = re.compile(r"\bline \d+")

Findings = Counter[tuple[str, str]]


@dataclass(frozen=True)
class Quality:
    """What a diff adds.

    Attributes:
        lint, types: findings that were not there before; None when not measured.
        lines: added plus deleted, tests apart.
        kept_lines: of the change that was kept.
        note: why something was not measured.
    """

    lines: int
    kept_lines: int
    lint: int | None = None
    types: int | None = None
    note: str = ""

    @property
    def size_ratio(self) -> float | None:
        """Lines against the kept change's; None when that has none."""
        return self.lines / self.kept_lines if self.kept_lines else None


def measure(
    environment: Environment, diff: str, kept_lines: int, backend: Backend, limits: Limits | None = None
) -> Quality:
    """Measure a diff that applies.

    Raises:
        SandboxError: no sandbox, or it died.
    """
    changes = [change for change in patch.files(diff) if not _of_tests(change.path)]
    found = Quality(patch.size(changes), kept_lines)
    moved = patch.moved(changes)
    before = [change.old or change.path for change in changes if not change.created]
    after = [change.path for change in changes if not change.removed]
    with backend.start(_with_tools(environment), limits) as sandbox:
        lint, types = _look(sandbox, _python(before))
        try:
            restoring.apply(sandbox, diff)
        except restoring.PatchError:
            return replace(found, note="the diff does not apply")
        lint_after, types_after = _look(sandbox, _python(after))
    said = replace(found, lint=_new(lint, lint_after, moved), types=_new(types, types_after, moved))
    missing = [name for name, value in (("ruff", said.lint), ("mypy", said.types)) if value is None]
    return replace(said, note=f"{' and '.join(missing)} gave nothing" if missing else "")


def _new(before: Findings | None, after: Findings | None, moved: Mapping[str, str]) -> int | None:
    if before is None or after is None:
        return None
    here: Findings = Counter()
    for (path, text), count in before.items():
        here[moved.get(path, path), text] += count
    return (after - here).total()


def _look(sandbox: Sandbox, files: Sequence[str]) -> tuple[Findings | None, Findings | None]:
    there = [path for path in files if sandbox.exec(["test", "-f", path]).ok]
    if not there:  # without a name the tools would look at the whole repository
        return Counter(), Counter()
    return _lint(sandbox, there), _types(sandbox, there)


def _lint(sandbox: Sandbox, files: Sequence[str]) -> Findings | None:
    if _ruff() is None:
        return None
    options = ["--isolated", "--no-cache", "--exit-zero", "--output-format=json", f"--select={RULES}"]
    output = _output(sandbox, [f"{TOOLS}/ruff", "check", *options, "--", *files])
    try:
        rows = json.loads(output)
        return Counter(
            (_asked(row["filename"], files), f"{row['code']} {_plain(row['message'])}") for row in rows
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _asked(absolute: str, files: Sequence[str]) -> str:
    """The name by which a file was given that ruff names from the root."""
    return max((one for one in files if absolute.endswith(f"/{one}")), key=len, default=absolute)


def _types(sandbox: Sandbox, files: Sequence[str]) -> Findings | None:
    if find_spec("mypy") is None:
        return None
    options = [
        "--config-file=",
        "--ignore-missing-imports",
        "--follow-imports=silent",
        "--no-error-summary",
        "--hide-error-context",
        "--cache-dir=/tmp/mypy",
        "--no-site-packages",
        "--explicit-package-bases",
        "--namespace-packages",
    ]
    python = f"{PYTHON}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    command = [python, "-s", "-P", "-m", "mypy", *options, "--", *files]
    output = _output(sandbox, command, {"PYTHONPATH": PACKAGES})
    if output and not _MYPY.search(output) and "note: " not in output:
        return None
    return Counter((match["path"], _plain(match["text"])) for match in _MYPY.finditer(output))


def _output(sandbox: Sandbox, command: Sequence[str], variables: Mapping[str, str] | None = None) -> str:
    done = sandbox.exec(command, timeout_s=_SECONDS, variables=variables)
    if done.ended == "sandbox_died":
        raise SandboxError("the sandbox died while the quality of a diff was measured")
    return done.output if done.ended == "exited" else done.ended


def _with_tools(environment: Environment) -> Environment:
    """The environment with the interpreter and the packages that run rtrl, at places of their own."""
    return replace(
        environment,
        mounts={
            **environment.mounts,
            PYTHON: Path(sys.base_prefix),
            PACKAGES: Path(sysconfig.get_path("purelib")),
        }
        | ({TOOLS: ruff.parent} if (ruff := _ruff()) else {}),
    )


def _ruff() -> Path | None:
    beside = Path(sys.executable).with_name("ruff")
    found = beside if beside.is_file() else shutil.which("ruff")
    return Path(found) if found else None


def _plain(text: str) -> str:
    return _NUMBER.sub("line", text)


def _python(paths: Sequence[str]) -> list[str]:
    return [path for path in paths if path.endswith((".py", ".pyi"))][:MAX_FILES]


def _of_tests(path: str) -> bool:
    return infrastructure.of_tests(path, infrastructure.test_folders([path])) or Path(path).name.startswith(
        "test_"
    )
