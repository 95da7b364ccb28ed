"""Two cycles started at the same second: one runs, the other ends with exit 11 and names it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from stages.registry.store import Store
from tests.e2e import workspaces

FEW = ("--set", "train.min_episodes=100000")  # the chain ends before train: nothing here is slow


def test_two_cycles_at_once(tmp_path: Path) -> None:
    workspace = workspaces.make(tmp_path / "w", episodes=12)
    command = [sys.executable, "-m", "rtrl_cli.main", "cycle", "--json", *FEW]
    points = tmp_path / "points"
    os.mkfifo(points)  # at a fault point one waits until it is read: the first is not done too soon
    env = os.environ | {"RTRL_WORKSPACE": str(workspace.root), "RTRL_FAULT_LIST": str(points)}
    both = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    while all(process.poll() is None for process in both):
        time.sleep(0.02)
    reading = os.open(points, os.O_RDWR)
    ends = [(process, *process.communicate(timeout=600)) for process in both]
    os.close(reading)
    codes = sorted(process.returncode for process, _, _ in ends)
    assert codes == [4, 11], [err for _, _, err in ends]  # 4: too few episodes to train on
    [(winner, won)] = [(p, json.loads(out)) for p, out, _ in ends if p.returncode == 4]
    [(refused, said)] = [(json.loads(out), err) for p, out, err in ends if p.returncode == 11]
    assert f"pid {winner.pid}" in refused["error"]["message"]
    assert refused["error"]["message"] in said
    assert refused["error"]["hint"]
    assert [stage["command"] for stage in won["stages"]] == ["collect", "distill", "train"]
    runs = Store.open(workspace.store_dir).runs()
    assert sorted(run.stage for run in runs) == ["collect", "distill", "init", "train"]
    again = workspaces.rtrl(workspace.root, "cycle", "--json", *FEW)
    assert again.code == 4, again.err
