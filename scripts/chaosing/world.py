"""What is put under fire: a workspace on a small disk of its own, and `rtrl serve`, kept running.

The keeper does what the systemd unit does (`Restart=always`, a second later) and nothing else: no state is
repaired by it. Workspace, clock and disk are real; only the engine may be the stub.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from killsweeps.kills import say
from killsweeps.processes import Ended, Process, run

from chaosing.clock import Clock
from stages.engine.free_port import free_port
from stages.errors import RtrlError
from stages.registry.store import Store
from stages.stage import Artifact, Output
from stages.target.endpoint import Endpoint, running_endpoint
from stages.workspace import Workspace

DISK_MIB = 320
RESTART_S = 1.0  # RestartSec of the unit
READY_S = 120.0
VLLM_S = 120.0  # that a real engine may take longer to start
SILENCE_S = 15  # of an engine, before it is taken for hung; the default is longer, for slow machines
OVERRIDE = ("--override", "--reason", "chaos")
SETTINGS = """
[gateway]
port = {port}
shutdown_timeout_s = 20

[deploy]
drain_timeout_s = 10

[engine]
program = "{engine}"
max_model_len = 1024
replicas = {replicas}
silence_s = {silence}
restart_backoff_max_s = 4  # faults come one soon after the other, each for a reason of its own
extra_args = {extra}

[ab]
holdback = {holdback}
"""


class NothingToMeasureError(Exception):
    """The world could not be made, or does not work undisturbed."""


class Disk:
    """A file system of the run's own, so that it can be full and everything else cannot."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        options = ["-o", f"size={DISK_MIB}m,mode=700", "tmpfs", str(folder)]
        done = subprocess.run(["mount", "-t", "tmpfs", *options], capture_output=True, check=False)
        self.own = done.returncode == 0
        self._ballast = folder / ".ballast"

    def fill(self) -> None:
        """Take all the room there is."""
        fd = os.open(self._ballast, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            for step in (1 << 20, 4096):
                while os.write(fd, bytes(step)) == step:
                    pass
        except OSError:
            pass
        finally:
            os.close(fd)

    def free(self) -> None:
        """Give it back."""
        self._ballast.unlink(missing_ok=True)

    def remove(self) -> None:
        """The file system and what is on it are gone."""
        if self.own:
            subprocess.run(["umount", "-l", str(self.folder)], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


class Keeper:
    """Keeps `rtrl serve` running, as systemd would."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._wanted = True
        self.process: Process | None = None
        self.ended: list[Ended] = []
        self._thread = threading.Thread(target=self._keep, name="keeper", daemon=True)

    def start(self) -> None:
        """Start it and wait until it answers. Raises NothingToMeasureError."""
        self._thread.start()
        deadline = time.monotonic() + READY_S
        while self._world.endpoint is None:
            if time.monotonic() > deadline or len(self.ended) > 2:
                told = str(self.ended[-1]) if self.ended else "it does not get ready"
                raise NothingToMeasureError(f"rtrl serve: {told}")
            time.sleep(0.05)

    def _keep(self) -> None:
        while self._wanted:
            self.process = Process(self._world.path, ["serve"], self._world.environment)
            self.process.popen.wait()
            ended = self.process.ended(10)
            self.ended.append(ended)
            time.sleep(RESTART_S if self._wanted else 0)

    def stop(self) -> Ended:
        """SIGTERM, for good; how it ended."""
        self._wanted = False
        if self.process is not None:
            self.process.terminate()
        self._thread.join(90)
        return self.ended[-1]

    def kill(self) -> None:
        """Leave nothing behind, whatever state it is in."""
        self._wanted = False
        if self.process is not None and self.process.alive:
            self.process.kill()
        if self._thread.ident is not None:
            self._thread.join(30)


class World:
    """Everything that lives as long as one run.

    Attributes:
        path: the workspace.
        checkpoints: digests by short name; "base" is live first, the others are its children.
        slower_s: what a real engine may take longer than the limits in the table of faults.
    """

    def __init__(self, folder: Path, *, engine: str, replicas: int = 1, holdback: float = 0.0) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.clock = Clock(folder)
        self.disk = Disk(folder / "disk")
        self.path = self.disk.folder / "workspace"
        self.engine, self.replicas, self.holdback = engine, replicas, holdback
        self.slower_s = 0.0 if engine == "stub" else VLLM_S
        self.environment = {**self.clock.environment, "OMP_NUM_THREADS": "1"}
        self.checkpoints: dict[str, Artifact] = {}
        self.port = 0
        self.keeper = Keeper(self)

    def make(self) -> None:
        """`rtrl init --tiny`, and children of its model. Raises NothingToMeasureError."""
        say("making the workspace")
        made = self.rtrl("init", str(self.path), "--tiny")
        if made.code:
            raise NothingToMeasureError(str(made))
        self.port = free_port()
        extra = '["--load-seconds", "0.4"]' if self.engine == "stub" else "[]"
        text = SETTINGS.format(
            port=self.port,
            engine=self.engine,
            extra=extra,
            silence=SILENCE_S + self.slower_s / 3,
            replicas=self.replicas,
            holdback=self.holdback,
        )
        (self.path / "rtrl.toml").write_text(text)
        self.checkpoints["base"] = self._alias("live")
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            for number, name in enumerate(("second", "third"), start=1):
                self.checkpoints[name] = self._child(Path(scratch) / name, number)

    def _child(self, folder: Path, seed: int) -> Artifact:
        """The live checkpoint with every weight moved a little, published."""
        import torch
        from safetensors.torch import load_file, save_file

        from stages.linestate import LineState
        from stages.modelio import checkpoint_meta
        from stages.served_fingerprint import write_fingerprint

        parent = self.checkpoints["base"]
        shutil.copytree(parent.path, folder)
        folder.chmod(0o755)
        generator = torch.Generator().manual_seed(seed)
        for file in folder.glob("*.safetensors"):
            moved = {
                name: tensor + torch.randn(tensor.shape, generator=generator) * 0.02
                for name, tensor in load_file(file).items()
            }
            file.unlink()
            save_file(moved, file, metadata={"format": "pt"})
        for name in ("served_fingerprint.json", "manifest.json"):
            (folder / name).unlink(missing_ok=True)
        write_fingerprint(folder, parent=parent.path)
        state = folder.with_name(f"{folder.name}-state")
        LineState().save(state)
        meta = checkpoint_meta(folder, parent=parent.digest, generation=1)
        outputs = {
            "checkpoint": (Output("checkpoint", meta), folder),
            "line_state": (Output("line_state", {"checkpoint": "output:checkpoint", "stage": "init"}), state),
        }
        return self.store.publish_external(outputs, line="auto")["checkpoint"]

    def _alias(self, name: str) -> Artifact:
        found = self.store.alias("auto", name)
        assert found is not None
        return found

    @property
    def store(self) -> Store:
        """The registry, opened anew."""
        return Store.open(self.path / "store")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def key(self) -> str:
        return (self.path / "keys" / "default.key").read_text(encoding="utf-8").strip()

    @property
    def workspace(self) -> Workspace:
        return Workspace(self.path)

    @property
    def endpoint(self) -> Endpoint | None:
        """Where `rtrl serve` listens now; None while it does not."""
        try:
            return running_endpoint(self.path / "run")
        except (RtrlError, OSError):
            return None

    def rtrl(self, *arguments: str, env: dict[str, str] | None = None, timeout: float = 120.0) -> Ended:
        """One command, to its end."""
        return run(self.path, *arguments, env=self.environment | (env or {}), timeout=timeout)

    def begin(self, *arguments: str, env: dict[str, str] | None = None) -> Process:
        """One command, started."""
        return Process(self.path, arguments, self.environment | (env or {}))

    def deploy(self, name: str, *more: str, env: dict[str, str] | None = None) -> Ended:
        """`rtrl deploy` of a checkpoint by its short name."""
        return self.rtrl(*self.deploying(name, *more), env=env)

    def deploying(self, name: str, *more: str) -> tuple[str, ...]:
        """The arguments of it."""
        return ("deploy", "--input", self.checkpoints[name].digest, *OVERRIDE, *more, "--json")

    @property
    def live(self) -> str:
        """Short name of the live checkpoint, as the registry says."""
        digest = self._alias("live").digest
        return next(name for name, artifact in self.checkpoints.items() if artifact.digest == digest)

    def other(self) -> str:
        """A checkpoint that is not live."""
        live = self.live
        return next(name for name in ("second", "third", "base") if name != live)
