"""Running a task's test command in a sandbox and reading its report; the same for builder and grader.

pytest is told, by PYTEST_ADDOPTS and so whatever the command, to name files in the report, to leave no cache
and to go on after a failure, whatever the project's own `addopts` say; other runners do not look there. Not
here: which tests are expected, and whether to believe them.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cursorbench.errors import SandboxError
from cursorbench.graders import junit
from cursorbench.graders.junit import Outcome
from cursorbench.sandbox.protocol import Done, Sandbox

REPORT = "{report}"
MAX_REPORT = 64 << 20
_PYTEST = "-p no:cacheprovider -o junit_family=xunit1 --maxfail=0"


@dataclass(frozen=True)
class Ran:
    """One run of the tests.

    Attributes:
        done: how the command ended.
        outcomes: by test id; empty when there is no report.
        defect: why there is no report, "" when there is one.
    """

    done: Done
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    defect: str = ""


def run_tests(
    sandbox: Sandbox,
    command: Sequence[str],
    timeout_s: float,
    variables: Mapping[str, str] | None = None,
) -> Ran:
    """Run the tests once.

    Args:
        command: `{report}` in it becomes a path nobody knew before.
        variables: besides the sandbox's own; PYTEST_ADDOPTS comes before ours.

    Raises:
        SandboxError: the sandbox died; that says nothing about the tests.
    """
    report = f"/tmp/{secrets.token_hex(16)}.xml"
    given = dict(variables or {})
    options = f"{given.get('PYTEST_ADDOPTS', '')} {_PYTEST}".strip()
    done = sandbox.exec(
        [word.replace(REPORT, report) for word in command],
        timeout_s=timeout_s,
        variables={**given, "PYTEST_ADDOPTS": options, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    if done.ended == "sandbox_died":
        raise SandboxError("the sandbox died while the tests ran", hint=done.output[-500:])
    try:
        return Ran(done, junit.read(sandbox.read(report, MAX_REPORT)))
    except OSError:
        return Ran(done, defect="no report was written")
    except ValueError as error:
        return Ran(done, defect=str(error))
