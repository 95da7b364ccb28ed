"""Posts to others' addresses: whatever is wrong there or on the way costs a warning, and its time alone."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from typing import Any

import pytest

from stages import addresses
from stages.cycle.ping import ping
from stages.errors import UsageError
from stages.monitor import alert
from stages.monitor.config import MonitorConfig

URL = "http://hc.example/a-secret-path"


def test_a_proxy_that_cannot_be_used_is_a_post_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended `rtrl cycle --ping` before collect, and a cycle with a webhook after distill."""
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setitem(sys.modules, "socksio", None)  # no part of what is installed
    for proxy, why in (("socks5://127.0.0.1:1080", "ImportError: "), ("gopher://127.0.0.1", "ValueError")):
        monkeypatch.setenv("ALL_PROXY", proxy)
        assert alert.post(URL, {}, 60, 0).startswith(f"http://hc.example: {why}")
        said = ping(URL, "start", {}, 60)
        assert said.startswith(f"ping of http://hc.example failed: {why}")
        assert "secret" not in said


def test_certificates_that_are_away_are_a_post_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr("httpx._transports.default.create_ssl_context", away)
    assert alert.post(URL, {}, 60, 0) == "http://hc.example: FileNotFoundError"


def test_a_resolver_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a time of its own, and asking it in a pool's thread made whoever asked wait for it."""
    over, answered = threading.Event(), threading.Event()

    def slow(*_: Any, **__: Any) -> None:
        over.wait(20)
        answered.set()
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    assert alert.post(URL, {}, 0.2, 0) == "http://hc.example: TimeoutError"
    assert not answered.is_set()
    over.set()


def test_a_resolver_does_not_keep_a_program_from_its_end() -> None:
    """Python waits for the threads of pools before it ends."""
    program = f"""
import socket, time
from stages import posting
socket.getaddrinfo = lambda *_, **__: time.sleep(3600)
print(posting.post({URL!r}, {{}}, 0.2))
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "(0, 'TimeoutError')"


@pytest.mark.parametrize(
    "url",
    ["hc.example/x", "ftp://hc.example", "http:///x", "http://[::1/x", "http://h:port/x", "http://h:99999/x"],
)
def test_what_cannot_be_an_address_is_refused_in_the_settings(url: str) -> None:
    """Of some it was the post that said so, with an error that ended the command."""
    from stages.cycle.run import _address
    from stages.cycle_config import CycleConfig

    for make in (
        lambda: MonitorConfig(webhook=url),
        lambda: MonitorConfig(ping=url),
        lambda: CycleConfig(ping=url),
    ):
        with pytest.raises(ValueError, match=r"must begin with http|is no address"):
            make()
    with pytest.raises(UsageError, match="--ping"):
        _address(url)


def test_an_address_is_taken_as_it_is() -> None:
    for url in ("http://h", "https://[::1]:8443/a?b=c", "http://127.0.0.1:9/x"):
        assert addresses.checked(url) == url
