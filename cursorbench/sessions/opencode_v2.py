"""What `opencode2 export` writes, in the form of older exports: a message is one table, not info and parts.

The names are those of `session-message.ts` and `session.ts` in packages/schema of OpenCode. Not for: what the
messages mean (`opencode.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from cursorbench.sessions.reading import list_of, table_of, text_of

_QUIET = {"agent-switched", "idle", "location-switched", "model-switched", "system"}
_DECLINED = ("The user declined this tool call", "The user dismissed this question")
_Parts = list[dict[str, Any]]


def info_of(export: dict[str, Any]) -> dict[str, Any]:
    """A session's info, which tells its folder as a place."""
    info = table_of(export.get("info"))
    folder = text_of(table_of(info.get("location")).get("directory"))
    return {**info, "directory": folder} if folder and "directory" not in info else info


def messages_of(export: dict[str, Any]) -> list[Any]:
    """The messages with info and parts; those of older exports, and of no known type, as they are."""
    messages = list_of(export.get("messages"))
    return [
        _older(one) for one in messages if text_of(table_of(one).get("type")) not in _QUIET or "info" in one
    ]


def _older(message: Any) -> Any:
    told = table_of(message)
    if "info" in told or (form := _FORMS.get(text_of(told.get("type")))) is None:
        return message
    info, parts = form(told)
    common = {"id": told.get("id"), "time": told.get("time")}
    return {"info": {**common, **info}, "parts": parts}


def _user(told: dict[str, Any]) -> tuple[dict[str, Any], _Parts]:
    files: _Parts = [{"type": "file"} for _ in list_of(told.get("files"))]
    text: _Parts = [{"type": "text", "text": told.get("text")}]
    return {"role": "user"}, text + files


def _synthetic(told: dict[str, Any]) -> tuple[dict[str, Any], _Parts]:
    return {"role": "user"}, [{"type": "text", "text": told.get("text"), "synthetic": True}]


def _shell(told: dict[str, Any]) -> tuple[dict[str, Any], _Parts]:
    """A command that the user ran."""
    return {"role": "user"}, [{"type": "subtask", "prompt": told.get("command"), "id": told.get("id")}]


def _compaction(told: dict[str, Any]) -> tuple[dict[str, Any], _Parts]:
    summary = text_of(told.get("summary"))
    return {"role": "assistant", "summary": True}, [{"type": "text", "text": summary, "id": told.get("id")}]


def _assistant(told: dict[str, Any]) -> tuple[dict[str, Any], _Parts]:
    content = [table_of(part) for part in list_of(told.get("content"))]
    parts = [_part(part, f"{text_of(told.get('id'))}.{n}") for n, part in enumerate(content)]
    info: dict[str, Any] = {"role": "assistant", "modelID": table_of(told.get("model")).get("id")}
    if error := text_of(table_of(told.get("error")).get("type")):
        declined = any(_error(part).startswith(_DECLINED) for part in content)  # such a no ends the turn, too
        info["error"] = {"name": "MessageAbortedError" if error == "aborted" and not declined else error}
    if files := list(_files(table_of(told.get("snapshot")), content)):
        parts.append({"type": "patch", "files": files, "id": f"{text_of(told.get('id'))}.files"})
    return info, parts


def _part(part: dict[str, Any], own: str) -> dict[str, Any]:
    time = table_of(part.get("time"))
    if part.get("type") != "tool":
        return {**part, "id": own, "time": {"start": time.get("created")}}
    state = table_of(part.get("state"))
    texts = [text_of(table_of(one).get("text")) for one in list_of(state.get("content"))]
    metadata = table_of(state.get("metadata")) or table_of(state.get("structured"))  # of its first versions
    changed = [table_of(one) for one in list_of(metadata.get("files"))]
    if len(changed) == 1 and "diff" not in metadata:
        metadata = {**metadata, "diff": changed[0].get("patch")}
    times = {"start": time.get("ran", time.get("created")), "end": time.get("completed")}
    told: dict[str, Any] = {
        "output": "\n".join(filter(None, texts)),
        "error": _error(part),
        "metadata": metadata,
        "time": times,
    }
    if state.get("status") == "streaming":
        told["input"] = None  # as far as they were written
    return {
        "type": "tool",
        "tool": part.get("name"),
        "callID": part.get("id"),
        "id": own,
        "state": {**state, **told},
    }


def _error(part: dict[str, Any]) -> str:
    return text_of(table_of(table_of(part.get("state")).get("error")).get("message"))


def _files(snapshot: dict[str, Any], content: list[dict[str, Any]]) -> Iterator[str]:
    """Files that the step changed, but for those that a tool tells, from the folder on or as a whole path."""
    told = set[str]()
    for part in content:
        state = table_of(part.get("state"))
        changed = [table_of(one).get("file") for one in list_of(table_of(state.get("metadata")).get("files"))]
        told |= {text_of(one) for one in (*changed, table_of(state.get("input")).get("path"))} - {""}
    for file in list_of(snapshot.get("files")):
        same = (f"/{one}".endswith(f"/{file}") or f"/{file}".endswith(f"/{one}") for one in told)
        if isinstance(file, str) and not any(same):
            yield file


_FORMS: dict[str, Callable[[dict[str, Any]], tuple[dict[str, Any], _Parts]]] = {
    "user": _user,
    "synthetic": _synthetic,
    "skill": _synthetic,
    "shell": _shell,
    "compaction": _compaction,
    "assistant": _assistant,
}
