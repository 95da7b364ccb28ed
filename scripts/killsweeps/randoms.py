"""Kills at random moments, all in one workspace that goes on: users write, stages run, models change.

After each kill the same command runs again and must succeed; then everything is looked at. The moment
is drawn between when a run takes its lock and when it would have ended (imports before that change nothing
on disk; one kill in five is there all the same).
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from pathlib import Path

from killsweeps import checks
from killsweeps.bases import LEDGER, OVERRIDE, REAL_ENGINE, Bases
from killsweeps.kills import Book, Kill, say, unique
from killsweeps.ledger import Ledger
from killsweeps.processes import Ended, Process, run
from killsweeps.scenarios import FEW
from killsweeps.server import Crowd, DidNotStartError, Server

# of 100 kills; those that take long come less often
MIX = {
    "serve": 22,
    "collect": 20,
    "distill": 14,
    "train": 8,
    "eval": 6,
    "eval-vllm": 2,
    "deploy": 12,
    "rollback": 8,
    "gc": 5,
    "cycle": 3,
}
COMMANDS: dict[str, tuple[str, ...]] = {
    "collect": ("collect", "--force"),
    "distill": ("distill", "--force"),
    "train": ("train", "--force"),
    "eval": ("eval", "--force"),
    "eval-vllm": ("eval", "--force"),
    "deploy": ("deploy", "--input", "checkpoint@latest", "--lock-timeout", "30", *OVERRIDE),
    "rollback": ("rollback", "--lock-timeout", "30"),
    "gc": ("gc", "--yes", "--keep-days", "0"),
    "cycle": ("cycle", *FEW),
}
PER_ROUND = 3
LONG = 50  # kills
GOOD: dict[str, tuple[int, ...]] = {
    name: (0,) if name in ("deploy", "gc") else checks.GOOD for name in COMMANDS
}
GOOD["rollback"] = (0, 5)  # 5: the killed one had gone back already, and there is nothing before that
ENGINE = {"eval-vllm": REAL_ENGINE}
LOCK = {"eval-vllm": "eval", "deploy": "target", "rollback": "target"}
GUESS_S = {"train": 10.0, "eval-vllm": 30.0}
ANSWERS = 25  # a round's use: enough to train on


@dataclass
class Length:
    """How long a command takes, learned from runs that were left alone."""

    begin: float = 1.0
    total: float = 3.0

    def moment(self, chooser: random.Random) -> float:
        """When to kill, in seconds from the start."""
        low = 0.0 if chooser.random() < 0.2 else 0.9 * self.begin
        return chooser.uniform(low, 1.02 * self.total)


@dataclass
class Randoms:
    """The random half of a sweep."""

    bases: Bases
    folder: Path
    book: Book
    seed: int
    lengths: dict[str, Length] = field(default_factory=dict)

    def run(self, wanted: int) -> list[str]:
        """Kill `wanted` times, then let a whole cycle go through. Returns what is wrong at the end."""
        self.workspace = self.folder / "random"
        if self.workspace.exists():
            self.ledger = Ledger(self.workspace / LEDGER)
        else:
            self.ledger = self.bases.copy("used", self.workspace)
        self.server = Server(self.workspace)
        quota = {name: -(-wanted * share // 100) for name, share in MIX.items()}
        for kill in self.book.of("random"):
            quota[kill.stage] -= 1
        self.server.start()
        try:
            while (left := wanted - len(self.book.of("random"))) > 0:
                self._round(quota, left)
            return self._the_end(ENGINE["eval-vllm"] if wanted >= LONG else {}) if wanted else []
        finally:
            if self.server.alive:
                self.server.stop()

    def _round(self, quota: dict[str, int], left: int) -> None:
        """Users at work, then the chain; each command is killed a few times and then let go on."""
        for name in MIX:
            times = max(0, min(PER_ROUND, quota[name], left))
            done = sum(self._kill_server() if name == "serve" else self._kill(name) for _ in range(times))
            quota[name] -= done
            left -= done
            if name == "serve" and not done:
                self._use(ANSWERS)
            if left <= 0:
                return

    def _chooser(self) -> random.Random:
        return random.Random(f"{self.seed}/{len(self.book.of('random'))}/{self.book.missed}")

    def _use(self, answers: int) -> None:
        with Crowd(self.server, self.ledger, users=4, seed=self.seed, prefix="user") as crowd:
            crowd.wait_for(answers)

    def _kill(self, name: str) -> bool:
        """One kill of a stage's command, the command again, and a look. Whether the kill hit."""
        arguments = COMMANDS[name]
        if name not in self.lengths:
            self._learn(name, arguments)
        moment = self.lengths[name].moment(self._chooser())
        process = Process(self.workspace, arguments, ENGINE.get(name))
        time.sleep(moment)
        process.kill()
        ended = process.ended(10)
        if not ended.killed:
            self.book.miss(f"{name} ({moment:.2f} s)")
            if ended.code not in GOOD[name]:
                self._note(name, ended.seconds, [f"not killed: {ended}"])
            return False
        problems = [f"left running: {orphan}" for orphan in ended.orphans]
        problems += checks.stuck_locks(self.workspace, serving=True)
        again = self._learn(name, arguments)
        if again.code not in GOOD[name]:
            problems.append(f"next command: {again}")
        self._note(name, ended.seconds, problems)
        return True

    def _learn(self, name: str, arguments: tuple[str, ...]) -> Ended:
        """Run a command to its end, and learn how long it takes."""
        began = time.time()
        ended = run(self.workspace, *arguments, env=ENGINE.get(name))
        lock = self.workspace / "store" / "locks" / f"{LOCK.get(name, name)}-auto.lock"
        begin = lock.stat().st_mtime - began if lock.exists() else 0.5
        guess = GUESS_S.get(name, 0.0) if ended.code not in GOOD[name] else 0.0
        self.lengths[name] = Length(min(max(begin, 0.0), ended.seconds), max(ended.seconds, guess))
        return ended

    def _kill_server(self) -> bool:
        """One kill of `rtrl serve` while users write."""
        moment = self._chooser().uniform(0.05, 2.0)
        problems: list[str] = []
        with Crowd(self.server, self.ledger, users=4, seed=self.seed, prefix="user") as crowd:
            time.sleep(moment)
            ended = self.server.kill()
            problems += [f"left running: {orphan}" for orphan in ended.orphans]
            if not ended.killed:
                problems.append(f"not killed: {ended}")
            problems += checks.stuck_locks(self.workspace)
            problems += self.ledger.check(self.workspace)
            try:
                self.server.start()
                crowd.wait_for(5)
            except DidNotStartError as error:
                problems.append(f"the next `rtrl serve`: {error}")
        self._note(
            "serve", moment, [*problems, *crowd.refused, *(self.server.said[-2:] if crowd.refused else [])]
        )
        return True

    def _note(self, name: str, moment: float, problems: list[str]) -> None:
        index = len(self.book.of("random"))
        problems += checks.everything(self.workspace, self.ledger, serving=True)
        problems += checks.served_is_live(self.workspace)
        if index % 20 == 19:
            problems += checks.verify_command(self.workspace)
        repeat = f"--aimed 0 --random {index + 1} --seed {self.seed}"
        self.book.add(Kill("random", f"{name}#{index}", name, moment, repeat, unique(problems)))

    def _the_end(self, engine: dict[str, str]) -> list[str]:
        """A whole cycle (of a long sweep with the real engine), and the whole store."""
        say("a whole cycle, undisturbed")
        self._use(ANSWERS)
        cycle = run(self.workspace, "cycle", "--fresh", "--json", env=engine, timeout=600)
        problems = [] if cycle.code in checks.GOOD else [f"the cycle afterwards: {cycle}"]
        stages = [stage["command"] for stage in cycle.document.get("stages", [])]
        if "eval" not in stages:
            problems.append(f"the cycle afterwards only came to {stages}")
        problems += checks.everything(self.workspace, self.ledger, serving=True)
        return problems + checks.verify_command(self.workspace)
