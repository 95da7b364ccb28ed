"""SWE-agent trajectories: one `.traj` document per task, with no user in it.

{trajectory: [{action, observation, response, thought, state}], history: [messages], info, replay_config}. A
step of the trajectory is an answer, its one action and what came of it; the history tells the tool call that
the action was made of. Not for: the system prompt, and demonstrations put into the history.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from cursorbench.sessions.calls import Change, arguments_of, changes_of, edits, json_text
from cursorbench.sessions.items import (
    AgentTurn,
    Outcome,
    Place,
    Quarantined,
    Read,
    SessionStart,
    ToolEnd,
    ToolUse,
    UserTurn,
)
from cursorbench.sessions.reading import json_document, json_value, list_of, table_of, text_of
from cursorbench.sessions.seen import Seen

KIND = "swe-agent"
_KEYS = re.compile(rb'"(?:trajectory|history|environment|replay_config)"\s*:')
_FAILED = re.compile(
    r"\s*(?:Your (?:bash )?command contained syntax errors|The command .{0,2000} was cancelled because"
    r"|Your proposed edit has introduced new syntax error|Interactive operation .{0,300} is not supported"
    r"|EXECUTION TIMED OUT|COMMAND FAILED TO EXECUTE|Your output could not be parsed"
    r"|Traceback \(most recent call last\))",
    re.DOTALL,
)
_EDITOR = "str_replace_editor"
_NOT_EDITED = re.compile(  # what that tool prints, of which nothing else says that it failed
    r"\s*(?:No (?:replacement was performed|edit history found)|File already exists at|Ran into |usage: "
    r"|The path .{0,4096}? (?:does not exist|is not an absolute path|is a directory)|Invalid `|Parameter `"
    r"|Unrecognized command)",
    re.DOTALL,
)
_EDIT = re.compile(r"edit\s+\d+:\d+\s*\n(.*?)(?:\n?end_of_edit\s*)?\Z", re.DOTALL)
_CREATE = re.compile(r"create\s+(\S+)\s*\Z")
_FILE = re.compile(r"^diff --git a/.*? b/(.*?)\r?$", re.MULTILINE)


def recognises(path: Path, head: bytes) -> bool:
    """By the name, or a document of steps with action and observation."""
    if path.suffix == ".traj":
        return head.lstrip().startswith(b"{")
    return (
        bool(_KEYS.search(head)) and b'"observation"' in head and b'"action"' in head and b'"thought"' in head
    )


def read(path: Path, seen: Seen) -> Iterator[Read]:
    """The items of one trajectory. Raises OSError when it cannot be read at all."""
    document = json_document(path)
    if isinstance(document, Quarantined):
        yield document
    elif isinstance(document, list) or not (document.keys() & {"trajectory", "history"}):
        yield Quarantined(Place(str(path)), "not a document with a trajectory or history")
    else:
        yield from _Trajectory(path, document).read(seen)


class _Trajectory:
    """One task."""

    def __init__(self, path: Path, document: dict[str, Any]) -> None:
        self.document = document
        self.config = table_of(json_value(document.get("replay_config")))  # newer versions keep it as text
        problem = table_of(self.config.get("problem_statement"))
        task, run = text_of(problem.get("id")) or path.stem, json_text(document).encode()
        self.session = f"{task}@{blake2b(run, digest_size=8).hexdigest()}"  # a task has many runs
        self.where: dict[str, Any] = {"session": self.session, "at": None, "place": Place(str(path))}
        agent = table_of(self.config.get("agent"))
        self.model = text_of(table_of(agent.get("model")).get("name"))
        self.history = list_of(document.get("history"))
        self.actions = [one for one in map(table_of, self.history) if _is_action(one)]
        self.edited: set[str] = set()

    def read(self, seen: Seen) -> Iterator[Read]:
        """Start, task, steps, and the files that only the submitted diff tells of."""
        info = table_of(self.document.get("info"))
        steps = list_of(self.document.get("trajectory")) or list(self._steps_of_history())
        if not seen.first(self.session, "session start"):
            return  # the same run once more
        repo = table_of(table_of(self.config.get("env")).get("repo"))
        yield SessionStart(
            **self.where,
            agent="swe-agent",
            version=text_of(info.get("swe_agent_version")),
            commit=text_of(repo.get("base_commit")),
        )
        task = next((one for one in map(table_of, self.history) if _is_task(one)), {})
        if text := _content(task):
            yield UserTurn(**self.where, text=text, automatic="meta")
        for number, step in enumerate(steps):
            if isinstance(step, dict):
                yield from self._step(number, step)
            else:
                yield Quarantined(self.where["place"], "a step that is no table")
        yield from self._submitted(text_of(info.get("submission")))

    def _step(self, number: int, step: dict[str, Any]) -> Iterator[Read]:
        thought, action = step.get("thought"), step.get("action")
        said = thought if isinstance(thought, str) and thought else text_of(step.get("response"))
        if not said and not isinstance(action, str):
            yield Quarantined(self.where["place"], "a step without thought and action")
            return
        if said:
            yield AgentTurn(**self.where, text=said, model=self.model)
        if isinstance(action, str) and action.strip():
            yield from self._call(number, action, step)

    def _call(self, number: int, action: str, step: dict[str, Any]) -> Iterator[Read]:
        call, name, arguments = self._made_of(action)
        call = call or f"step-{number}"  # the log has none, and an edit is known by its call
        given = arguments_of(arguments)
        name = name or action.split(maxsplit=1)[0]
        text = given.text if given.text or given.invalid else json_text(action)
        yield ToolUse(**self.where, id=call, name=name, arguments=text, invalid=given.invalid)
        if not isinstance(observation := step.get("observation"), str):
            return
        failed = _FAILED.match(observation) or (name == _EDITOR and _NOT_EDITED.match(observation))
        outcome: Outcome = "error" if failed else "ok"
        changes = changes_of(name, given.table) or _changes(action, _state(step))
        yield from edits(changes, "proposed", call=call, **self.where)
        yield ToolEnd(**self.where, id=call, outcome=outcome, text=observation)
        if outcome == "ok":
            self.edited.update(change.path for change in changes)
            yield from edits(changes, "applied", call=call, **self.where)

    def _made_of(self, action: str) -> tuple[str, str, object]:
        """Id, name and arguments of the history's tool call behind this action; its order is the same."""
        for place, message in enumerate(self.actions[:50]):
            if text_of(message.get("action")).strip() == action.strip():
                del self.actions[: place + 1]
                called = table_of(next(iter(list_of(message.get("tool_calls"))), None))
                function = table_of(called.get("function"))
                return text_of(called.get("id")), text_of(function.get("name")), function.get("arguments")
        return "", "", None

    def _steps_of_history(self) -> Iterator[dict[str, Any]]:
        """Steps of documents that have a history only, as demonstrations do."""
        step: dict[str, Any] = {}
        for message in map(table_of, self.history):
            if _is_action(message):
                if step:
                    yield step
                called = table_of(next(iter(list_of(message.get("tool_calls"))), None))
                action = message.get("action") or table_of(called.get("function")).get("arguments")
                message["action"] = text_of(action)
                step = {
                    "thought": text_of(message.get("thought")) or _content(message),
                    "action": text_of(action),
                }
            elif step and message.get("role") in ("user", "tool"):
                yield {**step, "observation": _content(message)}
                step = {}
        if step:
            yield step

    def _submitted(self, diff: str) -> Iterator[Read]:
        """The submitted diff's files that no step told of: commands change files too."""
        starts = [*_FILE.finditer(diff)]
        ends = [*(one.start() for one in starts[1:]), len(diff)]
        found = [(one[1], diff[one.start() : end]) for one, end in zip(starts, ends, strict=False)]
        left = [Change(path, diff=text) for path, text in found if not self._is_edited(path)]
        yield from edits(tuple(left), "applied", call="submission", **self.where)

    def _is_edited(self, path: str) -> bool:
        return any(one == path or one.endswith(f"/{path}") for one in self.edited)


def _is_action(message: dict[str, Any]) -> bool:
    return message.get("role") == "assistant" and message.get("is_demo") is not True


def _is_task(message: dict[str, Any]) -> bool:
    return message.get("role") == "user" and message.get("is_demo") is not True


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(filter(None, (text_of(table_of(part).get("text")) for part in list_of(content))))


def _state(step: dict[str, Any]) -> dict[str, Any]:
    return table_of(json_value(step.get("state")))


def _changes(action: str, state: dict[str, Any]) -> tuple[Change, ...]:
    """The changes of actions in text: lines replaced in the open file, a new one, or as a shell's command."""
    if action.startswith(_EDITOR):
        return changes_of(_EDITOR, _options(action))
    opened = text_of(state.get("open_file"))
    if (found := _EDIT.match(action)) and opened not in ("", "n/a"):
        return (Change(opened, after=found[1]),)
    if found := _CREATE.match(action):
        folder = text_of(state.get("working_dir")).rstrip("/")
        return (
            Change(found[1] if found[1].startswith("/") or not folder else f"{folder}/{found[1]}", before=""),
        )
    return ()


def _options(action: str) -> dict[str, Any]:
    """The editor's arguments where the model has no functions to call: `EDITOR COMMAND PATH --...`."""
    try:
        _, command, path, *options = shlex.split(action)
    except ValueError:  # a quote that is not closed, or too few words
        return {}
    names = (name.removeprefix("--") for name in options[::2])
    return {"command": command, "path": path} | dict(zip(names, options[1::2], strict=False))
