"""Small workspaces in the states that kills start from, each made once by real commands.

    used       `rtrl init --tiny`, then served by the stub engine while users worked
    collected  and `rtrl collect`
    distilled  and `rtrl distill`
    trained    and `rtrl train`
    deployed   and `rtrl deploy`: two checkpoints, the second one live
    half       used, and a collect that was killed between rename and commit
    torn       used, and a server that was killed while users wrote, its last record cut short

The stub's answers are not the model's own words, so train's on-policy proof and limits are told not to mind.
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from killsweeps.kills import say
from killsweeps.ledger import Ledger
from killsweeps.processes import Ended, run
from killsweeps.server import Crowd, Server

SETTINGS = {
    "COLLECT__CLOCK": "events",
    "GATEWAY__CLIENT_CLOCK": "true",
    "TRAIN__PROOF_MEAN_TOLERANCE": "1000",
    "TRAIN__PROOF_P99_TOLERANCE": "1000",
    "TRAIN__ESS_STOP": "0",
    "TRAIN__KL_STOP": "0",
    "TRAIN__ANCHOR_KL_STOP": "0",
    "TRAIN__THREADS": "1",
    "EVAL__SUITES": '["harness"]',
    "EVAL__REQUESTS": "8",
    "ENGINE__PROGRAM": "stub",
    "ENGINE__MAX_MODEL_LEN": "1024",
}
ENVIRONMENT = {f"RTRL_{name}": value for name, value in SETTINGS.items()}
ENVIRONMENT["OMP_NUM_THREADS"] = "1"  # two sweeps side by side: threads that wait for each other cost seconds
REAL_ENGINE = {"RTRL_ENGINE__PROGRAM": "vllm"}
LEDGER = "killsweep-ledger.jsonl"
REQUESTS = 60
BEGINNING = b"rtF1" + bytes(9)  # of a record: what a write leaves that was cut short
OVERRIDE = ("--override", "--reason", "killsweep")


class NoBaseError(Exception):
    """A workspace to start from could not be made: nothing can be measured."""


class Bases:
    """Makes and copies them. Safe to use from several threads."""

    def __init__(self, folder: Path, seed: int, model: Path | None = None) -> None:
        self._folder = folder
        self._seed = seed
        self.init = ("--model", str(model)) if model else ("--tiny",)
        self._lock = threading.RLock()

    def copy(self, name: str, to: Path) -> Ledger:
        """A copy of base `name` at `to` ("" for no workspace at all), with its ledger."""
        shutil.rmtree(to, ignore_errors=True)
        if not name:
            to.parent.mkdir(parents=True, exist_ok=True)
            return Ledger(to.with_suffix(".ledger"))
        shutil.copytree(self.path(name), to, ignore=shutil.ignore_patterns("*.sock"))
        return Ledger(to / LEDGER)

    def path(self, name: str) -> Path:
        """The base itself, made when it is not there yet. Raises NoBaseError."""
        with self._lock:
            path = self._folder / name
            if not path.exists():
                say(f"making the workspace {name!r}")
                partial = path.with_name(f".{name}.partial")
                shutil.rmtree(partial, ignore_errors=True)
                getattr(self, f"_{name}")(partial)
                partial.rename(path)
            return path

    def _used(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _must(run(path.parent, "init", str(path), *self.init))
        ledger = Ledger(path / LEDGER)
        server = Server(path)
        server.start()
        with Crowd(server, ledger, users=8, seed=self._seed, prefix="base") as crowd:
            crowd.wait_for(REQUESTS)
        _must(server.stop())
        if problems := [*crowd.refused, *ledger.check(path)]:
            raise NoBaseError(f"an undisturbed gateway: {problems[0]}")

    def _collected(self, path: Path) -> None:
        self.copy("used", path)
        _must(run(path, "collect"))

    def _distilled(self, path: Path) -> None:
        self.copy("collected", path)
        _must(run(path, "distill"))

    def _trained(self, path: Path) -> None:
        self.copy("distilled", path)
        _must(run(path, "train"))

    def _deployed(self, path: Path) -> None:
        self.copy("trained", path)
        _must(run(path, "deploy", "--offline", "--input", "checkpoint@latest", *OVERRIDE))

    def _half(self, path: Path) -> None:
        self.copy("used", path)
        _must(run(path, "collect", env={"RTRL_FAULT": "publish.parent.fsync.after"}), -9)

    def _torn(self, path: Path) -> None:
        ledger = self.copy("used", path)
        server = Server(path)
        server.start()
        with Crowd(server, ledger, users=4, seed=self._seed, prefix="torn") as crowd:
            crowd.wait_for(10)
            _must(server.kill(), -9)
        last = max((path / "spool" / "segments").iterdir())
        with last.open("ab") as file:
            file.write(BEGINNING)


def _must(ended: Ended, code: int = 0) -> None:
    if ended.code != code:
        raise NoBaseError(str(ended))
