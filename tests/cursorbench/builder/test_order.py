"""The plugin that changes the order of tests, and the conditions of runs."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from cursorbench.builder import runs
from cursorbench.builder.mounted.rtrl_order import shuffled
from cursorbench.sandbox.protocol import Environment

IDS = [
    f"tests/test_{m}.py::{c}test_{n}[{p}]"
    for m in "ab"
    for c in ("", "TestC::", "TestD::")
    for n in "xyz"
    for p in "12"
]


class Item:
    """Of pytest's items only the id counts."""

    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid


def order(seed: str, ids: list[str] = IDS) -> list[str]:
    return [item.nodeid for item in shuffled([Item(one) for one in ids], seed)]


def blocks(ids: list[str], depth: int) -> int:
    """How often the module (depth 1), or the class in it (2), changes, plus one."""
    keys = [tuple(one.partition("[")[0].split("::")[:-1][:depth]) for one in ids]
    return 1 + sum(one != other for one, other in pairwise(keys))


def test_modules_and_classes_stay_together() -> None:
    mixed = order("1")
    assert sorted(mixed) == sorted(IDS)
    assert mixed != IDS
    assert (blocks(mixed, 1), blocks(mixed, 2)) == (2, 6)


def test_a_seed_says_the_order_whatever_order_they_came_in() -> None:
    assert order("1") == order("1", IDS[::-1])
    assert len({tuple(order(str(seed))) for seed in range(5)}) == 5


def test_pytest_runs_in_that_order(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("".join(f"def test_{n}(): pass\n" for n in range(6)))
    plugins = str(Path(runs.__file__).parent / "mounted")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "rtrl_order",
        "-p",
        "no:cacheprovider",
        "--collect-only",
        "-q",
    ]
    said = []
    for seed in ("", "1", "2"):
        env = {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": plugins,
            "RTRL_ORDER_SEED": seed,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
        said.append([line for line in done.stdout.splitlines() if "::" in line])
    assert said[0] == [f"test_a.py::test_{n}" for n in range(6)]
    assert said[1] == order("1", said[0])
    assert said[1] != said[2]


def test_conditions_differ_from_run_to_run() -> None:
    every = [runs.conditions(n, "abc") for n in range(5)]
    assert every[0] == runs.USUAL
    assert (
        len({one.order for one in every})
        == len({one.hash_seed for one in every})
        == len({one.zone for one in every})
        == 5
    )
    ahead = [one.ahead_s for one in every]
    assert ahead[0] == ahead[3] == ahead[4] == 0
    assert ahead[1] > 366 * 86_400, "another year whenever it is"
    assert all(days % 7 and seconds for days, seconds in (divmod(one, 86_400) for one in ahead[1:3]))
    assert every == [runs.conditions(n, "abc") for n in range(5)]
    assert every[1] != runs.conditions(1, "abd")
    assert every[1].variables()["PYTEST_ADDOPTS"] == "-p rtrl_order"


def test_plugins_are_mounted_behind_all_else(tmp_path: Path) -> None:
    found = runs.with_plugins(Environment(tmp_path, {"/venv": tmp_path}, {"PYTHONPATH": "/work/src:/work"}))
    assert found.variables["PYTHONPATH"] == f"/work/src:/work:{runs.PLUGINS}"
    assert (found.mounts[runs.PLUGINS] / "rtrl_order.py").is_file()
