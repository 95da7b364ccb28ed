"""Items of OpenAI's Responses API that are neither messages nor functions: its own tools, and tool servers.

The patch tool, the two shells, what runs at the service (search, interpreter, pictures), calls of MCP servers
and a person's answer to whether one may be made. Types by openai-python, `types/responses`. For `chat`.
Not for: calls of functions and free-form tools, which are alike in all APIs.
"""

from __future__ import annotations

from typing import Any

from cursorbench.sessions.calls import Arguments, Call, Result, arguments_of, json_text
from cursorbench.sessions.reading import list_of, table_of, text_of
from cursorbench.sessions.records import first_text

_AT_SERVICE = ("web_search", "file_search", "code_interpreter", "image_generation")
_ENDS = ("apply_patch", "shell", "local_shell")  # run by the client: their ends are items of their own

KINDS: dict[str, str] = {  # the role of each
    **dict.fromkeys((f"{name}_call" for name in (*_AT_SERVICE, *_ENDS, "mcp")), "assistant"),
    "mcp_approval_request": "assistant",
    **dict.fromkeys((f"{name}_call_output" for name in _ENDS), "tool"),
    "mcp_approval_response": "tool",
}
_OPERATIONS = {"create_file": "Add File", "update_file": "Update File", "delete_file": "Delete File"}


def told(item: dict[str, Any]) -> tuple[list[Call], list[Result]]:
    """The call and the end of one that an item of `KINDS` tells."""
    kind = text_of(item.get("type"))
    if KINDS[kind] == "tool":
        return [], _refused(item) if kind.startswith("mcp") else _end(item, kind.removesuffix("_call_output"))
    if kind.startswith("mcp"):  # what was asked for is told already, under the question's id
        one = first_text(item, "approval_request_id", "id")
        asks = kind == "mcp_approval_request"
        return [_named(item, one)], [] if asks else _ended(item, one)
    name, one = kind.removesuffix("_call"), first_text(item, "call_id", "id")
    if name == "apply_patch":
        return [Call(one, name, _patch(table_of(item.get("operation"))))], []
    if name in _ENDS:
        return [Call(one, "shell", arguments_of(item.get("action")))], []
    asked = {key: item[key] for key in ("action", "queries", "code") if item.get(key) is not None}
    return [Call(one, name, arguments_of(asked or None))], _ended(item, one)


def _named(item: dict[str, Any], one: str) -> Call:
    return Call(one, text_of(item.get("name")), arguments_of(item.get("arguments")))


def _patch(operation: dict[str, Any]) -> Arguments:
    """The operation as logged; what it changes is read as the envelope that Codex writes."""
    header, path = _OPERATIONS.get(text_of(operation.get("type"))), text_of(operation.get("path"))
    if header is None or not path:
        return Arguments(text=json_text(operation))
    diff = text_of(operation.get("diff")).removesuffix("\n")
    patch = f"*** Begin Patch\n*** {header}: {path}\n{diff}\n*** End Patch\n"
    return Arguments(text=json_text(operation), table={"patch": patch})


def _end(item: dict[str, Any], name: str) -> list[Result]:
    one, output = first_text(item, "call_id", "id"), item.get("output")
    if name != "shell":
        return [Result(one, text_of(output), item.get("status") == "failed")]
    parts = [table_of(part) for part in list_of(output)]
    text = "\n".join(filter(None, (text_of(part.get(key)) for part in parts for key in ("stdout", "stderr"))))
    outcomes = [table_of(part.get("outcome")) for part in parts]
    wrong = any(one.get("type") == "timeout" or one.get("exit_code") not in (0, None) for one in outcomes)
    return [Result(one, text, wrong)]


def _ended(item: dict[str, Any], one: str) -> list[Result]:
    """How a call ended that the service made; nothing of one that is under way."""
    error, status = item.get("error"), item.get("status")
    if error or status in ("failed", "incomplete"):
        return [Result(one, error if isinstance(error, str) else json_text(error or ""), wrong=True)]
    if status not in ("completed", None):
        return []
    return [Result(one, text_of(item.get("output")))]


def _refused(item: dict[str, Any]) -> list[Result]:
    """A person's no. After a yes the call itself tells the rest."""
    if item.get("approve") is not False:
        return []
    one = text_of(item.get("approval_request_id"))
    return [Result(one, "", refused=True, reason=text_of(item.get("reason")))]
