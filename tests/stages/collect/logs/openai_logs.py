"""OpenAI request logs, as a client writes them: each request repeats the conversation so far."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

REQUESTS = ["add a cart to shop.py", "still broken, it raises KeyError", "thanks, now the till"]


def log_of(path: Path, session: str, requests: Sequence[str], first_at: int = 1_760_000_000) -> None:
    """Write the log of one session, a request a minute."""
    messages: list[dict[str, str]] = []
    lines = []
    for n, request in enumerate(requests):
        messages.append({"role": "user", "content": request})
        answer = {"role": "assistant", "content": f"answer {n}"}
        lines.append(
            {
                "session_id": session,
                "timestamp": first_at + 60 * n,
                "request": {"model": "m1", "messages": list(messages)},
                "response": {
                    "id": f"{session}-{n}", "model": "m1", "choices": [{"index": 0, "message": answer}],
                },
            }
        )  # fmt: skip
        messages.append(answer)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
