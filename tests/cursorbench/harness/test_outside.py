"""Agents in a real sandbox: ours, and mini-swe-agent by its own command, through the real gateway."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cursorbench.errors import InputMissingError, SandboxError, UsageError
from cursorbench.harness import agent as ours
from cursorbench.harness import call_parser, installed, outside
from cursorbench.harness.agent import AgentConfig
from cursorbench.harness.budget import Budget, StopReason
from cursorbench.harness.chat import assistant_message
from cursorbench.harness.completion import Attribution
from cursorbench.harness.driver import Driver, Endpoint
from cursorbench.harness.loop import AgentLoop
from cursorbench.harness.relay import Relay
from cursorbench.harness.sandboxed import SandboxPlace
from cursorbench.harness.task_tools import ToolSettings, task_tools
from cursorbench.harness.toolbox import Toolbox
from cursorbench.sandbox import Backend, Environment, Limits, open_backend
from cursorbench.sandbox.protocol import Done
from tests.stages.gateway.rig import Rig, running


@pytest.fixture(scope="module")
def backend() -> Backend:
    if shutil.which("bwrap") is None:
        pytest.skip("no bubblewrap")
    try:
        found = open_backend("bubblewrap")
        root = Path(__file__).parent
        with found.start(Environment(root)):
            pass
    except SandboxError as error:
        pytest.skip(f"no sandbox here: {error}")
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "sum.py").write_text("x = 1\n")
    return folder


NOWHERE = Endpoint("http://127.0.0.1:9", "k", "m")


def go(backend: Backend, relay: Relay, root: Path, command: str, instruction: str = "fix it") -> Any:
    environment = relay.bind(Environment(root))
    with backend.start(environment, Limits()) as sandbox:
        done = outside.run(sandbox, relay, command, instruction)
        return done, sandbox.exec("cat sum.py /tmp/instruction.md; ls /tmp").output


@pytest.mark.slow
def test_mini_swe_agent_by_its_command(backend: Backend, root: Path, tmp_path: Path) -> None:
    """Two steps: the first call works on a file, the second one hands in. All of it inside."""
    script = (
        "if [ -e seen ]; then echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cat sum.py;"
        " else touch seen; echo fixed > sum.py; id -u; fi"
    )
    task = f"stub:call bash {json.dumps({'command': script})}"
    command = (
        "mini -m openai/{model} -y --exit-immediately -o /tmp/trajectory.json"
        " -c mini.yaml -c agent.instance_template={{task}} -t {instruction}"
    )

    def inside(rig: Rig) -> Any:
        who = Attribution("bench", "s", "e", no_train=True)
        with Relay(Endpoint(rig.url, rig.key), Budget(turns=6, wall_s=100), who) as relay:
            agent = outside.install(relay, Path(sys.prefix))
            with backend.start(agent.bind(relay.bind(Environment(root)))) as sandbox:
                done = outside.run(sandbox, relay, command, task, agent)
                return done, sandbox.read("sum.py")

    async def both() -> Any:
        async with running(tmp_path / "gateway") as rig:
            return await asyncio.to_thread(inside, rig), rig.generations()

    (done, content), recorded = asyncio.run(both())
    assert (done.episode.stop, done.status) == (StopReason.ANSWERED, 0), done.output[-3000:]
    assert content == b"fixed\n"
    assert (root / "sum.py").read_text() == "x = 1\n", "nothing happened outside"
    assert done.episode.generations == tuple(one.id for one in recorded)
    assert {one.episode.split("@")[0] for one in recorded} == {"e"}
    assert [call.name for call in done.episode.calls] == ["bash", "bash"]
    assert "1000" in done.episode.calls[0].result


def test_our_agent_in_the_sandbox(backend: Backend, root: Path, tmp_path: Path) -> None:
    def inside(rig: Rig) -> Any:
        call = 'stub:call run {"command": "echo fixed > sum.py; cat sum.py"}'
        config = AgentConfig(budget=Budget(turns=2))
        with backend.start(Environment(root)) as sandbox, Driver(Endpoint(rig.url, rig.key)) as driver:
            return ours.run(config, SandboxPlace(sandbox), call, driver), sandbox.read("sum.py")

    async def both() -> Any:
        async with running(tmp_path / "gateway") as rig:
            return await asyncio.to_thread(inside, rig)

    episode, content = asyncio.run(both())
    assert [call.result for call in episode.calls] == ["exit 0\nfixed"] * 2
    assert (content, episode.stop) == (b"fixed\n", StopReason.MAX_TURNS)


def test_how_a_command_ends_is_why_the_episode_ends(backend: Backend, root: Path) -> None:
    with Relay(NOWHERE, Budget()) as relay:
        done, seen = go(
            backend,
            relay,
            root,
            "sh -c 'echo new > sum.py; cat {instruction_file}; echo $0; [ {key} = $OPENAI_API_KEY ]' "
            "{instruction}",
        )
        assert (done.episode.stop, done.status) == (StopReason.ANSWERED, 0)
        assert done.output == "fix itfix it\n"
        assert seen == "new\nfix itinstruction.md\n", "no key is left behind"
        done, _ = go(backend, relay, root, "sh -c 'exit 3'")
        assert (done.episode.stop, done.status) == (StopReason.AGENT_FAILED, 3)
        done, _ = go(backend, relay, root, "no-such-agent {instruction}")
        assert (done.episode.stop, done.status) == (StopReason.AGENT_FAILED, 127)
        with pytest.raises(UsageError, match="cannot be read"):
            go(backend, relay, root, "agent 'half")


def test_an_agent_that_never_ends_is_ended(
    backend: Backend, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outside, "GRACE_S", 0.1)
    with Relay(NOWHERE, Budget(wall_s=0.5)) as relay:
        done, _ = go(backend, relay, root, "sh -c 'while :; do echo more; done'")
    assert (done.episode.stop, done.late) == (StopReason.AGENT_FAILED, True), "no model has taken that time"
    assert done.episode.seconds < 250


@pytest.mark.parametrize(
    ("failure", "waits", "turns", "fails", "stop"),
    [
        ("HTTP 503: ", False, 3, False, StopReason.ABORTED),  # an agent that tries again until it is ended
        ("", True, 0, True, StopReason.ABORTED),
        ("", True, 0, False, StopReason.MAX_SECONDS),  # a slow model
        ("", False, 3, False, StopReason.MAX_SECONDS),
        ("", False, 0, False, StopReason.AGENT_FAILED),  # it waits for somebody to log in, say
    ],
)
def test_whose_matter_an_agent_is_that_was_ended_for_its_time(
    monkeypatch: pytest.MonkeyPatch, failure: str, waits: bool, turns: int, fails: bool, stop: StopReason
) -> None:
    """An engine that was away until then, or that refused the key, made a zero of the model's."""
    monkeypatch.setattr(Relay, "answers", lambda _: False)  # what runs inside may have it at work
    relay = Relay(NOWHERE, Budget(wall_s=1))
    relay.recorder.failure, relay.recorder.stop = failure, StopReason.MAX_SECONDS
    relay.recorder.spent.turns, relay.recorder._under_way = turns, int(waits)
    relay.driver._failing = {1} if fails else set()
    with relay:
        assert outside._why(relay, Done("exited", 0, "", 1.0))[0] is stop
        if stop is StopReason.AGENT_FAILED:  # however it goes about a first request that is too long
            relay.recorder.full = True
            for relay.recorder.stop in (StopReason.MAX_SECONDS, None):
                assert outside._why(relay, Done("exited", 0, "", 1.0))[0] is StopReason.CONTEXT_FULL
        relay.recorder.stop = StopReason.MAX_TURNS
        assert outside._why(relay, Done("exited", 0, "", 1.0)) == (StopReason.MAX_TURNS, "")


def test_a_model_that_does_not_answer_is_infrastructure(backend: Backend, root: Path) -> None:
    endpoint = Endpoint("http://127.0.0.1:9", "k", "m", patience_s=0.01)
    program = (
        "import os, urllib.request as u; "
        "r = u.Request(os.environ['OPENAI_BASE_URL'] + '/chat/completions', b'{}', "
        "{'Authorization': 'Bearer ' + os.environ['OPENAI_API_KEY']}); u.urlopen(r)"
    )
    with Relay(endpoint, Budget()) as relay:
        done, _ = go(backend, relay, root, f"python3 -c {json.dumps(program)}")
    assert done.episode.stop is StopReason.ABORTED, done.output
    assert "does not answer" in done.episode.failure


def test_the_network_is_the_relay_and_nothing_else(backend: Backend, root: Path) -> None:
    program = "import socket; socket.create_connection(('1.1.1.1', 80), 1)"
    with Relay(NOWHERE, Budget()) as relay:
        done, _ = go(backend, relay, root, f'python3 -c "{program}"')
    assert done.status == 1
    assert "OSError" in done.output


def test_no_virtual_environment(tmp_path: Path) -> None:
    with pytest.raises(InputMissingError, match="virtual environment"):
        installed.prepare(tmp_path, tmp_path / "agent", "/run/x")


def test_what_a_hosts_environment_has_is_not_covered(tmp_path: Path) -> None:
    """Its tests ran before and after the agent had worked, and not where it worked."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    agent = outside.Agent(installed.prepare(venv, tmp_path / "agent", "/run/x"))
    assert agent.installed
    assert agent.installed.covered, "else it shows nothing"
    assert agent.bind(Environment(tmp_path)).covered == ()
    own = agent.bind(Environment(tmp_path, covered=["/usr/lib/x"])).covered
    assert own == ("/usr/lib/x", *agent.installed.covered)


def test_scripts_of_a_place_with_a_space_in_its_path(tmp_path: Path) -> None:
    """As pip and uv write them where a first line cannot name the interpreter."""
    venv = tmp_path / "a place"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    interpreter, body = f"{venv}/bin/python", "# -*- coding: utf-8 -*-\nprint(1)\n"
    for name, head in {
        "agent": f"#!/bin/sh\n'''exec' '{interpreter}' \"$0\" \"$@\"\n' '''\n",
        "plain": f"#!{interpreter}\n",
        "shell": "#!/bin/sh\nexec python\n",
        "cut": f"#!/bin/sh\n'''exec' '{interpreter}' \"$0\" \"$@\"\n",
    }.items():
        (venv / "bin" / name).write_text(head + body)
    found = installed.prepare(venv, tmp_path / "agent", "/run/x")
    assert found.scripts & {"agent", "plain", "shell", "cut"} == {"agent", "plain"}
    for name in ("agent", "plain"):
        assert (tmp_path / "agent" / "bin" / name).read_text() == f"#!/run/x/bin/python3\n{body}"


def test_the_tools_in_a_real_sandbox(backend: Backend, root: Path) -> None:
    """Links, pipes and devices that a command made lead nowhere, and a sandbox that died is noticed."""
    with backend.start(Environment(root)) as sandbox:
        place = SandboxPlace(sandbox)
        box = Toolbox(place, task_tools(ToolSettings()))

        def call(name: str, **arguments: Any) -> Any:
            return box.call(name, json.dumps(arguments), left_s=20)

        made = (
            "ln -s /etc/passwd link; mkfifo pipe; ln -s /dev/zero zero; ln -s . loop; printf '\\377' > latin"
        )
        assert call("run", command=made).ok
        assert sandbox.read("sum.py") == b"x = 1\n"
        assert "root:x:0:0:root:/:/bin/sh" in call("read_file", path="link").text, "the sandbox's own"
        for path in ("pipe", "zero", "latin", "loop", "/proc/1/environ", "a" * 300):
            assert call("read_file", path=path).error in {"no_file", "outside"}, path
        assert call("search", pattern="x").text == "sum.py:1:x = 1"
        assert place.files() == ["latin", "sum.py"]
        assert call("edit_file", path="sub/new.py", content="y = 1\n").ok
        assert call("run", command="cat sub/new.py; echo \ud800").text.startswith("exit 0\ny = 1\n")
        assert call("run", command="sleep 9", timeout_s=1).error == "timeout"
        assert call("run", command="head -c 3000000 /dev/zero").error in {"killed", ""}
        sandbox.kill()
        assert call("run", command="true").error == "sandbox"
        assert call("read_file", path="sum.py").error == "sandbox"


def test_parallel_commands_in_a_real_sandbox(backend: Backend, root: Path) -> None:
    with backend.start(Environment(root)) as sandbox:
        loop = AgentLoop(Toolbox(SandboxPlace(sandbox), task_tools(ToolSettings())), "Work.", "go")
        waiting = "touch here-$$; until [ $(ls -d here-* | wc -l) = 4 ]; do sleep 0.01; done; echo $$"
        loop.receive(assistant_message(call_parser.render("run", {"command": waiting}) * 4))
    assert [one.tool_error for one in loop.calls] == [""] * 4, "each waits for the three others"
    assert len({one.result for one in loop.calls}) == 4
