"""Which commands are killed at fault points, and from which workspace.

Points are not listed here: a scenario is run once undisturbed and says which it passed, and how often
(`strike.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from killsweeps import checks
from killsweeps.bases import OVERRIDE, Bases

INIT = ("init",)
SERVE = ("serve",)
DEPLOY = ("deploy", "--input", "checkpoint@latest", *OVERRIDE)
FEW = ("--set", "train.min_episodes=100000")  # ends a cycle after distill: nothing to train on yet


@dataclass(frozen=True)
class Scenario:
    """One command to kill.

    Attributes:
        base: name of the workspace it starts from ("" for none).
        arguments: the command.
        points: pattern of the points aimed at; the same code is not aimed at in every scenario.
        good: exit statuses of the next command (the same again) that are right.
        online: `rtrl serve` runs beside it, and users work.
        hits: at most so many different n-th hits of each point.
    """

    name: str
    base: str
    arguments: tuple[str, ...]
    points: str = ".*"
    good: tuple[int, ...] = checks.GOOD
    hits: int = 3
    online: bool = False

    def command(self, workspace: Path, bases: Bases) -> tuple[str, ...]:
        """The arguments of `rtrl`."""
        return (*INIT, str(workspace), *bases.init) if self.arguments == INIT else self.arguments

    @property
    def serves(self) -> bool:
        return self.arguments == SERVE


SCENARIOS = (
    Scenario(
        "init",
        "",
        INIT,
        r"(workspace|keys|vault|db|alias|run)\..*|publish\.(rename|parent|commit).*",
        good=(0, 2),  # 2: it was done, there is a workspace already
        hits=2,
    ),
    Scenario("gateway", "used", SERVE, r"(spool|vault|keys|serve)\..*"),
    Scenario("recover", "torn", SERVE, r"spool\.recover\..*|vault\..*"),
    Scenario("recover-reader", "torn", ("collect",), r"spool\.recover\..*"),
    Scenario("collect", "used", ("collect",)),
    Scenario("sweep", "half", ("collect",), r"(sweep|discard)\..*"),
    Scenario("sweep-verify", "half", ("verify", "--full"), r"(sweep|discard)\..*"),
    Scenario("distill", "collected", ("distill",), r"(publish|distill)\..*"),
    Scenario("train", "distilled", ("train",), r"(train|delta)\..*|publish\.(rename|commit).*", hits=2),
    Scenario("eval", "trained", ("eval",), r"(eval|rebuilt)\..*|publish\.(rename|commit).*", hits=2),
    Scenario(
        "deploy",
        "trained",
        (*DEPLOY, "--offline"),
        r"(deployment|alias|switch|deploy|run)\..*",
    ),
    Scenario(
        "deploy-online",
        "trained",
        (*DEPLOY, "--lock-timeout", "30"),
        r"(alias|switch|rebuilt)\..*",
        good=(0,),
        hits=1,
        online=True,
    ),
    Scenario(
        "rollback",
        "deployed",
        ("rollback", "--offline"),
        r"(deployment|alias|switch|rollback)\..*",
        good=(0, 5),  # 5: it was done, and there is nothing before that
    ),
    Scenario("gc", "deployed", ("gc", "--yes", "--keep-days", "0"), r"(gc|sweep|discard)\..*"),
    Scenario("cycle", "used", ("cycle", *FEW), r"cycle\..*"),
    Scenario("backup", "used", ("db", "backup"), r"db\..*"),
)


def by_name(name: str) -> Scenario:
    """The scenario of that name. Raises KeyError."""
    return {scenario.name: scenario for scenario in SCENARIOS}[name]
