"""What scripts/setup does. Standard library only: it runs before anything is installed.

uv installs when it can be had (three to four times as fast); pip does otherwise, or when uv fails.
uv is given pip's own configuration, so that packages come from the same places.
"""

from __future__ import annotations

import argparse
import ast
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "rtrl-setup.json"
PACKAGES = ("rtrl_cli", "stages", "evals", "cursorbench")
# CUDA builds that vLLM's requirements bring along and that break `import vllm` beside a CPU torch.
# uv leaves them out (tool.uv in pyproject.toml); pip cannot, so they are removed after it.
UNWANTED = ("torchvision", "torchaudio", "torchcodec")
TOOLS = {"bwrap": "bubblewrap", "rg": "ripgrep", "strace": "strace", "chromium": "chromium"}


def say(text: str) -> None:
    """One line on stderr."""
    print(f"setup: {text}", file=sys.stderr, flush=True)


def fingerprint() -> str:
    """What decides the environment: requirements, this script, Python, where the checkout is."""
    total = hashlib.sha256()
    for path in (ROOT / "pyproject.toml", Path(__file__)):
        total.update(path.read_bytes())
    total.update(f"{sys.version}{ROOT}".encode())
    return total.hexdigest()


def is_current(extras: set[str], wanted: str) -> bool:
    """Whether the environment was made from the same and has at least these extras."""
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return stamp["fingerprint"] == wanted and extras <= set(stamp["extras"]) and PYTHON.exists()


def make_venv() -> None:
    """An environment of this Python; one of another Python is replaced."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if PYTHON.exists():
        asked = [str(PYTHON), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
        if found == version:
            return
        say(f"replacing .venv of Python {found or '?'}")
        shutil.rmtree(VENV)
    say(f"making .venv with Python {version}")
    try:
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    except subprocess.CalledProcessError:
        sys.exit("setup: python -m venv failed; Debian and Ubuntu need the package python3-venv")


def pip_settings() -> dict[str, list[str]]:
    """pip's configuration as pip itself resolves it: files first, then the environment on top."""
    listed = subprocess.run(
        [str(PYTHON), "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    ranked: list[tuple[int, str, list[str]]] = []
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        scope, _, key = name.rpartition(".")
        if scope not in ("global", "install", ":env:"):
            continue
        ranked.append(
            (("global", "install", ":env:").index(scope), key, str(ast.literal_eval(value)).split())
        )
    return {key: values for _, key, values in sorted(ranked)}


def uv_arguments(settings: dict[str, list[str]]) -> list[str]:
    """The same places as pip's, said to uv. pip takes the best version of all places: so must uv."""
    arguments = ["--index-strategy", "unsafe-best-match"]
    for key, flag in (("index-url", "--index-url"), ("extra-index-url", "--extra-index-url")):
        for value in settings.get(key, []):
            arguments += [flag, value]
    for value in settings.get("find-links", []):
        arguments += ["--find-links", value]
    for value in settings.get("constraint", []):
        arguments += ["--constraint", value]
    for value in settings.get("trusted-host", []):
        arguments += ["--allow-insecure-host", value]
    return [*arguments, "--no-index"] if settings.get("no-index") in (["true"], ["1"]) else arguments


def install_with_uv(target: str) -> bool:
    """Install with uv. Returns whether that worked."""
    quiet = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv>=0.9"]
    if subprocess.run(quiet, check=False, stdout=sys.stderr).returncode:
        return False
    settings = pip_settings()
    environment = dict(os.environ)
    for certificate in settings.get("cert", []):
        environment.setdefault("SSL_CERT_FILE", certificate)
    for proxy in settings.get("proxy", []):
        environment.setdefault("ALL_PROXY", proxy)
    command = [str(VENV / "bin" / "uv"), "pip", "install", "--python", str(PYTHON)]
    command += [*uv_arguments(settings), "--editable", target]
    command += ["--compile-bytecode"] if sys.dont_write_bytecode else []
    return subprocess.run(command, check=False, env=environment, stdout=sys.stderr).returncode == 0


def install_with_pip(target: str) -> None:
    """Install with pip, then take out what must not be there."""
    pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "install", "--progress-bar", "off", "--editable", target], check=True, stdout=sys.stderr
    )
    subprocess.run(
        [*pip, "uninstall", "--yes", *UNWANTED],
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def compile_ours() -> None:
    """Compile the checkout's own modules, where Python is told to leave no bytecode behind.

    Else every process would compile vLLM, torch and this project again, 5 s each; elsewhere the first one
    does it for all. pip compiles what it installs in any case, uv is told to.
    """
    if sys.dont_write_bytecode:
        folders = [str(ROOT / name) for name in (*PACKAGES, "scripts", "tests")]
        compiling = [str(PYTHON), "-m", "compileall", "-q", *folders]
        subprocess.run(compiling, check=False, stdout=sys.stderr)


def install_tools() -> None:
    """What the tests need of the system (TOOLS), where its package manager can be used."""
    missing = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    if not missing:
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        say(f"installing {' '.join(missing)}")
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", *missing]):
            subprocess.run(command, check=False, env=environment, stdout=subprocess.DEVNULL)
    missing = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    if missing:
        say(f"not installed, without apt or root: {' '.join(missing)}; ask for them, or tests are skipped")
        if "bubblewrap" in missing:
            say("without bubblewrap nothing that a model wrote is run: no rtrl bench")


def main() -> None:
    """Bring the environment up to date."""
    parser = argparse.ArgumentParser(prog="scripts/setup")
    parser.add_argument("--run", action="store_true", help="only what running needs, nothing for tests")
    only_run = parser.parse_args().run
    extras = {"gpu" if os.environ.get("RTRL_ENGINE") == "gpu" else "cpu"} | (set() if only_run else {"dev"})
    with (ROOT / ".venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not only_run:
            install_tools()
        wanted = fingerprint()
        if is_current(extras, wanted):
            return
        started = time.monotonic()
        STAMP.unlink(missing_ok=True)  # a start that is cut short leaves an environment of two makes
        make_venv()
        target = f"{ROOT}[{','.join(sorted(extras))}]"
        say("installing; this takes one to four minutes")
        if not install_with_uv(target):
            say("uv could not do it, installing with pip")
            install_with_pip(target)
        compile_ours()
        STAMP.write_text(json.dumps({"fingerprint": wanted, "extras": sorted(extras)}), encoding="utf-8")
        say(f"ready after {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    try:
        main()
    # a checkout of somebody else's, a full disk, a program that is not there; pip, which has said why
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"setup: {error}")
