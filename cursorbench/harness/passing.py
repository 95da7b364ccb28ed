"""What of an agent's request goes to the server: what asks the model under test, nothing beyond it.

Servers read more in a body than that: whose request it is, which other models may answer, and tools that they
run themselves (a search of the web, say), and fetch what an address leads to. An agent in a sandbox without a
network could look its task up, tell others of it, or have a stronger model do it. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# whose it is (rtrl's gateway); other models (OpenRouter, LiteLLM); what the server does besides, or later
_FURTHER = (
    *("user", "models", "fallbacks", "route", "provider", "plugins"),
    *("context_window_fallbacks", "content_policy_fallbacks", "extra_body"),  # the last may have all of these
    *("web_search_options", "mcp_servers", "container", "background"),
)
# types of tools that whoever asks runs itself: OpenAI's, then those that Anthropic's models know by a date
_OF_CLIENTS = re.compile(
    "function|custom|namespace|local_shell|apply_patch|tool_search|(?:bash|text_editor|memory|computer)_\\w+"
)

_SAID = ("messages", "input", "system")  # of a request
_PARTS = ("content", "output", "source")  # of a message, or a part of one
_FETCHED = ("image_url", "video_url", "audio_url", "file_url")  # of a part of a message
_FILES = ("file_id", "file_data", "file_url")  # of its `file`
_DEEP = 16  # lists and parts within one another: a tool's result in a message has some


def passed(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body without what would reach further than the model."""
    found = {name: value for name, value in body.items() if name not in _FURTHER}
    if isinstance(told := body.get("metadata"), dict):
        found["metadata"] = {name: value for name, value in told.items() if not name.startswith("rtrl_")}
    if isinstance(items := body.get("input"), list):
        found["input"] = [_own(one) if _is(one, "additional_tools") else one for one in items]
    return _own(found | {name: _here(found[name], _DEEP) for name in _SAID if name in found})


def _here(told: Any, deep: int) -> Any:
    """The same with a word in the place of each part that the server would fetch from elsewhere; what is
    there in full (`data:`) stays."""
    if isinstance(told, list) and deep:
        return [_here(one, deep - 1) for one in told]
    if not isinstance(told, dict) or not deep:
        return told
    source = told.get("source")  # an address by itself is where a text is from
    named = (*map(told.get, _FETCHED), source if isinstance(source, dict) else None)
    if any(map(_is_elsewhere, named)) or _is_a_file_elsewhere(told.get("file")):
        text = "input_text" if str(told.get("type")).startswith("input_") else "text"
        return {"type": text, "text": "[an address: nothing is fetched in a trial]"}
    return {name: _here(one, deep - 1) if name in _PARTS else one for name, one in told.items()}


def _is_elsewhere(address: object) -> bool:
    if isinstance(address, dict):
        address = address.get("url")
    return isinstance(address, str) and address[:5].lower() != "data:"


def _is_a_file_elsewhere(file: object) -> bool:
    """LiteLLM fetches a file whose id, or whose bytes, are an address; neither has a colon otherwise."""
    said = map(file.get, _FILES) if isinstance(file, dict) else ()
    return any(isinstance(one, str) and ":" in one and _is_elsewhere(one) for one in said)


def _own(declares: dict[str, Any]) -> dict[str, Any]:
    """What declares tools without those that run at the server; no list where none is left."""
    if not isinstance(tools := declares.get("tools"), list):
        return declares
    kept = [_own(one) if _is(one, "namespace") else one for one in tools if _is_a_clients(one)]
    rest = {name: value for name, value in declares.items() if name != "tools"}
    return {**rest, "tools": kept} if kept or not tools else rest


def _is(one: object, kind: str) -> bool:
    return isinstance(one, dict) and one.get("type") == kind


def _is_a_clients(tool: object) -> bool:
    kind = tool.get("type") if isinstance(tool, dict) else None
    return kind is None or (isinstance(kind, str) and _OF_CLIENTS.fullmatch(kind) is not None)
