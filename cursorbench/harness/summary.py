"""Self-summary: when the context fills, the model writes down what it needs and goes on from that.

The request to sum up is one more generation on the same conversation, so its prompt extends the one
before. What follows is a new conversation of system prompt, user's request and summary. All of these
generations are one episode and share its reward: a summary that loses what mattered costs what it
costs (Composer 2 report, arXiv 2603.24477, section on self-summarisation). Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]

ASK = (
    "The conversation is about to be cut off. Write a summary from which you can go on without it: what "
    "was asked, what you found out (files, names, line numbers), what you changed, what is left to do. "
    "Call no tool now."
)
_PLACES = re.compile(r"(\{request\}|\{summary\})")
RESTART = "{request}\n\nYou have worked on this already. Your summary of that work:\n\n{summary}"


@dataclass(frozen=True)
class SelfSummary:
    """When and how a conversation is summed up.

    Attributes:
        trigger_tokens: the size of the next prompt from which on a summary is asked for.
        max_tokens: output tokens of the summary at most.
        ask: the message that asks for it.
        restart: the first user message afterwards, from `request` and `summary`.
        at_most: summaries in one episode.
    """

    trigger_tokens: int
    max_tokens: int = 2048
    ask: str = ASK
    restart: str = RESTART
    at_most: int = 16

    def restarted(self, system: str, request: str, summary: str) -> list[Message]:
        """The conversation that goes on."""
        # not by `format`, nor one replacement after the other: requests and summaries are full of braces
        said = {"{request}": request, "{summary}": summary}
        text = "".join(said.get(part, part) for part in _PLACES.split(self.restart))
        return [{"role": "system", "content": system}, {"role": "user", "content": text}]
