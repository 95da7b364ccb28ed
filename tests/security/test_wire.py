"""Bytes that are no request, or two requests to two readers: refused, and nobody else is harmed."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.security.wire import CHAT, Site, chat, head, read, sometimes, statuses

BODY = b'{"model":"rtrl","messages":[{"role":"user","content":"hi"}]}'
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
N = len(BODY)

SMUGGLING = {
    "two lengths": (["Content-Length: 5", f"Content-Length: {N}"], BODY),
    "the same length twice": ([f"Content-Length: {N}"] * 2, BODY),
    "a list of lengths": ([f"Content-Length: {N}, {N}"], BODY),
    "length and chunks": ([f"Content-Length: {N}", "Transfer-Encoding: chunked"], CHUNKED),
    "chunks and length": (["Transfer-Encoding: chunked", "Content-Length: 4"], CHUNKED),
    "no such coding": (["Transfer-Encoding: xchunked"], CHUNKED),
    "chunked is not the last": (["Transfer-Encoding: chunked, identity"], CHUNKED),
    "chunked twice": (["Transfer-Encoding: chunked"] * 2, CHUNKED),
    "a blank before the colon": (["Transfer-Encoding : chunked"], CHUNKED),
    "a tab of another kind": (["Transfer-Encoding:\x0bchunked"], CHUNKED),
    "a folded coding": (["Transfer-Encoding:\r\n chunked"], CHUNKED),
    "a sign before the length": ([f"Content-Length: +{N}"], BODY),
    "a negative length": (["Content-Length: -1"], BODY),
    "a hexadecimal length": (["Content-Length: 0x3c"], BODY),
    "a length beyond 64 bits": (["Content-Length: 99999999999999999999999"], BODY),
    "a chunk beyond 64 bits": (["Transfer-Encoding: chunked"], b"fffffffffffffffff\r\n"),
    "a negative chunk": (["Transfer-Encoding: chunked"], b"-1\r\n" + BODY),
    "chunks by line feeds": (["Transfer-Encoding: chunked"], CHUNKED.replace(b"\r\n", b"\n")),
    "a chunk longer than it says": (["Transfer-Encoding: chunked"], b"5\r\n" + BODY + b"\r\n0\r\n\r\n"),
}


@pytest.mark.parametrize(("headers", "body"), SMUGGLING.values(), ids=SMUGGLING)
def test_a_body_has_one_length_whoever_reads_it(site: Site, headers: list[str], body: bytes) -> None:
    hidden = head("GET", "/v1/models", f"Authorization: Bearer {site.key}")
    sent = head("POST", CHAT, f"Authorization: Bearer {site.key}", *headers, close=False)
    answer = site.send(sent + body + hidden)
    assert statuses(answer) == [400], "one answer, and the connection is closed: nothing after it is read"


def test_a_coding_that_is_not_undone_is_refused(site: Site) -> None:
    sent = head("POST", CHAT, f"Authorization: Bearer {site.key}", "Transfer-Encoding: gzip, chunked")
    assert statuses(site.send(sent + CHUNKED)) == [415]


def test_what_a_body_looks_like_is_no_request(site: Site) -> None:
    """The length counts, whatever the method."""
    inner = b"GET /admin/served HTTP/1.1\r\nHost: a\r\n\r\n"
    outer = head(
        "GET", "/v1/models", f"Authorization: Bearer {site.key}", f"Content-Length: {len(inner)}", close=False
    )
    answer = site.send(outer + inner + head("GET", "/health"))
    assert statuses(answer) == [200, 200]


MALFORMED = {
    "a folded header": b"GET /health HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
    "line feeds alone": b"GET /health HTTP/1.1\nHost: a\n\n",
    "a carriage return in a value": b"GET /health HTTP/1.1\r\nHost: a\r\nX: a\rY: b\r\n\r\n",
    "NUL in a value": b"GET /health HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
    "NUL in the path": b"GET /health\0 HTTP/1.1\r\nHost: a\r\n\r\n",
    "a blank in a name": b"GET /health HTTP/1.1\r\nHost: a\r\nX Y: b\r\n\r\n",
    "no name": b"GET /health HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
    "no colon": b"GET /health HTTP/1.1\r\nHost: a\r\nfoo\r\n\r\n",
    "a path beyond ASCII": "GET /h\u00e9alth HTTP/1.1\r\nHost: a\r\n\r\n".encode(),
    "no path": b"GET  HTTP/1.1\r\nHost: a\r\n\r\n",
    "no slash": b"GET health HTTP/1.1\r\nHost: a\r\n\r\n",
    "a tunnel": b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: a\r\n\r\n",
    "HTTP/0.9": b"GET /health\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/9.9": b"GET /health HTTP/9.9\r\nHost: a\r\n\r\n",
    "TLS": bytes.fromhex("16030100f4010000f003037d"),
    "nothing of the kind": b"\x00\xff" * 200,
}


@pytest.mark.parametrize("sent", MALFORMED.values(), ids=MALFORMED)
def test_what_is_no_http_gets_400_and_no_second_chance(site: Site, sent: bytes) -> None:
    answer = site.send(sent + head("GET", "/health"))
    assert statuses(answer) == [400]
    assert b"Invalid HTTP request" in answer, "nothing of what was sent comes back"


REPEATED = {
    "two keys": (["Authorization: Bearer nobody"], "Authorization"),
    "two hosts": (["Host: another"], "Host"),
    "two users": (["X-Rtrl-User: ada", "X-Rtrl-User: bob"], "X-Rtrl-User"),
    "two users, spelled differently": (["X-Rtrl-No-Train: 1", "x-rtrl-no_train: 0"], "X-Rtrl-No-Train"),
    "two types": (["Content-Type: a/b", "Content-Type: text/plain"], "Content-Type"),
}


@pytest.mark.parametrize(("headers", "named"), REPEATED.values(), ids=REPEATED)
def test_a_header_with_two_meanings_is_refused(site: Site, headers: list[str], named: str) -> None:
    """A proxy may have checked one of them, and the gateway take the other."""
    answer = site.send(chat(site.key, "hi", *headers))
    assert statuses(answer) == [400]
    assert b'"repeated_header"' in answer
    assert named.encode() in answer


def test_blanks_around_a_header_are_none_of_it(site: Site) -> None:
    """Else `ada ` were another person than `ada`, whom `rtrl forget ada` does not forget."""
    named = [" ada ", "ada", "\tada \t"]
    answers = [
        site.send(chat(site.key, "hi", f"X-Rtrl-User:{name}", "X-Rtrl-No-Train: 1 ")) for name in named
    ]
    assert [statuses(answer) for answer in answers] == [[200]] * 3
    ids = {json.loads(answer.split(b"\r\n\r\n", 1)[1])["id"] for answer in answers}
    assert [(g.user, g.no_train) for g in site.generations() if g.id in ids] == [("ada", True)] * 3


def test_trailers_say_nothing(site: Site) -> None:
    """They come after what a proxy has checked."""
    trailers = b"0\r\nX-Rtrl-User: mallory\r\nX-Rtrl-No-Train: 1\r\nAuthorization: Bearer x\r\n\r\n"
    sent = head(
        "POST", CHAT, f"Authorization: Bearer {site.key}", "Transfer-Encoding: chunked", "X-Rtrl-User: eve"
    )
    answer = site.send(sent + CHUNKED[:-5] + trailers)
    assert statuses(answer) == [200]
    assert {g.user for g in site.generations() if g.user in ("mallory", "eve")} == {"eve"}
    assert not any(g.no_train for g in site.generations() if g.user == "eve")


@pytest.mark.parametrize("length", [[], ["Content-Length: 0"]], ids=["", "as Java's HttpClient says it"])
def test_another_protocol_is_not_spoken(site: Site, length: list[str]) -> None:
    """And no second request is hidden in what would be its bytes."""
    key = f"Authorization: Bearer {site.key}"
    asked = head("GET", "/v1/models", key, "Connection: Upgrade", "Upgrade: websocket", *length, close=False)
    answer = site.send(asked + head("GET", "/v1/models", key))
    assert statuses(answer) == [200]
    assert b"connection: close" in answer


def test_a_body_for_another_protocol_is_refused_with_the_reason(site: Site) -> None:
    """Java's HttpClient asks for HTTP/2 that way, in the clear, with its first request."""
    sent = chat(site.key, "hi", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", close=False)
    answer = site.send(sent + head("GET", "/v1/models", f"Authorization: Bearer {site.key}"))
    assert statuses(answer) == [400]
    assert b"unsupported_upgrade" in answer


def test_a_request_without_a_host_is_refused(site: Site) -> None:
    assert statuses(site.send(b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n")) == [400]
    assert statuses(site.send(b"GET /health HTTP/1.0\r\n\r\n")) == [200], "HTTP/1.0 knew none"


def test_garbage_after_a_request_does_not_cut_into_its_answer(site: Site, tmp_path: Path) -> None:
    hold = tmp_path / "hold"

    def answered() -> bool:
        hold.touch()
        with site.connect() as sock:
            sock.sendall(chat(site.key, f"stub:hold={hold}", close=False, stream=True))
            answer = sock.recv(1000)
            sock.sendall(b"\0garbage\r\n\r\n")
            time.sleep(0.1)  # it has to come before the answer's end
            hold.unlink()
            answer += read(sock)
        return statuses(answer) == [200] and answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")

    assert sometimes(answered)


def test_requests_sent_at_once_are_answered_in_order(site: Site) -> None:
    key = f"Authorization: Bearer {site.key}"
    answer = site.send(
        chat(site.key, close=False)
        + head("GET", "/v1/nothing", key, close=False)
        + head("GET", "/v1/models", key)
    )
    assert statuses(answer) == [200, 404, 200]


def test_an_older_client_gets_no_chunks(site: Site) -> None:
    """RFC 9112 6.1: HTTP/1.0 would take the sizes of chunks for text. The connection ends with the answer."""
    for stream in (False, True):
        sent = chat(site.key, "stub:say Hallo", "Expect: 100-continue", close=False, stream=stream)
        answer = site.send(sent.replace(b" HTTP/1.1", b" HTTP/1.0", 1))
        head_, _, body = answer.partition(b"\r\n\r\n")
        assert statuses(answer) == [200], "no 100 either"
        assert b"transfer-encoding" not in head_
        assert (b"content-length" in head_) != stream
        if stream:
            assert body.startswith(b"data: {")
            assert body.endswith(b"data: [DONE]\n\n")
        else:
            assert json.loads(body)["choices"][0]["message"]["content"] == "Hallo"
    for method in ("GET", "HEAD"):
        answer = site.send(f"{method} /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".encode())
        assert statuses(answer) == [200]
        assert answer.endswith(b'{"status":"ok"}' if method == "GET" else b"\r\n\r\n")
