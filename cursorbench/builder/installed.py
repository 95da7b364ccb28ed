"""Whether an environment holds the project that its tasks are about: a release of it would be the solution.

`assert_absent` looks at what is installed, on the host; `imported_from` asks the interpreter inside where it
would import the project from, without importing it. Not for: the repository (`cut.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from cursorbench.builder.cut import FutureLeftError
from cursorbench.builder.project import Project
from cursorbench.errors import SandboxError
from cursorbench.sandbox.protocol import Sandbox
from cursorbench.tasks.venv import normal

_ASK = (
    "import importlib.util as u, json, sys\n"
    "def where(n):\n"
    "    try: s = u.find_spec(n)\n"
    "    except (ImportError, ValueError): return ''\n"
    "    return (s and (s.origin or next(iter(s.submodule_search_locations or []), ''))) or ''\n"
    "print(json.dumps({n: where(n) for n in sys.argv[1:]}))"
)


def assert_absent(environment: Path, project: Project) -> int:
    """Look through all `site-packages` below an environment. Returns how many distributions there are.

    Raises:
        FutureLeftError: (exit 12) the project's distribution is there, or a top-level module or package of
            its name, or a link that puts one on the path (an editable install of elsewhere).
    """
    count = 0
    for site in sorted(environment.rglob("site-packages")):
        for path in sorted(site.iterdir()):
            stem, _, kind = path.name.rpartition(".")
            if kind in ("dist-info", "egg-info", "egg-link", "egg"):
                count += 1
                if normal(stem.partition("-")[0]) in project.code:
                    raise FutureLeftError(f"the environment holds {path.name}, which the tasks are about")
            if path.suffix == ".pth" and any(
                line.startswith("/") for line in path.read_text("utf-8", errors="replace").splitlines()
            ):
                raise FutureLeftError(f"the environment's {path.name} puts a folder of elsewhere on the path")
        for path in (path for module in project.modules for path in _there(site, module)):
            raise FutureLeftError(
                f"the environment holds a module {path.relative_to(site)}, which the tasks are about"
            )
    return count


def _there(site: Path, module: str) -> Iterator[Path]:
    """What a module, perhaps one in a namespace, would be imported from."""
    *above, name = module.split(".")
    for path in sorted(site.joinpath(*above).glob(f"{name}*")):
        if path.name.split(".", 1)[0] == name and (path.is_dir() or path.suffix in (".py", ".so", ".pyd")):
            yield path


def imported_from(sandbox: Sandbox, modules: Sequence[str], workdir: str) -> None:
    """Ask the interpreter inside where each module of the project is.

    Raises:
        FutureLeftError: (exit 12) elsewhere than in the working tree. One that is found nowhere is no harm:
            it has to be built first, and a test that needs it says so.
        SandboxError: the interpreter did not answer.
    """
    if not modules:
        return
    done = sandbox.exec(["python", "-c", _ASK, *modules], timeout_s=60)
    if not done.ok:
        raise SandboxError("the environment's Python does not start", hint=done.output[-300:])
    for name, origin in json.loads(done.output.strip().splitlines()[-1]).items():
        inside = origin.startswith(f"{workdir.rstrip('/')}/")
        if origin and not inside and origin not in ("built-in", "frozen"):
            raise FutureLeftError(f"Python imports {name} from {origin}, not from the working tree")
