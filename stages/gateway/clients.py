"""What clients tell of their own accord, by headers and in their first words, which nobody has to set."""

from __future__ import annotations

from stages.gateway.http import Scope, header

_RETRIES = b"x-stainless-retry-count"  # of the clients that Stainless makes: OpenAI's, Anthropic's, others'
_SESSION = (b"x-claude-code-session-id", b"x-claude-code-agent-id")  # Claude Code's, and of its sub-agents
_MOST = 200  # bytes of each
_SIGNED = "x-anthropic-billing-header:"  # by Claude Code, each request for its maker: nothing to a model


def retried(scope: Scope) -> bool:
    """Whether the client sent this again by itself."""
    retries = header(scope, _RETRIES)
    return retries.isdigit() and bool(retries.strip(b"0"))


def conversation(scope: Scope) -> str:
    """The client's own name for the conversation, "" for none.

    It is no session's: what a client asks for itself meanwhile, for a title say, has the same.
    """
    told = [header(scope, name)[:_MOST].decode("latin-1") for name in _SESSION]
    return "\0".join(told) if told[0] else ""


def unsigned(system: str) -> str:
    """A system prompt without its first line, where that signs the request: it is new with each."""
    return system.partition("\n")[2] if system.startswith(_SIGNED) else system
