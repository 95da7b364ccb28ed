"""What single fields of a Codex rollout tell: messages Codex wrote itself, how calls ended, what changed.

The names are those of `protocol.rs`, `models.rs` and `policy.rs` of openai/codex, old and new.
"""

from __future__ import annotations

import ntpath
import posixpath
import re
from pathlib import PureWindowsPath
from typing import Any

from msgspec.structs import replace

from cursorbench.sessions.automatic import automatic_of
from cursorbench.sessions.calls import Change, changes_of, changes_of_patch
from cursorbench.sessions.items import Automatic, Feedback, Outcome
from cursorbench.sessions.reading import list_of, parsed, table_of, text_of
from cursorbench.sessions.refusals import command_refused

_LINES = """
    dynamic_tools_updated realtime_item record_type retained_context security_risk_score token_usage_record
    world_state
"""
_ITEMS = """
    additional_tools compaction compaction_summary compaction_trigger configuration_update context_compaction
    ghost_snapshot other
"""
_EVENTS = """
    agent_message_content_delta agent_message_delta agent_reasoning agent_reasoning_delta
    agent_reasoning_raw_content agent_reasoning_raw_content_delta agent_reasoning_section_break
    apply_patch_approval_request auth_recovery_completed auth_recovery_started background_event
    collab_agent_interaction_begin collab_agent_interaction_end collab_agent_spawn_begin
    collab_agent_spawn_end collab_close_begin collab_close_end collab_resume_begin collab_resume_end
    collab_waiting_begin collab_waiting_end context_compacted conversation_path deprecation_notice
    dynamic_tool_call_request dynamic_tool_call_response elicitation_abandoned elicitation_request
    entered_review_mode environment_connected environment_disconnected error exec_approval_request
    exec_command_begin exec_command_output_delta exited_review_mode get_history_entry_response
    guardian_assessment guardian_warning hook_completed hook_started image_generation_begin
    image_generation_end item_started list_custom_prompts_response list_remote_skills_response
    list_skills_response mcp_list_tools_response mcp_startup_complete mcp_startup_update
    mcp_tool_call_begin model_reroute model_verification patch_apply_begin patch_apply_updated plan_delta
    plan_update raw_response_item realtime_conversation_closed realtime_conversation_list_voices_response
    realtime_conversation_realtime realtime_conversation_sdp realtime_conversation_started
    reasoning_content_delta reasoning_raw_content_delta remote_skill_downloaded request_permissions
    request_user_input safety_buffering session_configured shutdown_complete skills_update_available
    stream_error stream_info sub_agent_activity terminal_interaction thread_goal_updated
    thread_name_updated thread_queue_changed thread_settings_applied token_count turn_diff
    turn_moderation_metadata undo_started view_image_tool_call warning web_search_begin web_search_end
"""
IGNORED_LINES, IGNORED_ITEMS, IGNORED_EVENTS = (
    frozenset(names.split()) for names in (_LINES, _ITEMS, _EVENTS)
)  # known to exist; nothing in them that is not told elsewhere, or that tells of a user or a file

# in another agent's log a person may begin with one of these
_INJECTED = re.compile(r"\s*<(?:instructions|skill|user_action)\b[^>]*>", re.IGNORECASE)
_IMAGE = re.compile(r"\s*(?:<image\b[^>]*>|</image>)\s*")
_REJECTED = re.compile(
    r"(?:\w[\w ]{0,60})?\brejected by (?:the )?user\W*"
    r"|(?:Wall time: [\d.]+ seconds\nOutput:\n)?(?:\w[\w ]{0,60}\b)?"
    r"user (?:rejected|cancelled) MCP tool call\W*",
    re.IGNORECASE,
)
_ABORTED = re.compile(
    r"(?:Wall time: [\d.]+ seconds\n)?aborted(?: by user(?: after [\d.]+ ?s)?)?\W*", re.IGNORECASE
)
_EXIT = re.compile(r"^(?:Process exited with code|Exit code:) (-?\d{1,10})\s*$", re.MULTILINE)
_FAILED = re.compile(
    r"(?:failed to parse function arguments|failed in sandbox|apply_patch verification failed"
    r"|execution error|exec_command failed|write_stdin failed|unsupported (?:custom tool )?call"
    r"|command timed out|invalid patch|request_user_input is unavailable in "
    r"|approval policy is \w+; reject command|Script failed\n"
    # until September 2025, of a patch that does not parse or apply, and where the settings refuse
    r"|error: (?:invalid (?:patch|hunk)|failed to |patch detected without)"
    r"|(?:exec command|patch) rejected: )",
    re.IGNORECASE,
)


def automatic(parts: list[str]) -> Automatic:
    """Why a user message was written by Codex itself; "" when any part of it may be a person's."""
    found: list[Automatic] = [_reason(part) for part in parts if part.strip()]
    return found[0] if found and all(found) else ""


def _reason(part: str) -> Automatic:
    return "meta" if _INJECTED.match(part) else automatic_of(part)


def is_abort(parts: list[str]) -> bool:
    """Whether this is the mark that Codex leaves where the user stopped it."""
    return bool(parts) and parts[0].lstrip().lower().startswith("<turn_aborted>")


def parts_of(content: object) -> list[str]:
    """The texts of a message; the marks around images are left out."""
    if isinstance(content, str):
        return [content]
    texts = [text_of(table_of(part).get("text")) for part in list_of(content)]
    return [text for text in texts if text and not _IMAGE.fullmatch(text)]


def ending(output: object) -> tuple[str, Outcome]:
    """The text of a tool's output and how the call ended.

    A command that ends with another exit code than 0 is an error, as it is in the logs of other agents.
    """
    fields = table_of(output)
    success, content = fields.get("success"), fields.get("content", fields.get("output", output))
    text = content if isinstance(content, str) else "\n".join(parts_of(content))
    start = text[:600].strip()
    if command_refused(text) or says_no(text):
        return text, "rejected"
    if len(text) < 200 and _ABORTED.fullmatch(start):
        return text, "interrupted"
    code = _exit_code(text)
    return text, "error" if success is False or code or (code is None and _FAILED.match(start)) else "ok"


def declined(event: dict[str, Any]) -> bool:
    """Whether a person refused what this event says was declined; so is what a rule or a reviewer refuses."""
    words = (text_of(event.get("aggregated_output")) or text_of(event.get("stderr")))[:600].strip()
    return event.get("status") == "declined" and (not words or _REJECTED.fullmatch(words) is not None)


def says_no(words: str) -> bool:
    """Whether these are Codex's words for a person's no."""
    return len(words) < 200 and _REJECTED.fullmatch(words.strip()) is not None


def rolled_back(event: dict[str, Any], **where: Any) -> Feedback:
    """How many turns the user took back; the files stay as they are."""
    number = event.get("num_turns")
    value = float(number) if isinstance(number, int) and 0 < number < 1e9 else 1.0
    return Feedback(**where, target="", name="rolled_back_turns", value=value)


def _exit_code(text: str) -> int | None:
    if text.startswith("{"):  # older versions: {"output": ..., "metadata": {"exit_code": 0, ...}}
        code = table_of(table_of(parsed(text.encode(errors="replace"))).get("metadata")).get("exit_code")
        return code if isinstance(code, int) else None
    found = _EXIT.search(text[:2000].partition("\nOutput:")[0])
    return int(found[1]) if found else None


def asked(name: str, table: dict[str, Any], raw: str = "") -> tuple[Change, ...]:
    """The changes a call asks for: apply_patch by itself or inside a shell command."""
    if raw or name == "apply_patch":
        return changes_of_patch(raw or text_of(table.get("input")) or text_of(table.get("patch")))
    command = table.get("cmd", table.get("command"))
    words = [command] if isinstance(command, str) else list_of(command)
    script = next((word for word in words if isinstance(word, str) and "*** Begin Patch" in word), "")
    if script and any(
        "apply_patch" in word or "applypatch" in word for word in words if isinstance(word, str)
    ):
        return changes_of_patch(script[script.index("*** Begin Patch") :])
    return () if words else changes_of(name, table)


def located(changes: tuple[Change, ...], folder: str) -> tuple[Change, ...]:
    """The changes with whole paths, as `patch_apply_end` tells them."""
    if not folder.startswith("/") and not PureWindowsPath(folder).is_absolute():
        return changes
    paths = posixpath if folder.startswith("/") else ntpath
    return tuple(replace(one, path=paths.normpath(paths.join(folder, one.path))) for one in changes)


def changed(changes: object) -> tuple[Change, ...]:
    """The files of a `patch_apply_end`, in both shapes the event has had."""
    found: list[Change] = []
    for path, given in table_of(changes).items():
        what = table_of(given)
        if len(what) == 1 and "type" not in what:  # {"update": {...}} before {"type": "update", ...}
            ((name, inner),) = what.items()
            what = {**table_of(inner), "type": name}
        content = what.get("content") if isinstance(what.get("content"), str) else None
        kind = what.get("type")
        if kind == "add":
            found.append(Change(path, before="", after=content))
        elif kind == "delete":
            found.append(Change(path, before=content, after=""))
        else:
            moved = text_of(what.get("move_path"))
            found += [Change(path)] if moved else []
            diff = what.get("unified_diff")
            found.append(Change(moved or path, diff=diff if isinstance(diff, str) else None))
    return tuple(found)
