"""One run of a commit's tests on the base with or without its solution, under conditions that vary.

Each run is a sandbox of its own. From run to run differ: the order of the tests (pytest; `mounted/`), the
seed of hashes, the time zone and the date (`dates.py`). Not for: what the runs tell (`validate.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cursorbench.builder.dates import Clock
from cursorbench.errors import SandboxError
from cursorbench.graders import restoring
from cursorbench.graders.running import Ran, run_tests
from cursorbench.sandbox.protocol import Backend, Environment, Limits

PLUGINS = "/opt/rtrl/plugins"
_MOUNTED = Path(__file__).parent / "mounted"
_ZONES = ("UTC", "Asia/Kolkata", "America/St_Johns", "Pacific/Auckland", "America/Los_Angeles")
_HOUR, _DAY = 3_600, 86_400
# By run: another weekday and month, the second run another year whenever that is. The last two, for what
# wavers, are at the true date: what differs there is not the date's doing.
_AHEAD = (0, 403 * _DAY + 5 * _HOUR, 131 * _DAY + 17 * _HOUR, 0, 0)


@dataclass(frozen=True)
class Conditions:
    """What varies between runs. `order` "" leaves the tests in their own; `ahead_s` is from the true date."""

    order: str
    hash_seed: int
    zone: str
    ahead_s: int = 0

    def variables(self) -> dict[str, str]:
        """As environment variables, but for the date."""
        return {
            "PYTHONHASHSEED": str(self.hash_seed),
            "RTRL_ORDER_SEED": self.order,
            "PYTEST_ADDOPTS": "-p rtrl_order",
            "TZ": self.zone,
        }


USUAL = Conditions("", 0, "UTC")


def conditions(run: int, seed: str) -> Conditions:
    """Those of the n-th run of a candidate; the first is as usual as it gets."""
    if run == 0:
        return USUAL
    return Conditions(f"{seed}/{run}", 1_000 + 7_919 * run, _ZONES[run % len(_ZONES)], _AHEAD[run])


@dataclass(frozen=True)
class Bench:
    """All that runs of one candidate share.

    Attributes:
        environment: of its draft; the base.
        command: the tests', with `{report}`.
        files, removed: the commit's test files, put in place before each run.
        timeout_s: of one run.
        clock: what moves the date.
    """

    backend: Backend
    environment: Environment
    limits: Limits | None
    command: tuple[str, ...]
    files: Mapping[str, bytes]
    removed: Sequence[str]
    timeout_s: float
    clock: Clock

    def conditions(self, run: int, seed: str) -> Conditions:
        """As the function, at the true date if no other can be had."""
        found = conditions(run, seed)
        return found if self.clock.folder else replace(found, ahead_s=0)

    def checked(self) -> Bench:
        """The same, its clock seen to move the date in this environment, or one that leaves it."""
        with self.backend.start(self._inside(), self.limits) as box:
            return replace(self, clock=self.clock.inside(box, _AHEAD[1]))

    def run(self, solution: str, under: Conditions, *, old_tests: bool = False) -> Ran:
        """The tests on the base with a patch of the solution, "" for none.

        Args:
            old_tests: leave the base's own test files in place; those that are new to it are empty then.

        Raises:
            restoring.PatchError: the patch does not apply.
            SandboxError: the sandbox died.
        """
        with self.backend.start(self._inside(), self.limits) as box:
            restoring.apply(box, solution)
            for path in () if old_tests else self.removed:
                box.exec(["rm", "-f", "--", path])
            for path, content in self.files.items():
                if old_tests and (self.environment.root / path).exists():
                    continue
                try:
                    box.write(path, b"" if old_tests else content)
                except OSError as error:
                    raise SandboxError(f"{path} could not be put in place: {error}") from error
            if not old_tests:
                restoring.make_programs(box, self.files)
            given = {**under.variables(), **self.clock.variables(under.ahead_s)}
            return run_tests(box, self.command, self.timeout_s, given)

    def _inside(self) -> Environment:
        found = with_plugins(self.environment)
        return replace(found, mounts={**found.mounts, **self.clock.mounts})


def with_plugins(environment: Environment) -> Environment:
    """The environment with our plugins on Python's import path, behind all else."""
    path = environment.variables.get("PYTHONPATH", "")
    return replace(
        environment,
        mounts={**environment.mounts, PLUGINS: _MOUNTED},
        variables={**environment.variables, "PYTHONPATH": f"{path}:{PLUGINS}".lstrip(":")},
    )
