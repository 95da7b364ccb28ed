"""A stand-in for a running `rtrl serve`: its lock, its serve.json, and an admin listener that remembers."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from stages import locks
from stages.engine.verification import ProbeReport, TensorReport, Verification
from stages.stage import Artifact
from stages.target.endpoint import LOCK, Endpoint, EngineAt, remove_endpoint, write_endpoint
from stages.workspace import Workspace


class GatewayDouble:
    """Serves `live` until asked to swap. `refuse` answers swaps with that status and error."""

    def __init__(self, workspace: Workspace, live: Artifact) -> None:
        self.workspace = workspace
        self.served: dict[str, Any] = {
            "line": "auto",
            "checkpoint": live.digest,
            "deployment": "",
            "engine": "ready",
        }
        self.swaps: list[dict[str, Any]] = []
        self.prepared: list[dict[str, Any]] = []
        self.asked: list[str] = []  # paths, of reading requests too
        self.refuse: tuple[int, dict[str, Any]] | None = None
        self.slow_s = 0.0  # to say what it serves
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        self._lock = locks.acquire(workspace.run_dir / LOCK, what="serve")
        write_endpoint(
            workspace.run_dir,
            Endpoint(
                pid=1,
                started_at="2026-11-20T00:00:00Z",
                line="auto",
                url="http://127.0.0.1:1",
                admin_key="admin",
                admin_url=f"http://127.0.0.1:{self._server.server_port}",
                engine=EngineAt(pid=2, url="", key="", log="", temporary=""),
            ),
        )

    def swap(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The answer to POST /admin/swap."""
        self.swaps.append(body)
        if self.refuse is not None:
            return self.refuse
        self.served |= {"checkpoint": body["checkpoint"], "deployment": body["deployment"]}
        tensors = TensorReport(1, (), (), (), 4, 4)
        proof = Verification(body["path"], tensors, ProbeReport("child", 8, 1.0, 1e-8, 1e-6, 1e-5))
        return 200, {"served": self.served, "verification": proof.as_dict()}

    def close(self) -> None:
        """Stop as a killed `rtrl serve` would: the file stays, the lock is free."""
        self._server.shutdown()
        self._server.server_close()
        self._lock.release()

    def close_cleanly(self) -> None:
        """Stop as SIGTERM would."""
        self.close()
        remove_endpoint(self.workspace.run_dir)


def _handler(double: GatewayDouble) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _send(self, status: int, document: dict[str, Any]) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            if self.headers["authorization"] != "Bearer admin":
                self._send(401, {"error": {"message": "no"}})
                return
            double.asked.append(self.path)
            time.sleep(double.slow_s)
            self._send(200, double.served)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            double.asked.append(self.path)
            if self.path == "/admin/canary/close":
                self._send(200, {"ended": ""})
                return
            if self.path == "/admin/prepare":
                double.prepared.append(body)
                self._send(202, {"served": double.served})
                return
            self._send(*double.swap(body))

        def log_message(self, *_arguments: object) -> None:
            pass

    return Handler
