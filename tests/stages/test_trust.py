"""A client of plain HTTP asks for no certificate, and none of ours would let an unknown server in."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import httpx
import httpx._transports.default as transports
import pytest

from stages.errors import DependencyDownError
from stages.target.admin import Admin
from stages.target.endpoint import Endpoint, EngineAt
from stages.trust import nobody, trusted
from tests.security.test_tls import write_pair


def test_only_plain_http_goes_without_certificates() -> None:
    assert trusted("http://127.0.0.1:8000") is trusted("http://[::1]:8000") is nobody()
    for url in ("https://engine.test", "HTTPS://engine.test", "HTTP://engine.test", "engine.test"):
        assert trusted(url) is True, "those of the machine"


async def test_nobody_refuses_every_server(tmp_path: Path) -> None:
    write_pair(tmp_path)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=served)
    port = server.sockets[0].getsockname()[1]
    async with server, httpx.AsyncClient(verify=nobody(), trust_env=False) as client:
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await client.get(f"https://127.0.0.1:{port}/")


def test_a_client_of_the_gateway_reads_no_certificates(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reads: list[str] = []

    def read(*_: object, **__: object) -> None:
        reads.append("certificates")

    uncached = transports.create_ssl_context.__wrapped__  # type: ignore[attr-defined]  # see conftest.py
    monkeypatch.setattr(transports, "create_ssl_context", uncached)
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", read)
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", read)
    engine = EngineAt(pid=0, url="http://127.0.0.1:1", key="", log="", temporary="")
    told = {"pid": 1, "started_at": "", "line": "auto", "url": "", "admin_key": "k", "engine": engine}
    for where in ({"admin_socket": str(tmp_path / "admin.sock")}, {"admin_url": "http://127.0.0.1:1"}):
        admin = Admin(Endpoint(**told, **where))  # type: ignore[arg-type]
        with pytest.raises(DependencyDownError):  # nobody is there: it did ask
            admin.served()
        assert reads == []
    httpx.Client(verify=True, trust_env=False).close()
    assert reads, "what is watched is what a client of TLS does"
