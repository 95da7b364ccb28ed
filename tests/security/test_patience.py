"""Clients that are slow, endless, too big or too many: cut off in time, while others are served."""

from __future__ import annotations

import asyncio
import http.client
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.security.wire import CHAT, PATIENCE_S, Site, chat, head, read, sometimes, statuses
from tests.stages.gateway.rig import running, until
from tests.stages.serving.test_operations import in_flight


def cut_off(site: Site, *pieces: bytes, within_s: float, pause: float = 0.0) -> bytes:
    """What came until the gateway closed, which it did in time."""
    answer = b""

    def in_time() -> bool:
        nonlocal answer
        began = time.monotonic()
        with site.connect() as sock:
            try:
                for piece in pieces:
                    sock.sendall(piece)
                    time.sleep(pause)
            except ConnectionError:
                pass
            answer = read(sock)
        return time.monotonic() - began < within_s

    assert sometimes(in_time)
    return answer


def answered(sock: socket.socket) -> int:
    """The status of the next answer, read to its end."""
    with http.client.HTTPResponse(sock) as answer:
        answer.begin()
        answer.read()
        return answer.status


def test_who_says_nothing_is_cut_off(site: Site) -> None:
    assert cut_off(site, within_s=2.5) == b""


DRIPS = {
    "a header section": ([b"GET /health HTTP/1.1\r\n", *[b"X-%d: y\r\n" % n for n in range(12)]], 408),
    "a request line": ([b"G", b"E", b"T", *[b"\x20/health"[:1]], *[b"/" for _ in range(12)]], 408),
    "blank lines": ([b"\r\n"] * 16, 408),
}


@pytest.mark.parametrize(("pieces", "status"), DRIPS.values(), ids=DRIPS)
def test_slow_headers_are_not_waited_for(site: Site, pieces: list[bytes], status: int) -> None:
    """Each piece comes well within the time-out; all together do not."""
    answer = cut_off(site, *pieces, within_s=4.5, pause=0.12)
    assert statuses(answer) in ([status], []), "told, or cut off while it still wrote"
    assert site.alive()


def test_a_slow_body_is_not_waited_for(site: Site) -> None:
    sent = head("POST", CHAT, f"Authorization: Bearer {site.key}", "Content-Length: 60000", close=False)
    answer = cut_off(site, sent, *[b"x"] * 12, within_s=4.5, pause=0.12)
    assert statuses(answer) in ([408], [])


def test_a_body_that_comes_as_fast_as_it_must_is_waited_for(site: Site) -> None:
    """Twice the time-out, at twice the slowest rate."""
    body = chat(site.key, "x" * 50_000)
    cut = body.index(b"\r\n\r\n") + 4
    step = 10_000
    pieces = [body[:cut], *[body[n : n + step] for n in range(cut, len(body), step)]]
    assert sometimes(lambda: statuses(site.send(*pieces, pause=0.12)) == [200])


def test_who_has_been_refused_is_not_listened_to_for_long(site: Site) -> None:
    sent = head("POST", CHAT, "Authorization: Bearer nobody", "Content-Length: 60000", close=False)
    answer = cut_off(site, sent, *[b"x"] * 10, within_s=4.5, pause=0.12)
    assert statuses(answer) == [401], "told before the body came"


ENDLESS = {
    "a header": (b"GET / HTTP/1.1\r\nHost: a\r\nX: ", b"a" * 4000),
    "headers": (b"GET / HTTP/1.1\r\nHost: a\r\n", b"a: b\r\n" * 600),
    "a path": (b"GET /", b"a" * 4000),
    "chunk extensions": (b"5;", b"b" * 4000),
    "a trailer": (b"2\r\n{}\r\n0\r\nX: ", b"c" * 4000),
    "trailers": (b"2\r\n{}\r\n0\r\n", b"a: b\r\n" * 600),
}


@pytest.mark.parametrize(("first", "more"), ENDLESS.values(), ids=ENDLESS)
def test_what_never_ends_is_cut_off(site: Site, first: bytes, more: bytes) -> None:
    """Long before it fills the memory: 4 MB are offered, the limit is 16 KiB."""
    if first[:1].isdigit():
        first = head("POST", CHAT, f"Authorization: Bearer {site.key}", "Transfer-Encoding: chunked") + first
    sent = 0
    with site.connect() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)  # what the kernel takes was not read
        sock.sendall(first)
        try:
            for _ in range(1000):
                sock.sendall(more)
                sent += len(more)
        except ConnectionError:
            pass
    assert sent < 2_000_000
    assert site.alive()


def test_what_is_too_long_is_refused_by_its_length(site: Site) -> None:
    key = f"Authorization: Bearer {site.key}"
    assert statuses(site.send(head("POST", CHAT, key, "Content-Length: 65537"))) == [413]
    chunk = b"11000\r\n" + b"x" * 0x11000 + b"\r\n0\r\n\r\n"
    assert statuses(site.send(head("POST", CHAT, key, "Transfer-Encoding: chunked") + chunk)) == [413]
    assert statuses(site.send(head("GET", "/v1/models", key, "X: " + "y" * 5000))) == [431]
    assert statuses(site.send(head("GET", "/v1/models", key, *[f"X{n}: y" for n in range(50)]))) == [431]


def test_connections_that_only_wait_keep_nobody_out(site: Site) -> None:
    """40 are allowed, 30 of them from one address."""

    def served() -> bool:
        waiting = [site.connect() for _ in range(30)]
        try:
            for sock in waiting:
                sock.sendall(b"GET /health HTTP/1.1\r\n")
            time.sleep(0.6)
            return site.alive()
        finally:
            for sock in waiting:
                sock.close()

    assert sometimes(served)


def test_time_in_which_the_gateway_stood_still_is_nobodys_delay(site: Site) -> None:
    """Both sent in time, and what they sent waits in the kernel when the gateway runs again."""
    whole = head("GET", "/health", close=False)
    gateway = site.endpoint.pid
    with site.connect() as idle, site.connect() as sending:
        for sock in (idle, sending):
            sock.sendall(whole)
            assert answered(sock) == 200
        sending.sendall(whole[:10])
        time.sleep(0.1)
        os.kill(gateway, signal.SIGSTOP)
        try:
            idle.sendall(whole)
            sending.sendall(whole[10:])
            time.sleep(1.3)  # longer than both would have had
        finally:
            os.kill(gateway, signal.SIGCONT)
        assert [answered(sock) for sock in (idle, sending)] == [200, 200]
        for sock in (idle, sending):
            sock.shutdown(socket.SHUT_WR)
            assert sock.recv(1) == b"", "it is counted no more"


def test_a_peer_that_is_at_work_on_all_its_connections_gets_503(site: Site, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    busy = [site.connect() for _ in range(30)]
    try:
        for sock in busy:
            sock.sendall(chat(site.key, f"stub:hold={hold}"))
        site.until(lambda: statuses(site.send(head("GET", "/health"))) == [503])  # it has read them all
        hold.unlink()
        assert [statuses(read(sock)) for sock in busy] == [[200]] * 30, "what was accepted is answered"
    finally:
        for sock in busy:
            sock.close()
    assert site.alive()


def test_who_does_not_take_its_answer_is_cut_off(site: Site) -> None:
    """One of far more than the kernel holds for it (4 MB), however many tokens a piece has under load."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(PATIENCE_S)
        sock.connect(site.address)
        sock.sendall(chat(site.key, "stub:tokens=160000", stream=True, logprobs=True, return_token_ids=True))
        answer = sock.recv(1)
        site.until(lambda: in_flight(site.world) == 0)
        answer += read(sock)  # what the kernel held, then the end
    assert statuses(answer) == [200]
    assert b"[DONE]" not in answer
    assert site.alive()


async def test_bodies_of_all_together_are_bounded(tmp_path: Path) -> None:
    """Each is as long as it may be; what is refused now is taken when the others are answered. What the
    engine is not asked is not held until then."""
    async with running(tmp_path, max_body_bytes=150_000, max_bodies_bytes=250_000) as rig:
        hold = tmp_path / "hold"
        hold.touch()
        words = f"stub:hold={hold} " + "x" * 70_000
        asked = [asyncio.create_task(rig.chat(words)) for _ in range(6)]
        await until(lambda: sum(each.done() for each in asked) == 3)
        hold.unlink()
        answers = await asyncio.gather(*asked)
        found = sorted(answer.status_code for answer in answers)
        assert found == [200, 200, 200, 429, 429, 429]
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert refused.json()["error"]["code"] == "too_many_requests"
        assert int(refused.headers["retry-after"]) > 0
        hold.touch()
        last = asyncio.create_task(rig.chat(f"stub:hold={hold}", metadata={"more": "x" * 140_000}))
        await until(lambda: rig.served.gate.in_flight == 1)
        assert rig.gateway._bodies.held < 1000
        hold.unlink()
        assert (await last).status_code == 200
        assert rig.gateway._bodies.held == 0


async def test_bodies_that_do_not_end_keep_nobody_out(tmp_path: Path) -> None:
    """Neither from a place nor from memory: the largest of those that come in makes room."""
    limits = {"engine_connections": 1, "max_queue": 0, "max_body_bytes": 100_000, "max_bodies_bytes": 100_000}
    async with running(tmp_path, **limits) as rig:
        slow = []
        for size in (45_000, 50_000):
            reader, writer = await asyncio.open_connection(*rig.public.address)
            key, length = f"Authorization: Bearer {rig.key}", f"Content-Length: {size + 1}"
            writer.write(head("POST", CHAT, key, length) + b"x" * size)
            slow.append((reader, writer))
        await until(lambda: rig.gateway._bodies.held == 95_000)
        assert (await rig.chat("x" * 20_000)).status_code == 200
        assert (await slow[1][0].readline()).startswith(b"HTTP/1.1 429 ")
        slow[0][1].write(b"x")
        assert (await slow[0][0].readline()).startswith(b"HTTP/1.1 400 "), "it is no JSON"
        for _, writer in slow:
            writer.close()
        await until(lambda: rig.gateway._bodies.held == 0)
        assert not rig.gateway._bodies.coming
