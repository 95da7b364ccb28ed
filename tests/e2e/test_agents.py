"""Real coding agents work unchanged against the gateway, the stub engine behind it: Claude Code and Codex.

Neither is a package of this project's, and neither is fetched: RTRL_CLAUDE_CODE and RTRL_CODEX name their
programs (the wheels `claude-agent-sdk` and `openai-codex-cli-bin` hold them).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.stages.gateway.rig import Rig, running

TIMEOUT_S = 120
PATCH = r"*** Begin Patch\n*** Add File: %s\n+ho\n*** End Patch"


def program(variable: str) -> str:
    """The agent's, or the test is skipped."""
    named = os.environ.get(variable, "")
    if not named:
        pytest.skip(f"{variable} names no program")
    return named


def claude_code(rig: Rig, home: Path) -> tuple[list[str], dict[str, str]]:
    command = [program("RTRL_CLAUDE_CODE"), "--allowedTools", "Bash", "Write", "-p"]
    return command, {
        "ANTHROPIC_BASE_URL": rig.url,
        "ANTHROPIC_AUTH_TOKEN": rig.key,
        "ANTHROPIC_MODEL": "rtrl",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "rtrl",
        "ANTHROPIC_CUSTOM_HEADERS": "X-Rtrl-User: ada",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


def codex(rig: Rig, home: Path) -> tuple[list[str], dict[str, str]]:
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text(
        'model = "rtrl"\nmodel_provider = "rtrl"\nmodel_context_window = 90000\n'
        f'[model_providers.rtrl]\nname = "rtrl"\nbase_url = "{rig.url}/v1"\nenv_key = "RTRL_KEY"\n'
        'wire_api = "responses"\nhttp_headers = { "X-Rtrl-User" = "ada" }\n'
    )
    without_sandbox = "--dangerously-bypass-approvals-and-sandbox"
    command = [program("RTRL_CODEX"), "exec", "--skip-git-repo-check", without_sandbox]
    return command, {"RTRL_KEY": rig.key}


async def spoken(rig: Rig, *words: str) -> None:
    """The stub says these, one a request, the last one for ever."""
    for n, said in enumerate(words):
        rig.stub.words = said
        while len(rig.stub.requests) <= n and said != words[-1]:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    ("agent", "tool", "again", "edit"),
    [
        (
            claude_code,
            'Bash {"command": "%s", "description": "x"}',
            ["-c"],
            'Write {"file_path": "%s", "content": "ho\\n"}',
        ),
        (
            codex,
            'exec_command {"cmd": "%s"}',
            ["resume", "--last"],
            f'exec_command {{"cmd": "apply_patch <<E\\n{PATCH}\\nE"}}',
        ),
    ],
)
async def test_a_request_with_a_call_is_one_episode(
    tmp_path: Path,
    agent: Callable[[Rig, Path], tuple[list[str], dict[str, str]]],
    tool: str,
    again: list[str],
    edit: str,
) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    (tmp_path / "rig").mkdir()
    async with running(tmp_path / "rig") as rig:
        command, variables = agent(rig, home)
        environment = {"HOME": str(home), "PATH": os.environ["PATH"], **variables}

        async def ask(words: list[str]) -> str:
            child = await asyncio.create_subprocess_exec(
                *command,
                *words,
                env=environment,
                cwd=work,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            async with asyncio.timeout(TIMEOUT_S):
                out, _ = await child.communicate()
            assert child.returncode == 0, out.decode()
            return out.decode()

        saying = asyncio.create_task(
            spoken(rig, f"stub:call {tool % 'echo hi > made.txt'}", "stub:say I made it.")
        )
        assert "I made it." in await ask(["make a file, please"])
        await saying
        assert (work / "made.txt").read_text() == "hi\n"
        first, second = rig.generations()
        assert [call.error for call in first.tool_calls] == [""]
        assert (second.session, second.episode, second.ordinal) == (first.session, first.episode, 1)
        assert {first.defect, second.defect} == {""}
        assert {first.user, second.user} == {"ada"}
        rig.stub.requests.clear()
        saying = asyncio.create_task(spoken(rig, f"stub:call {edit % (work / 'new.txt')}", "stub:say Done."))
        await ask([*again, "that is wrong"])
        await saying
        third, fourth = rig.generations()[2:]
        assert third.session == first.session
        assert fourth.episode == third.episode != first.episode
        assert rig.payload(third.id)[0].request.endswith("that is wrong")
        assert (work / "new.txt").read_text() == "ho\n"
        (told,) = rig.events()
        assert (told.type, told.generation_id) == ("edit_applied", third.id)
        assert (told.data["path"], told.data["after"]) == (str(work / "new.txt"), "ho\n")
