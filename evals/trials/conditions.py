"""What a trial depends on besides its task: harness, engine, sandbox, graders. Equal digests, equal trials.

Trials are only ever reused under equal digests, so everything that can change an outcome has to be in one of
them: settings, and the code itself, by its bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import cursorbench
from cursorbench.files import sha256_of
from cursorbench.harness.agent import AgentConfig
from cursorbench.harness.installed import MODULES

_ROOT = Path(cursorbench.__file__).parent


@dataclass(frozen=True)
class Conditions:
    """The digests under which trials are comparable, each `sha256:…`."""

    harness: str
    engine: str
    sandbox: str
    graders: str

    @property
    def digest(self) -> str:
        """Of all four together."""
        return of_data({name: getattr(self, name) for name in ("harness", "engine", "sandbox", "graders")})

    def differing(self, other: Conditions) -> list[str]:
        """Names of what is not equal."""
        names = ("harness", "engine", "sandbox", "graders")
        return [name for name in names if getattr(self, name) != getattr(other, name)]


def of_data(data: object) -> str:
    """`sha256:` over plain data as canonical JSON. Raises TypeError for what is none."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def of_code(packages: Iterable[str]) -> str:
    """`sha256:` over the Python files of packages of cursorbench, by name and content."""
    known = hashlib.sha256()
    for package in sorted(packages):
        for path in sorted((_ROOT / package).rglob("*.py")):
            known.update(f"{path.relative_to(_ROOT)}\0".encode())
            known.update(hashlib.sha256(path.read_bytes()).digest())
    return f"sha256:{known.hexdigest()}"


def harness(agent: AgentConfig, command: str = "", venv: Path | None = None) -> str:
    """The harness's digest: our own agent's settings and code, or an outside agent's command and packages."""
    if not command:
        return agent.digest()
    packages = _packages(venv) if venv else []
    budget = {name: str(value) for name, value in asdict(agent.budget).items()}
    return of_data({"command": command, "packages": packages, "budget": budget, "code": of_code(["harness"])})


def _packages(venv: Path) -> list[list[str]]:
    """What is installed in a virtual environment: name and version, the digests of files, where it is from.

    A version alone does not tell: `pip install .` of changed sources mostly has the same. Of a program of one
    file, and of node's packages, the digests of files.
    """
    if venv.is_file():
        return [[venv.name, sha256_of(venv)]]
    if venv.name == MODULES:  # no installer leaves digests of what it put there
        files = (path for path in venv.rglob("*") if path.is_file() and not path.is_symlink())
        return sorted([str(path.relative_to(venv)), sha256_of(path)] for path in files)
    return [
        [path.name, *(_of_file(path / name) for name in ("RECORD", "direct_url.json"))]
        for path in sorted(venv.glob("lib/python3*/site-packages/*.dist-info"))
    ]


def _of_file(path: Path) -> str:
    return sha256_of(path) if path.is_file() else ""


def engine(base_url: str, model: str, checkpoint: str, temperature: float | None) -> str:
    """The engine's digest. With a `checkpoint` the address does not matter; without one only it tells.

    A server's model keeps its name when the weights change: rtrl's gateway tells (`Driver.weights`), of
    others only the caller can know.
    """
    where = {} if checkpoint else {"base_url": base_url.rstrip("/")}
    return of_data({"model": model, "checkpoint": checkpoint, "temperature": temperature, **where})


def sandbox(backend: str, image: str = "") -> str:
    """The sandbox's digest: backend, its code, and its image if any. Limits are the task's."""
    known = {"image": image} if image else {}
    return of_data({"backend": backend, "code": of_code(["sandbox"]), **known})


def graders() -> str:
    """The graders' digest: their code and how environments are made."""
    return of_code(["graders", "tasks"])
