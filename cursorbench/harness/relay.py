"""The way of an outside agent to the model: a Unix socket that is bound into its sandbox.

One relay serves one trial. It knows the routes by which agents ask a model (`apis.py`) and the list of
models, no others: what runs in the sandbox can neither report events nor name itself somebody else. The key
it is given is made up; the real one, and whose request it is, are put in here. It counts what is used and
ends the budget.

Everything that comes through the socket was written by whoever is inside: sizes, connections and
times are bounded, and what is malformed gets an error.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import shutil
import socketserver
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Any

from cursorbench.errors import DependencyDownError, UsageError
from cursorbench.harness import apis, sse
from cursorbench.harness.apis import Api
from cursorbench.harness.budget import Budget
from cursorbench.harness.completion import CONTEXT_FULL, Attribution, RefusedError, is_of_the_request
from cursorbench.harness.driver import Driver, Endpoint
from cursorbench.harness.passing import passed
from cursorbench.harness.recording import Recorder
from cursorbench.harness.room import Room
from cursorbench.json_values import MAX_VALUES, values
from cursorbench.sandbox.protocol import Environment
from cursorbench.sandbox.sweep import FOLDER

PLACE = "/run/rtrl"  # inside: the folder with the socket and the forwarder
MAX_BODY = 16 << 20
MAX_BODIES = 2 * MAX_BODY  # of all that are under way: what is made of them takes several times that
CONNECTIONS = 32
IDLE_S = 60.0  # for a request to come in
PLAIN_S = 10.0  # for an answer of one token

COUNT = "/v1/messages/count_tokens"  # asks the model nothing
_PASSED = ("content-type",)


class Relay:
    """A socket and who answers at it. Use as a context manager.

    Args:
        endpoint: where the model is served.
        budget: what the agent may use of it.
        attribution: whose requests they are.
    """

    def __init__(self, endpoint: Endpoint, budget: Budget, attribution: Attribution | None = None) -> None:
        self.driver = Driver(endpoint)
        self.key = f"trial-{secrets.token_urlsafe(24)}"
        self.attribution = attribution or Attribution()
        self.recorder = Recorder(budget)
        # a socket's path has 107 bytes at most
        base = tempfile.gettempdir() if len(tempfile.gettempdir()) < 60 else "/tmp"
        # closed to other users of the machine; of a process that was killed, the next sandboxes sweep it
        self._closed = Path(tempfile.mkdtemp(prefix=f"{FOLDER}{os.getpid()}-", dir=base))
        self.folder = self._closed / "open"  # the user inside is another one, and comes by a mount
        self.folder.mkdir()
        self.folder.chmod(0o755)
        shutil.copyfile(Path(__file__).with_name("forward.py"), self.folder / "forward.py")
        self._server = _Server(str(self.folder / "model.sock"), self)
        (self.folder / "model.sock").chmod(0o666)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Relay:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.driver.__exit__(kind, error, trace)
        shutil.rmtree(self._closed, ignore_errors=True)

    def bind(self, environment: Environment) -> Environment:
        """The environment with the socket in it."""
        return replace(environment, mounts={**environment.mounts, PLACE: self.folder})

    def answers(self) -> bool:
        """Whether the model answers a plain request of ours, so that another's failure is that request's own.

        What a model wrote can send requests as well, such as no service answers: were each a failure of the
        infrastructure, it could undo its trial.

        Raises:
            UsageError: the service refuses the key.
        """
        try:
            body = {
                "model": self.driver.model,
                "messages": [{"role": "user", "content": "."}],
                "max_tokens": 1,
            }
            found = self.driver.post(body, self.attribution, PLAIN_S)
            sse.read(found.content, found.headers, 0.0)
        except (RefusedError, DependencyDownError, ValueError):
            return False
        return True


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = CONNECTIONS

    def __init__(self, path: str, relay: Relay) -> None:
        self.relay = relay
        self.room = Room(MAX_BODIES)
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        super().__init__(path, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing is printed for a connection that broke: who is inside could fill the log."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_S
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""

    def address_string(self) -> str:
        return "sandbox"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].rstrip("/").removeprefix("/v1")
        if path != "/models" and not path.startswith("/models/"):
            self._error(404, "not_found", "there is nothing here")
        elif self._known():
            relay = self.server.relay
            try:
                name = relay.driver.model
            except (UsageError, DependencyDownError):
                self._error(503, "unavailable", "the model does not answer")
            else:  # by whatever name it is asked for, as in requests
                one = {"id": name, "object": "model", "type": "model", "display_name": name}
                whole = {"object": "list", "data": [one], "has_more": False}
                self._answer(200, whole if path == "/models" else one)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        path = self.path.partition("?")[0]
        path = path if path.startswith("/v1/") else f"/v1{path}"
        if path != COUNT and path not in apis.ALL:
            self._error(404, "not_found", f"here are {', '.join(apis.ALL)}, and nothing else")
        elif self._known() and (length := self._length()) is not None:
            with self.server.room.of(length):
                if (body := self._body(length)) is not None:
                    self._ask(path, body)

    def _known(self) -> bool:
        given = self.headers.get("Authorization") or self.headers.get("X-Api-Key") or ""
        given = given.removeprefix("Bearer ")
        if hmac.compare_digest(given.encode("utf-8", "replace"), self.server.relay.key.encode()):
            return True
        self._error(401, "invalid_api_key", "the key is the one in OPENAI_API_KEY and ANTHROPIC_AUTH_TOKEN")
        return False

    def _length(self) -> int | None:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal() and len(length) < 10):
            self._error(411, "length_required", "a body with its length is needed")
            return None
        if int(length) > MAX_BODY:
            self._error(413, "too_large", f"a body may have {MAX_BODY} bytes")
            return None
        return int(length)

    def _body(self, length: int) -> dict[str, Any] | None:
        content = self.rfile.read(length)
        if values(content, MAX_VALUES) > MAX_VALUES:
            self._error(413, "too_large", f"a body may have {MAX_VALUES} objects, lists and strings")
            return None
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self._error(400, "invalid_json", "the body is no JSON object")
            return None
        return found

    def _ask(self, path: str, body: Mapping[str, Any]) -> None:
        api = apis.ALL.get(path)
        if api is None:
            self._pass_on(path, body)
            return
        with self.server.relay.recorder.call() as limit:
            if limit is None:
                self._pass_on(path, body, api)
            else:
                self._error(403, "budget_exhausted", f"the budget is used up: {limit}")

    def _pass_on(self, path: str, body: Mapping[str, Any], api: Api | None = None) -> None:
        """Ask in the trial's name; what an `api` gave is one model call more."""
        relay = self.server.relay
        started = time.perf_counter()
        try:
            # whatever is asked for: else what runs inside could ask an endpoint's stronger model
            body = {**passed(body), "model": relay.driver.model}
            asked = api.asked(body) if api else {}  # before it costs anything
            # no longer than the trial: who was ended would keep the server at work for the others
            answer = relay.driver.post(body, relay.attribution, relay.recorder.left_s, path)
            if api:
                found = api.read(answer.content, answer.headers, time.perf_counter() - started)
                relay.recorder.add(asked, found)
        except (RefusedError, DependencyDownError, UsageError, ValueError) as error:
            if api:
                self._unanswered(path, error)
            else:
                self._uncounted(error)
        except RecursionError:
            self._error(400, "invalid_json", "the body is nested too deep")
        else:
            headers = {name: answer.headers[name] for name in _PASSED if name in answer.headers}
            self._send(200, answer.content, headers)

    def _uncounted(self, error: Exception) -> None:
        """What is no model call says nothing of the model, and costs none."""
        if isinstance(error, RefusedError):
            self._error(error.status, error.code, str(error))
        else:
            self._error(503, "unavailable", "there is no answer")

    def _unanswered(self, path: str, error: Exception) -> None:
        recorder = self.server.relay.recorder
        status = error.status if isinstance(error, RefusedError) else 0
        if isinstance(error, RefusedError) and is_of_the_request(status):
            recorder.full = error.code == CONTEXT_FULL
            self._error(status, error.code, str(error))
        elif recorder.left_s > 0 and not self._answers():
            recorder.fail(str(error))
            self._error(503, "unavailable", "the model does not answer")
        elif status == 404 and not recorder.spent.turns:
            # no model has said anything yet, so that nothing but the agent's own program asked
            recorder.fail(f"HTTP 404: the server has no {path}, by which this agent asks its model")
            self._error(404, "not_found", f"the server has no {path}")
        else:
            self._error(400, "refused", "the model answers, but not this request")

    def _answers(self) -> bool:
        try:
            return self.server.relay.answers()
        except UsageError as refused:
            self.server.relay.recorder.refused = refused
            return False

    def _answer(self, status: int, content: Mapping[str, Any]) -> None:
        self._send(status, json.dumps(content).encode(), {"content-type": "application/json"})

    def _error(self, status: int, code: str, message: str) -> None:
        self.close_connection = True  # what is left of the request was not read
        told = {"message": message, "type": "relay", "param": None, "code": code}
        self._answer(status, {"type": "error", "error": told})

    def _send(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
