"""What an agent did in a sandbox, before it is graded: its diff, what it used, and what is to be said of it.

The harness's reason to stop becomes a cause of `causes.TABLE` here, for our own agent and for others. Not
here: the grade (`attempt.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cursorbench.errors import UsageError
from cursorbench.graders.efficiency import Usage
from cursorbench.harness.budget import StopReason
from cursorbench.harness.completion import is_of_the_request
from cursorbench.harness.episode import Episode
from cursorbench.sandbox.protocol import Sandbox
from cursorbench.sandbox.tree import TooLargeError
from evals.trials import causes

_STATUS = re.compile(r"HTTP (\d{3})")  # `completion.refused`


@dataclass(frozen=True)
class Tried:
    """What an agent did, before it is graded. `cause` is "" where nothing went wrong with it."""

    diff: str
    final_text: str
    usage: Usage
    stop: str
    cause: str = ""
    detail: str = ""
    generations: tuple[str, ...] = ()
    episode: Episode | None = None


def of_episode(episode: Episode, sandbox: Sandbox) -> Tried:
    """What came of an episode, with the diff that it left. Raises as `_aborted`."""
    if episode.stop is StopReason.SANDBOX_DIED:
        return _told(episode, "", "sandbox_died", episode.failure)
    try:
        diff = sandbox.diff()
    except TooLargeError as error:
        return _told(episode, "", "too_large", str(error))
    cause, detail = _aborted(episode) if episode.stop is StopReason.ABORTED else _of_model(episode, diff)
    return _told(episode, diff, cause, detail)


def _aborted(episode: Episode) -> tuple[str, str]:
    """Why no answer came: the engine's matter, or the conversation's that the model led there.

    Raises:
        UsageError: (exit 2) the engine refuses the very first request, and not for what is asked in it.
    """
    why = episode.failure
    status = int(found[1]) if (found := _STATUS.match(why)) else 0
    # a proxy's own 404, in the middle of a restart, says nothing of models
    misnamed = 400 <= status < 500 and (status != 404 or "model" in why.lower())
    if is_of_the_request(status):
        return "refused_request", why
    if misnamed and not episode.turns:
        raise UsageError(f"the engine refuses the first request: {why}", hint="--model, --max-tokens")
    return ("engine_timeout" if "takes too long" in why else "engine_down"), why


def _told(episode: Episode, diff: str, cause: str, detail: str) -> Tried:
    usage = Usage(
        prompt_tokens=episode.prompt_tokens,
        output_tokens=episode.output_tokens,
        calls=len(episode.turns),
        tool_calls=len(episode.calls),
        invalid_calls=episode.invalid_calls,
        seconds=episode.seconds,
        model_seconds=sum(turn.model_s for turn in episode.turns),
        counted=all(turn.usage.told for turn in episode.turns),
    )
    stop = str(episode.stop or "")
    return Tried(diff, episode.final_text, usage, stop, cause, detail, episode.generations, episode)


def _of_model(episode: Episode, diff: str) -> tuple[str, str]:
    """What is to be said of how the agent went about it, if anything."""
    killed = sum(call.tool_error == "killed" for call in episode.calls)
    if killed and killed * 2 >= len(episode.calls):
        return "output_flood", f"{killed} of {len(episode.calls)} calls were ended, then {episode.stop}"
    cause = causes.of_stop(episode.stop)
    if cause:
        return cause, causes.TABLE[cause].what
    if not episode.final_text.strip() and not diff.strip():
        return "no_answer", f"after {len(episode.turns)} model calls"
    return "", ""
