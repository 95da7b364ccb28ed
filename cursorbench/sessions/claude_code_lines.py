"""Which lines there are in Claude Code's logs. For `claude_code`.

The names are those of the tables in the client that say what becomes of each, up to 2.1.332.
"""

from __future__ import annotations

import re

_SAYING = frozenset({"user", "assistant", "system", "progress", "attachment"})
_KEEPING = re.compile(  # the client's own notes: known to exist, nothing of an interaction in them
    r"summary|file-history-(snapshot|delta)|queue-operation|pr-link|last-prompt"
    r"|((permission|memory|repl)-)?mode|(ai|custom)-title|agent-(name|color|setting)|tag|worktree-state"
    r"|task-summary|cost-state|content-replacement|attribution-snapshot|(atis|isolation)-latch|bridge-session"
    r"|compact|frame-link|relocated|ended-by-model|fork-context-ref|observer-ref|history-suppression"
    r"|speculation-accept|artifact-(autoreact-ledger|comment-monitor)|teleported-from|continued-in"
    r"|api-request(-(shape|blob|resumed))?|tools-used|data-flow-(records|incomplete|handover)|derived-from"
    r"|dev-mods|resume-head-vouch|session-owner|hybrid-organization|host-row"
    r"|marble-origami-(commit|snapshot|reset)"
)
_OWNERS = {"summary": "leafUuid", "file-history-snapshot": "snapshot", "teleported-from": "remoteSessionId"}


def is_known(kind: str) -> bool:
    """Whether lines of that type are known, be it to tell nothing."""
    return kind in _SAYING or _KEEPING.fullmatch(kind) is not None


def is_line(line: object) -> bool:
    """Whether it is a line of such a log."""
    if not (isinstance(line, dict) and isinstance(kind := line.get("type"), str)):
        return False
    if kind in _SAYING:
        return "uuid" in line and ("sessionId" in line or "parentUuid" in line)
    return _KEEPING.fullmatch(kind) is not None and _OWNERS.get(kind, "sessionId") in line
