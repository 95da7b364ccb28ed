"""What single fields of Copilot's events tell: who wrote a message, how a call ended, who decided.

The names are those of `session-events.ts` in github/copilot-sdk, and of events that are in logs of 1.0.86 to
1.0.92 only: the runtime's trace of its calls (`model.*`), which repeats what other events say.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any

from cursorbench.sessions.calls import json_text
from cursorbench.sessions.items import Automatic, Outcome
from cursorbench.sessions.reading import list_of, table_of, text_of

_IGNORED = """
    agent.interrupted assistant.fusion_phase_activity assistant.fusion_phase_completed
    assistant.fusion_phase_failed assistant.fusion_phase_started assistant.idle assistant.intent
    assistant.message_delta assistant.message_start assistant.reasoning_delta
    assistant.server_tool_progress assistant.streaming_delta assistant.tool_call_delta assistant.turn_end
    assistant.turn_retry assistant.turn_start assistant.usage auto_mode_switch.completed
    auto_mode_switch.requested capabilities.changed command.completed command.execute command.queued
    commands.changed elicitation.completed elicitation.requested exit_plan_mode.requested
    external_tool.completed factory.run_settled factory.run_started factory.run_updated hook.end
    hook.progress hook.start mcp.headers_refresh_completed mcp.headers_refresh_required
    mcp.oauth_completed mcp.oauth_required mcp.prompts.list_changed mcp.resources.list_changed
    mcp.tools.list_changed mcp_app.tool_call_complete model.call_failure model.call_finished
    model.call_start model.captured_assignment_context model.message model.messages_snapshot
    model.model_call_failure model.model_call_started model.model_call_success model.response
    model.tool_execution model.turn_ended model.turn_failed model.turn_started pending_messages.modified
    permission.assentDetected permission.carriedForward permission.contextualAuthorization
    permission.messageAuthorization permission.messageAuthorizationDegraded
    permission.messageAuthorizationRead sampling.completed sampling.requested sandbox.decision
    session.auto_mode_resolved session.auto_tier_recommendation session.auto_tier_switch_failed
    session.autopilot_objective_changed session.background_tasks_changed session.binary_asset
    session.canvas.closed session.canvas.opened session.canvas.recorded session.canvas.registry_changed
    session.canvas.removed session.canvas.unavailable session.compaction_start session.completion_receipt
    session.context_changed session.context_cleared session.custom_agents_updated
    session.custom_notification session.error session.extensions.attachments_pushed
    session.extensions_loaded session.fusion_change_checkpoint session.fusion_commit_started
    session.fusion_completed session.fusion_handoff session.fusion_resolved session.fusion_route_failed
    session.fusion_route_started session.handoff session.idle session.import_legacy session.indexed_search
    session.info session.managed_settings_enforced session.managed_settings_resolved
    session.mcp_server_added session.mcp_server_needs_reconnect session.mcp_server_removed
    session.mcp_server_status_changed session.mcp_servers_loaded session.mode_changed
    session.mode_notice_delivered session.model_deselected session.permission_recovery
    session.permissions_changed session.plan_changed session.remote_steerable_changed session.retained
    session.schedule_cancelled session.schedule_created session.schedule_rearmed
    session.session_limits_changed session.shutdown session.skills_loaded session.task_complete
    session.title_changed session.todos_changed session.tools_updated session.truncation
    session.usage_checkpoint session.usage_info session.usage_record session.warning
    session.workspace_file_changed
    session_limits_exhausted.completed session_limits_exhausted.requested skill.context_delivered
    skill.context_delivered_ref skill.invoked skill.invoked_ref subagent.completed subagent.configured
    subagent.deselected subagent.failed subagent.selected subagent.started system.message
    tool.execution_partial_result tool.execution_progress tool_search.activated ui.ephemeral_query
    user_input.completed user_input.requested
"""
IGNORED = frozenset(_IGNORED.split())  # known to exist, and nothing in them that is an item


_TYPE = re.compile(
    rb'"type"\s*:\s*"(?:session\.(?:start|resume|model_change|info)|user\.message|assistant\.(?:message|turn_start)'
    rb'|tool\.execution_(?:start|complete)|hook\.(?:start|end)|permission\.(?:requested|completed))"'
)
_DATA = re.compile(rb'"data"\s*:\s*\{')
_STOPPED = "The execution of this tool, or a previous tool was interrupted"  # to calls that a stop left open
_SHELL = re.compile(r"(?:(?:read|write)_)?(?:bash|powershell)")
# all that the CLI's own shells tell of an exit code (github/copilot-sdk#1803): such a call has `success` true
_FOOTER = re.compile(r"<[^<>\n]{0,80}\bexit code (-?\d{1,10})>\s*\Z")


def is_log(head: bytes) -> bool:
    """Whether the first bytes of a file hold events with their data."""
    return bool(_TYPE.search(head) and _DATA.search(head))


def content_of(kind: str, at: int, data: dict[str, Any]) -> str:
    """What an event's copies have, too: VS Code's forks have ids of their own, as has what it truncates."""
    text = json_text(data)
    return f"{kind} {at} {blake2b(text.encode(), digest_size=16).hexdigest()}" if text else ""


def automatic(message: dict[str, Any]) -> Automatic:
    """Why no person wrote a `user.message`, "" when its fields do not tell."""
    source = text_of(message.get("source")).lower()
    if message.get("isAutopilotContinuation") is True:
        return "continuation"
    if source.startswith("agent"):
        return "sub_agent"
    if source.startswith("command") or message.get("agentMode") == "shell":
        return "command"
    if source not in ("", "user", "human") or table_of(message.get("crossSession")):
        return "meta"  # the latter: another session sent it
    typed = text_of(message.get("content")).strip() or list_of(message.get("attachments"))
    if not typed and message.get("transformedContent"):
        return "continuation"  # of autopilot, before that was marked: all its words are the client's
    return ""


def ending(data: dict[str, Any], tool: str) -> tuple[Outcome, str]:
    """How a `tool.execution_complete` of that tool ended and its text, in the shapes the event has had."""
    result, error = data.get("result"), table_of(data.get("error"))
    fields = table_of(result)
    words = (result, fields.get("content"), fields.get("text_result_for_llm"), fields.get("textResultForLlm"))
    text = next((word for word in words if isinstance(word, str)), "")
    text = text or text_of(error.get("message")) or text_of(data.get("error"))
    kind = (
        text_of(fields.get("result_type")) or text_of(fields.get("resultType")) or text_of(error.get("code"))
    )
    if kind == "rejected":
        return "rejected", text
    stopped = data.get("success") is not True and text.startswith(_STOPPED)
    if stopped or kind in ("aborted", "cancelled", "canceled", "interrupted"):
        return "interrupted", text
    failed = kind in ("failure", "denied", "error", "timeout") or bool(error)
    failed = failed or bool(_exit(data, fields, text if _SHELL.fullmatch(tool) else ""))
    return "error" if data.get("success") is False or failed else "ok", text


def _exit(data: dict[str, Any], result: dict[str, Any], shown: str) -> int:
    """A shell command's exit code where the event, or the end of what a shell has `shown`, tells one."""
    for part in [data.get("shellExecution"), *list_of(result.get("contents"))]:
        code = table_of(part).get("exitCode")
        if isinstance(code, int):
            return code
    found = _FOOTER.search(shown, max(0, len(shown) - 200))
    return int(found[1]) if found else 0


def denied(decision: dict[str, Any]) -> Outcome | None:
    """How a `permission.completed` ended a call: None for a yes, and where the call's own end tells it.

    A judge, the host's policy and the want of a person say no in a person's words: then it is an error.
    """
    if table_of(decision.get("result")).get("kind") != "denied-interactively-by-user":
        return None
    return "rejected" if decision.get("decisionSource") in (None, "human_response") else "error"
