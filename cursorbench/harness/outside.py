"""An agent of others on a task: run by its own command, inside the sandbox, with the gateway as its model.

    with Relay(Endpoint(url, key), budget, Attribution(no_train=True)) as relay:
        agent = outside.install(relay, venv)             # or Agent() for a program that is there already
        with backend.start(agent.bind(relay.bind(environment)), limits) as sandbox:
            done = outside.run(sandbox, relay, "mini -m openai/{model} -y ...", instruction, agent)

Commands that its model writes run where the agent runs: in the sandbox. It reaches nothing but the relay.
"""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from cursorbench.errors import SandboxError, UsageError
from cursorbench.harness import installed
from cursorbench.harness.budget import StopReason
from cursorbench.harness.episode import Episode
from cursorbench.harness.installed import Installed
from cursorbench.harness.relay import PLACE, Relay
from cursorbench.harness.results import printable
from cursorbench.sandbox.protocol import Done, Environment, Process, Sandbox

INSTRUCTION_FILE = "/tmp/instruction.md"  # inside: outside of the working tree, so in no diff
SETTINGS_FILE = "/tmp/rtrl-agent.json"
POLL_S = 0.05
_AWAY = "the model does not answer"
GRACE_S = 2.0  # for an agent to take note that its budget is used up

# What agents of others read. LiteLLM would fetch a table of prices; mini-swe-agent asks questions when it
# is run for the first time and stops when it knows no price; Claude Code asks its maker's servers things.
VARIABLES = {
    "OPENAI_BASE_URL": "{base_url}",
    "OPENAI_API_BASE": "{base_url}",
    "ANTHROPIC_BASE_URL": "{server_url}",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_TELEMETRY": "False",
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
    "CI": "1",
    "TERM": "dumb",
    "MSWEA_CONFIGURED": "true",
    "MSWEA_GLOBAL_CONFIG_DIR": "/tmp/mini-swe-agent",
    "MSWEA_SILENT_STARTUP": "1",
    "MSWEA_COST_TRACKING": "ignore_errors",
}


@dataclass(frozen=True)
class Agent:
    """How an agent's program gets into a sandbox.

    Attributes:
        installed: the program; None when the environment has it itself.
        variables: further environment variables; `{base_url}` in them becomes the relay's address, with the
            `/v1` of OpenAI's API, `{server_url}` without.
        python: a Python 3 inside, for the forwarder, where there is no virtual environment.
    """

    installed: Installed | None = None
    variables: dict[str, str] = field(default_factory=dict)
    python: str = "python3"

    def bind(self, environment: Environment) -> Environment:
        """The environment with the program in it.

        Where the environment covers nothing, what the machine has installed is the task's own.
        """
        if not self.installed:
            return environment
        mounts = {**environment.mounts, **self.installed.mounts}
        more = self.installed.covered if environment.covered else ()
        return replace(environment, mounts=mounts, covered=(*environment.covered, *more))


@dataclass(frozen=True)
class OutsideEpisode:
    """What an outside agent did.

    Attributes:
        episode: the record, as of an episode of our own: model calls, tool calls, why it ended. `edits`
            is empty: what it changed is in the sandbox.
        status: exit status of the command; 0 when it was ended.
        late: it was ended for its time.
        output: what the command wrote, both ends.
    """

    episode: Episode
    status: int
    output: str
    late: bool = False


def install(relay: Relay, home: Path) -> Agent:
    """An agent whose program is of this machine: in a virtual environment, of node, or one file,
    as `installed.home_of` gives it. Raises as `installed.prepare`."""
    if home.is_file():
        return Agent(installed.alone(home))
    if home.name == installed.MODULES:
        return Agent(installed.of_modules(home))
    folder = relay.folder / "agent"
    folder.mkdir(mode=0o755)
    return Agent(installed.prepare(home, folder, f"{PLACE}/agent"))


def run(
    sandbox: Sandbox, relay: Relay, command: str, instruction: str, agent: Agent | None = None
) -> OutsideEpisode:
    """Run an agent's command to its end, or to the end of its budget.

    Args:
        sandbox: of an environment that `relay.bind` and `agent.bind` gave; its `wall_s` bounds the command.
        command: words as in a shell, but run without one. `{instruction}` in them becomes the instruction,
            `{instruction_file}` a file with it, `{model}` the model's name, `{base_url}` and `{server_url}`
            the address, `{key}` its key.
        instruction: the user's words.

    Raises:
        UsageError: the command cannot be read, the endpoint names no model for `{model}`, or it refuses the
            key, at whatever time.
        SandboxError, DependencyDownError: infrastructure failed before the agent began.
    """
    agent = agent or Agent()
    line = _line(command, agent)
    text = printable(instruction).replace("\0", "")
    replaced = {"{instruction_file}": INSTRUCTION_FILE, "{instruction}": text, "{key}": relay.key}
    if any("{model}" in part for part in line):
        replaced["{model}"] = relay.driver.model
    keys = {"OPENAI_API_KEY": relay.key, "ANTHROPIC_AUTH_TOKEN": relay.key}
    variables = {**VARIABLES, **keys, **agent.variables}
    settings = json.dumps({"variables": variables, "replace": replaced})
    try:
        sandbox.write(INSTRUCTION_FILE, text.encode())
        sandbox.write(SETTINGS_FILE, settings.encode())
    except OSError as error:
        raise SandboxError(f"the sandbox takes no file: {error}") from error
    own = agent.installed.bin if agent.installed else ""
    python = f"{own}/python3" if own else agent.python
    started = time.monotonic()
    relay.recorder.start()
    process = sandbox.spawn(
        [python, "-I", f"{PLACE}/forward.py", f"{PLACE}/model.sock", SETTINGS_FILE, *line]
    )
    done = _ended(process, relay)
    stop, failure = _why(relay, done)
    episode = relay.recorder.episode(text, stop, failure, time.monotonic() - started)
    status = done.status if done.ended == "exited" else 0
    return OutsideEpisode(episode, status, done.output, _is_late(relay, done))


def _ended(process: Process, relay: Relay) -> Done:
    """Wait for a command; end it where its budget is over, or the service takes the key no more."""
    over: float | None = None
    while (done := process.poll()) is None:
        time.sleep(POLL_S)
        if over is None and relay.recorder.over() is not None:
            over = time.monotonic()
        used_up = over is not None and time.monotonic() - over >= GRACE_S
        if used_up or relay.recorder.refused is not None:
            process.kill()
            return process.wait(GRACE_S)
    return done


def _line(command: str, agent: Agent) -> list[str]:
    """The command's words; a program that is bound into the sandbox by its place."""
    try:
        line = shlex.split(command)
    except ValueError as error:
        raise UsageError(
            f"the agent's command cannot be read: {error}", hint="quote it as for a shell"
        ) from error
    if not line:
        raise UsageError(
            "the agent's command is empty", hint='for example --agent "mini -m openai/{model} ..."'
        )
    if agent.installed:
        at = installed.program_at(line)
        line[at : at + 1] = agent.installed.words(line[at])
    return line


def _is_late(relay: Relay, done: Done) -> bool:
    return done.ended == "timeout" or relay.recorder.stop is StopReason.MAX_SECONDS


def _why(relay: Relay, done: Done) -> tuple[StopReason, str]:
    """Why an agent ended, and what failed if that was infrastructure. Raises UsageError (key)."""
    recorder = relay.recorder
    if recorder.refused is not None:
        raise recorder.refused
    if done.ended == "sandbox_died":
        return StopReason.SANDBOX_DIED, "the sandbox died"
    late = _is_late(relay, done)
    if recorder.stop is not None and not late:
        return recorder.stop, ""
    waits = recorder.waits
    if failure := recorder.failure or (_AWAY if relay.driver.fails and not relay.answers() else ""):
        return StopReason.ABORTED, failure
    if late and (waits or recorder.spent.turns):
        return StopReason.MAX_SECONDS, ""
    if recorder.full and not (done.ok and recorder.spent.turns):
        return StopReason.CONTEXT_FULL, ""
    # of an agent that asked nothing, no model has taken the time
    return (StopReason.AGENT_FAILED if late or not done.ok else StopReason.ANSWERED), ""
