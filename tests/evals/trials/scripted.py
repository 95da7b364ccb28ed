"""A server that speaks the OpenAI API and whose models misbehave, each in its own way, by name."""

from __future__ import annotations

import json
import shlex
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.cursorbench.suites import CHANGES

Message = dict[str, Any]
SLOW_S = 600.0


def call(command: str) -> Message:
    """A message that runs a shell command."""
    function = {"name": "run", "arguments": json.dumps({"command": command})}
    return {"content": None, "tool_calls": [{"id": "c1", "type": "function", "function": function}]}


def written(files: dict[str, str]) -> str:
    """The command that writes files."""
    return " && ".join(f"printf %s {shlex.quote(text)} > {name}" for name, text in files.items())


def solution(messages: list[Message]) -> dict[str, str]:
    """The files that solve the task that is asked for."""
    asked = next(str(one["content"]) for one in messages if one["role"] == "user")
    return next(dict(change.sources) for change in CHANGES if change.instruction in asked)


HOOK = """\
import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    report.outcome, report.longrepr = "passed", None
"""
WRONG = {"words/counting.py": "def count(text):\n    return -1\n"}
SAME: dict[str, Message] = {  # models that say the same whatever they are told
    "silent": {"content": ""},
    "asker": {"content": "Which blanks do you mean?"},
    "looper": call("ls"),
    "flooder": call("yes flood"),
    "hoarder": call("truncate -s 100M big"),
    "breaker": {"content": '<tool_call>\n{"name": "run", "argum\n</tool_call>'},
    "long": {"content": "and " * 200},
    "slow": {"content": "late"},
}
FIRST: dict[str, tuple[int, str]] = {  # engines that refuse a first request; `narrow` any
    "short": (400, "This model's maximum context length is 64 tokens. However, you requested 4096"),
    "picky": (422, "messages must not hold the word"),
    "narrow": (400, "This model's maximum context length is 64 tokens. However, you requested 4096"),
}
ERRORS: dict[str, tuple[int, str]] = {
    "down": (503, ""),
    "proxy": (404, ""),
    "locked": (401, ""),
    "other": (404, "model_not_found"),
}


def answer(model: str, messages: list[Message]) -> tuple[int, Message, str]:
    """Status, message and finish reason of a model's next answer."""
    name, first = model.partition("-")[0], messages[-1]["role"] == "user"
    if name == "slow":
        time.sleep(SLOW_S)
    if name == "full" and not first:
        return 400, {"error": {"message": "too long", "code": "context_length_exceeded"}}, ""
    if name.isdecimal() and not first:  # that status, once a conversation is under way
        return int(name), {"error": {"message": "from a proxy", "code": ""}}, ""
    if name in FIRST and (name == "narrow" or str(messages[-1]["content"]) != "."):
        return FIRST[name][0], {"error": {"message": FIRST[name][1], "code": FIRST[name][0]}}, ""
    if name in ERRORS:
        status, code = ERRORS[name]
        return status, {"error": {"message": name, "code": code}}, ""
    if name in SAME:
        return 200, {"role": "assistant", **SAME[name]}, "length" if name == "long" else "stop"
    files = {
        "solver": lambda: solution(messages),
        "failer": lambda: WRONG,
        "forger": lambda: {"conftest.py": HOOK},
    }
    said = call(written(files[name]()) if name in files else "ls") if first else {"content": "Done."}
    return 200, {"role": "assistant", **said}, "stop"


@dataclass
class Scripted:
    """The running server: its address, and how often each model was asked."""

    url: str
    asked: Counter[str] = field(default_factory=Counter)


@contextmanager
def serving() -> Iterator[Scripted]:
    """A server on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found.asked[body["model"]] += 1
            status, message, finish = answer(body["model"], body["messages"])
            if status == 200:
                usage = {"prompt_tokens": 100, "completion_tokens": 10}
                choice = {"index": 0, "message": message, "finish_reason": finish}
                self._send(200, {"id": "x", "choices": [choice], "usage": usage})
            else:
                self._send(status, message)

        def do_GET(self) -> None:
            self._send(200, {"data": [{"id": "solver"}]})

        def _send(self, status: int, document: Message) -> None:
            content = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found = Scripted(f"http://127.0.0.1:{server.server_port}/v1")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
