"""The APIs that are spoken."""

from __future__ import annotations

from stages.gateway.dialects import messages, responses
from stages.gateway.dialects.form import PLAIN, Dialect

CHAT = Dialect("chat", lambda body: (body, PLAIN))
COMPLETIONS = Dialect("completions", lambda body: (body, PLAIN))
MESSAGES = Dialect("chat", messages.read, messages.FIELDS)
MESSAGES_PROMPT = Dialect("chat", lambda body: (messages.conversation(body), PLAIN), messages.FIELDS)
RESPONSES = Dialect("chat", responses.read, responses.FIELDS)
