"""What a task's folder holds so that Harbor, or anyone with Docker, can run it: Dockerfile, scripts.

The container sees the same places as a sandbox: the working tree, `/venv`, `/context`. Its verdict is the
exact set of expected ids, but it is written by a script inside; `cursorbench/graders/` believes no such
script. Not for: running containers.
"""

from __future__ import annotations

import inspect
import json
import re
import shlex

from cursorbench.graders import junit
from cursorbench.tasks import scripts
from cursorbench.tasks.scripts import VENV
from cursorbench.tasks.task import Task

CONTEXT = "/context"
_CANARY = re.compile(r"\A<!-- canary [^\n]*? -->\r?\n\s*")


def with_canary(instruction: str, canary: str) -> str:
    """instruction.md: a first line that Harbor strips too, then the instruction."""
    return f"<!-- canary {canary}: of a benchmark, must not be in training data -->\n\n{instruction}\n"


def without_canary(text: str) -> str:
    """The instruction in instruction.md."""
    return _CANARY.sub("", text, count=1).strip()


def files(task: Task) -> dict[str, str]:
    """The scripts by their path in the task's folder; empty for a Harbor task, which has its own."""
    if task.tests.verifier == "reward":
        return {}
    return {
        "environment/Dockerfile": dockerfile(task),
        "tests/test.sh": test_script(task),
        "tests/junit.py": inspect.getsource(junit),
        "tests/grade.py": GRADE,
        "solution/solve.sh": f"#!/bin/sh\n# canary {_word(task.fields.canary)}\n"
        f"set -eu\ncd {shlex.quote(task.environment.workdir)}\n"
        'git apply --binary --whitespace=nowarn "$(dirname "$0")/solution.patch"\n',
    }


def _word(text: str) -> str:
    return " ".join(text.split())


def dockerfile(task: Task) -> str:
    """environment/Dockerfile. Its base image is the Python that the task names."""
    spec = task.environment
    version = spec.python or "3.11"
    lines = [
        f"# canary {_word(task.fields.canary)}",
        f"FROM python:{version}-slim-bookworm",
        "RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/*",
        f"RUN python -m venv {VENV}",
    ]
    if task.lock.is_file():
        lines += [
            "COPY requirements.lock /tmp/requirements.lock",
            f"RUN {VENV}/bin/pip install --no-cache-dir --no-deps --require-hashes -r /tmp/requirements.lock",
        ]
    elif spec.kind == "host":
        lines.append(f"RUN {VENV}/bin/pip install --no-cache-dir pytest")
    lines += [
        "COPY repo.* /tmp/repo/",
        f"WORKDIR {spec.workdir}",
        "RUN git init -q -b main && git config core.logAllRefUpdates false \\",
        " && if [ -e /tmp/repo/repo.shallow ]; then cp /tmp/repo/repo.shallow .git/shallow; fi \\",
        " && git update-ref refs/heads/main $(git bundle unbundle /tmp/repo/repo.bundle | cut -d' ' -f1) \\",
        " && git reset -q --hard && rm -rf /tmp/repo",
    ]
    if task.overlay.is_dir():
        lines.append(f"COPY {json.dumps(['overlay/', f'{spec.workdir}/'])}")
    if task.lock.is_file():
        lines += [_program(name, text) for name, text in scripts.of_overlay(task.overlay).items()]
    if task.logs.is_dir():
        lines.append(f"COPY logs/ {CONTEXT}/")
    variables = {"PATH": f"{VENV}/bin:/usr/local/bin:/usr/bin:/bin"} | python_variables(task)
    lines += [f"ENV {name}={_quoted(value)}" for name, value in sorted(variables.items())]
    return "\n".join(lines) + "\n"


def _program(name: str, text: str) -> str:
    place = f"{VENV}/bin/{name}"
    rows = shlex.join(text.splitlines())
    return f"RUN test -e {place} || {{ printf '%s\\n' {rows} > {place} && chmod 755 {place}; }}"


def _quoted(value: str) -> str:
    text = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$").replace("\n", " ")
    return f'"{text}"'


def python_variables(task: Task) -> dict[str, str]:
    """The environment variables of all commands, in a container and in a sandbox alike."""
    spec = task.environment
    work = spec.workdir.rstrip("/")
    paths = [work if path == "." else f"{work}/{path}" for path in spec.import_paths]
    said = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0", "VIRTUAL_ENV": VENV}
    if paths:
        said["PYTHONPATH"] = ":".join(paths)
    return said | dict(spec.variables)


def test_script(task: Task) -> str:
    """tests/test.sh, which Harbor runs in the container after the agent: writes the reward."""
    report = "/tmp/report.xml"
    command = shlex.join(word.replace("{report}", report) for word in task.tests.command)
    lines = [
        "#!/bin/sh",
        f"# canary {_word(task.fields.canary)}",
        "set -u",
        "mkdir -p /logs/verifier",
        f"cd {shlex.quote(task.environment.workdir)} || exit 1",
        *(f"rm -f -- {shlex.quote(path)}" for path in task.tests.removed),
    ]
    if task.tests.files:
        lines.append("cp -r /tests/files/. .")
    lines += [
        f"rm -f {report}",
        command,
        f"{VENV}/bin/python -I /tests/grade.py {report} /tests/tests.json > /logs/verifier/reward.txt",
    ]
    return "\n".join(lines) + "\n"


GRADE = '''"""Prints 1 when every expected test passed and 0 otherwise. Run by test.sh in a container."""

import json
import sys

sys.path.insert(0, "/tests")
import junit

report, expected = sys.argv[1:]
try:
    with open(report, "rb") as stream:
        found = junit.read(stream.read())
except (OSError, ValueError) as error:
    print(f"no report: {error}", file=sys.stderr)
    found = {}
with open(expected, encoding="utf-8") as stream:
    tests = json.load(stream)
wanted = [*tests["fail_to_pass"], *tests["pass_to_pass"]]
missed = [name for name in wanted if found.get(name) != "passed"]
for name in missed:
    print(f"{found.get(name, 'not run')}: {name}", file=sys.stderr)
print(0 if missed else 1)
'''
