"""Workspaces with an experience to report on: made by the real stages, of logs and of a served line."""

from __future__ import annotations

import json
from pathlib import Path

from stages.collect.logs.source import Source
from stages.collect.run import CollectStage
from stages.distill.run import DistillStage
from stages.init import init_bare
from stages.registry.store import Store
from stages.runner import run_stage
from stages.workspace import Workspace

DAY = 86_400
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
REQUESTS = [
    f"<b>add</b> a cart to shop.py, my key is {SECRET}",
    "still broken, it raises KeyError",
    "thanks, now the till",
]


def write_log(path: Path, session: str, model: str, first_at: int, requests: list[str]) -> None:
    """An OpenAI request log: each request repeats the conversation so far."""
    messages: list[dict[str, str]] = []
    with path.open("a", encoding="utf-8") as file:
        for n, request in enumerate(requests):
            messages.append({"role": "user", "content": request})
            answer = {"role": "assistant", "content": f"answer {n} of {session}"}
            line = {
                "session_id": session,
                "timestamp": first_at + 60 * n,
                "request": {"model": model, "messages": list(messages)},
                "response": {"id": f"{session}-{n}", "model": model, "choices": [{"message": answer}]},
            }
            file.write(json.dumps(line) + "\n")
            messages.append(answer)


def of_logs(root: Path, sessions: int = 24) -> tuple[Workspace, Store]:
    """Sessions of three requests each, one a day, of two models in turn."""
    log = root / "log.jsonl"
    for n in range(sessions):
        write_log(log, f"s{n}", f"m{n % 2}", 1_760_000_000 + n * DAY, REQUESTS)
    workspace = init_bare(root / "ws")
    store = Store.open(workspace.store_dir)
    run_stage(workspace, store, CollectStage(source=Source((log,), "openai-log", "", "shop")))
    run_stage(workspace, store, DistillStage())
    return workspace, store
