"""scripts/setup without installing anything: what it decides."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("setup_venv", ROOT / "scripts" / "setup_venv.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "STAMP", tmp_path / "stamp.json")
    return module


def test_pip_is_followed_to_the_same_places(setup: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment wins over the files; several values stand in one text."""
    listed = "\n".join(
        [
            ":env:.find-links='/wheels'",
            ":env:.disable-pip-version-check='1'",
            "global.find-links='/other'",
            "global.index-url='https://one/simple'",
            "global.extra-index-url='https://two/simple https://three/simple'",
            "install.trusted-host='two'",
            "freeze.timeout='10'",
        ]
    )
    done = subprocess.CompletedProcess([], 0, stdout=listed)
    monkeypatch.setattr(setup.subprocess, "run", lambda *a, **k: done)
    assert setup.uv_arguments(setup.pip_settings()) == [
        *("--index-strategy", "unsafe-best-match"),
        *("--index-url", "https://one/simple"),
        *("--extra-index-url", "https://two/simple", "--extra-index-url", "https://three/simple"),
        *("--find-links", "/wheels"),
        *("--allow-insecure-host", "two"),
    ]
    assert setup.uv_arguments({"no-index": ["1"]})[-1] == "--no-index"


def test_an_environment_is_current_when_made_from_the_same(setup: ModuleType, tmp_path: Path) -> None:
    setup.PYTHON = tmp_path / "python"
    wanted = setup.fingerprint()
    assert not setup.is_current({"cpu"}, wanted)
    setup.STAMP.write_text(json.dumps({"fingerprint": wanted, "extras": ["cpu", "dev"]}))
    assert not setup.is_current({"cpu"}, wanted), "no python in it"
    setup.PYTHON.touch()
    assert setup.is_current({"cpu"}, wanted)
    assert setup.is_current({"cpu", "dev"}, wanted)
    assert not setup.is_current({"gpu"}, wanted)
    assert not setup.is_current({"cpu"}, wanted + "x")
    setup.STAMP.write_text("half writ")
    assert not setup.is_current({"cpu"}, wanted)


def test_an_environment_that_was_cut_short_is_not_current(
    setup: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a branch with other requirements; back on the first one it passed for what that one has."""
    setup.PYTHON = tmp_path / "python"
    setup.PYTHON.touch()
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["setup", "--run"])
    setup.STAMP.write_text(json.dumps({"fingerprint": "of main", "extras": ["cpu"]}))
    monkeypatch.setattr(setup, "fingerprint", lambda: "of a branch")
    monkeypatch.setattr(setup, "make_venv", lambda: None)

    def cut_short(_: str) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(setup, "install_with_uv", cut_short)
    with pytest.raises(KeyboardInterrupt):
        setup.main()
    assert not setup.is_current({"cpu"}, "of main")


@pytest.mark.parametrize("told", [True, False])
def test_bytecode_is_made_at_once_where_python_is_told_to_leave_none(
    setup: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    (tmp_path / "stages").mkdir()
    (tmp_path / "stages" / "one.py").write_text("x = 1\n")
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    monkeypatch.setattr(setup, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(sys, "dont_write_bytecode", told)
    setup.compile_ours()
    assert len(list(tmp_path.rglob("*.pyc"))) == told
    asked: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, stdout="")

    monkeypatch.setattr(setup.subprocess, "run", run)
    assert setup.install_with_uv("here")
    assert ("--compile-bytecode" in asked[-1]) is told


def test_what_breaks_vllm_is_left_out_by_both_installers(setup: ModuleType) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["uv"]["exclude-dependencies"] == list(setup.UNWANTED)


@pytest.mark.parametrize("name", ["setup", "test", "quickstart"])
def test_scripts_are_executable_and_parse(name: str) -> None:
    path = ROOT / "scripts" / name
    assert path.stat().st_mode & 0o111
    subprocess.run(["bash", "-n", str(path)], check=True)


def test_ci_calls_what_the_readme_names() -> None:
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "\nscripts/test\n" in text
    assert "export CI=true" in text


def test_what_the_system_refuses_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "setup_venv.py", tmp_path / "scripts")
    (tmp_path / ".venv.lock").mkdir()  # as a folder that may not be written to, which root may
    done = subprocess.run(
        [sys.executable, tmp_path / "scripts" / "setup_venv.py"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"setup: [Errno 21] Is a directory: '{tmp_path}/.venv.lock'\n"


def test_what_pip_could_not_install_is_one_line_behind_what_pip_said(tmp_path: Path) -> None:
    """It was a traceback."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "setup_venv.py", tmp_path / "scripts")
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    python.write_text(f"#!/bin/sh\n[ $1 = -c ] && echo {version} && exit\necho no such package >&2\nexit 1\n")
    python.chmod(0o755)
    done = subprocess.run(
        [sys.executable, tmp_path / "scripts" / "setup_venv.py", "--run"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "no such package" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("setup: Command ")
