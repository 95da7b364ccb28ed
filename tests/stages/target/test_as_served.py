"""What is served was set up once; commands read the settings each time they run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
from typer.testing import CliRunner

from rtrl_cli.app import app
from stages.config import Settings
from stages.eval.known import answering
from stages.serving.detach import start_detached, stop
from stages.target.as_served import as_served, differences, otherwise, taken
from stages.target.endpoint import FILE, Endpoint, EngineAt
from stages.workspace import Workspace
from tests.stages.serving.conftest import SETTINGS, StubWorld

ENGINE = EngineAt(pid=2, url="", key="", log="", temporary="")


def running(settings: Settings, **changes: object) -> Endpoint:
    document = {**taken(settings), **changes}
    return Endpoint(pid=1, started_at="", line="auto", url="", admin_key="", engine=ENGINE, settings=document)


def parse(text: str) -> Settings:
    return Settings.parse(text, source="test")


def status(workspace: Workspace) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["status", "-w", str(workspace.root), "--json"])
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_differences() -> None:
    before = parse(
        "[engine]\nseed = 3\n[targets.a]\nurl = 'http://a'\n[populations.acme]\n[ab]\nholdback = 0.1\n"
    )
    assert differences(running(before), before) == {}
    # settings that it has no use for are others' business
    assert (
        differences(running(before), before.model_copy(update={"train": parse("[train]\nmax_lag = 7").train}))
        == {}
    )
    after = parse(
        "[engine]\nseed = 4\n[targets.b]\nurl = 'http://b'\n[populations.acme]\nlabels = ['x']\n"
        "[gateway.sampling]\ntop_k = 5\n"
    )
    assert differences(running(before), after) == {
        "ab.holdback": (0.1, 0.0),
        "engine.seed": (3, 4),
        "gateway.sampling.top_k": (0, 5),
        "populations.acme": ([], ["x"]),
        **{f"targets.a.{key}": (value, None) for key, value in before.targets["a"].model_dump().items()},
        **{f"targets.b.{key}": (None, value) for key, value in after.targets["b"].model_dump().items()},
    }


def test_of_another_version() -> None:
    settings = parse("")
    assert differences(running(settings, engine={"seed": 0, "of_tomorrow": 1}), settings) == {}
    of_before = msgspec.structs.replace(running(settings), settings={})
    assert differences(of_before, parse("[engine]\nseed = 4")) == {}
    without = msgspec.json.decode(msgspec.json.encode(of_before))
    del without["settings"]
    assert msgspec.convert(without, Endpoint) == of_before


def test_what_a_command_is_told(tmp_path: Path) -> None:
    """`rtrl serve --set`, and a file changed since, made the gate judge by other settings than users had."""
    world = StubWorld(tmp_path, SETTINGS)
    workspace, names = world.workspace, answering(world.workspace)
    assert otherwise(workspace, names) == []  # nothing is served
    start_detached(workspace, overrides=["engine.dtype=bfloat16", "engine.served_name=acme"])
    try:
        (told,) = otherwise(workspace, names)
        assert "engine.dtype is bfloat16, here float32" in told
        assert "served_name" not in told  # by another name the answers are the same
        file = workspace.root / "rtrl.toml"
        file.write_text(file.read_text() + "\n[gateway.sampling]\ntop_p = 0.9\n")
        now = Workspace.find(workspace.root)
        (told,) = otherwise(now, names)
        assert "gateway.sampling.top_p is 1.0, here 0.9" in told
        assert as_served(now, world.endpoint).settings.engine.served_name == "acme"
        assert as_served(now, world.endpoint).settings.engine.dtype == "float32"

        (warning,) = status(workspace)["warnings"]
        assert "engine.dtype, engine.served_name, gateway.sampling.top_p" in warning
        file.write_text("[engine]\nseed = 'much'\n")
        assert "engine.seed" in status(workspace)["warnings"][0]
        (workspace.run_dir / FILE).write_text("{")
        assert otherwise(now, names) == []
    finally:
        file.write_text(SETTINGS)
        stop(workspace)
