"""HTTPS by two settings: what is refused, what is told, and a renewed certificate without a restart."""

from __future__ import annotations

import asyncio
import datetime
import os
import ssl
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from stages.config import Settings
from stages.errors import UsageError
from stages.gateway import tls
from stages.gateway.config import GatewayConfig
from stages.gateway.server import Listener, bind_tcp
from stages.gateway.stub_engine import StubEngine
from stages.gateway.tls import Certificate, Expiry
from stages.serve import serve
from stages.serving.detach import start_detached, stop
from tests.security.wire import head, statuses
from tests.stages.gateway.rig import until
from tests.stages.serving.conftest import StubWorld


def write_pair(
    folder: Path,
    name: str = "gateway.test",
    days: int = 90,
    password: bytes = b"",
    since_s: float = -100 * 86_400,
) -> GatewayConfig:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(seconds=since_s))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(exist_ok=True)
    (folder / "cert.pem").write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    hidden = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)
    )
    (folder / "key.pem").chmod(0o600)
    few = {"max_connections": 8, "engine_connections": 4, "max_queue": 4}
    return GatewayConfig(tls_cert="cert.pem", tls_key="key.pem", header_timeout_s=1.0, **few)


def client(folder: Path, newest: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=folder / "cert.pem")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = newest
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    return context


async def ask(address: tuple[str, int], context: ssl.SSLContext | None, name: str = "gateway.test") -> bytes:
    reader, writer = await asyncio.open_connection(
        *address, ssl=context, server_hostname=name if context else None
    )
    writer.write(head("GET", "/health"))
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    return answer


async def listening(folder: Path, config: GatewayConfig) -> Listener:
    listener = Listener(StubEngine(), [bind_tcp("127.0.0.1", 0)], config, Certificate(config, folder))
    await listener.start()
    return listener


async def test_what_is_no_tls_or_too_old_is_not_served(tmp_path: Path) -> None:
    listener = await listening(tmp_path, write_pair(tmp_path))
    try:
        assert statuses(await ask(listener.address, client(tmp_path))) == [200]
        assert b"HTTP" not in await ask(listener.address, None), "no plain answer on a TLS port"
        for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
            with pytest.warns(DeprecationWarning, match="TLSv1"):
                old = client(tmp_path, version)
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await ask(listener.address, old)
        assert statuses(await ask(listener.address, client(tmp_path, ssl.TLSVersion.TLSv1_2))) == [200]
    finally:
        await listener.stop()


async def test_only_the_newest_where_that_is_asked_for(tmp_path: Path) -> None:
    config = write_pair(tmp_path).model_copy(update={"tls_min_version": "1.3"})
    listener = await listening(tmp_path, config)
    try:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await ask(listener.address, client(tmp_path, ssl.TLSVersion.TLSv1_2))
        assert statuses(await ask(listener.address, client(tmp_path))) == [200]
    finally:
        await listener.stop()


async def test_handshakes_that_never_end_keep_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stages.gateway.accepting.HANDSHAKE_S", 0.3)
    listener = await listening(tmp_path, write_pair(tmp_path))
    try:
        waiting = [await asyncio.open_connection(*listener.address) for _ in range(20)]
        await asyncio.wait_for(asyncio.gather(*(reader.read() for reader, _ in waiting)), 60)  # cut off, all
        monkeypatch.undo()  # ours may take longer
        assert statuses(await ask(listener.address, client(tmp_path))) == [200]
        for _, writer in waiting:
            writer.close()
    finally:
        await listener.stop()


async def test_a_renewed_certificate_is_served_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("stages.gateway.tls._FOLLOW_S", 0.05)
    listener = await listening(tmp_path, write_pair(tmp_path))
    try:
        before = client(tmp_path)
        (tmp_path / "key.pem").write_text("half of a key")
        await until(lambda: "is not taken" in caplog.text)
        assert statuses(await ask(listener.address, before)) == [200], "the one before is served on"
        write_pair(tmp_path / "old", days=-1)
        for name in ("cert.pem", "key.pem"):
            (tmp_path / "old" / name).rename(tmp_path / name)
        await until(lambda: "has expired" in caplog.text)
        assert statuses(await ask(listener.address, before)) == [200], (
            "also where clients would refuse the new one"
        )
        write_pair(tmp_path, "renewed.test")

        async def followed() -> None:
            while True:
                assert statuses(await ask(listener.address, before)) == [200]

        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.wait_for(followed(), 60)
        assert statuses(await ask(listener.address, client(tmp_path), "renewed.test")) == [200]
    finally:
        await listener.stop()


async def test_a_renewed_certificate_is_served_as_soon_as_it_is_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its files do not change when its time comes, nor (but for ctime) when its key may be read at last."""
    monkeypatch.setattr("stages.gateway.tls._FOLLOW_S", 0.0)
    certificate = Certificate(write_pair(tmp_path), tmp_path)
    before = certificate.context
    write_pair(tmp_path, "renewed.test", since_s=2)
    for _ in range(3):
        await certificate.follow()
    assert certificate.context is before
    assert caplog.text.count("is not good before") == 1, "told once"
    await until_followed(certificate, before)
    of_the_day = certificate.context

    may_be_read = tls._check
    monkeypatch.setattr(tls, "_check", of_another_user)
    write_pair(tmp_path, "next.test")
    for _ in range(3):
        await certificate.follow()
    assert certificate.context is of_the_day
    assert caplog.text.count("cannot be read") == 1, "told once"
    monkeypatch.setattr(tls, "_check", may_be_read)  # chown, a minute after the copy
    await until_followed(certificate, of_the_day)
    served = certificate.context
    await certificate.follow()
    assert certificate.context is served, "what is served is not loaded again"


async def until_followed(certificate: Certificate, before: ssl.SSLContext) -> None:
    async with asyncio.timeout(30):
        while certificate.context is before:
            await certificate.follow()
            await asyncio.sleep(0.1)


def of_another_user(name: str, path: Path) -> None:
    raise UsageError(f"the TLS {name} {path} cannot be read: Permission denied", hint="")


def test_what_is_wrong_with_the_files_is_said(tmp_path: Path) -> None:
    config = write_pair(tmp_path)
    write_pair(tmp_path / "other")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    def refused() -> str:
        with pytest.raises(UsageError) as caught:
            Certificate(config, tmp_path)
        assert "gateway.tls_cert" in caught.value.hint
        assert caught.value.code == 2
        return caught.value.message

    key.unlink()
    assert refused() == f"the TLS key {key} is missing"
    (tmp_path / "other" / "key.pem").rename(key)
    assert refused() == f"the key {key} is not that of the certificate {cert}"
    cert.write_text("nothing")
    assert "are no certificate with its key" in refused()
    write_pair(tmp_path, password=b"secret")
    assert "has a passphrase" in refused()


def test_one_file_alone_is_a_contradiction() -> None:
    with pytest.raises(UsageError, match="go together"):
        Settings.parse('[gateway]\ntls_cert = "cert.pem"\n', source="rtrl.toml")


def test_what_clients_will_refuse_is_told_before(tmp_path: Path) -> None:
    for days, words in ((-1, "has expired"), (5, "expires in 5 days"), (90, "")):
        config = write_pair(tmp_path, days=days)
        assert words in Certificate(config, tmp_path).warning() or not words
    assert Certificate(config, tmp_path).warning() == ""
    to_come = datetime.datetime(2100, 1, 2, tzinfo=datetime.UTC)
    assert Expiry(to_come, to_come, ()).now == "is not good before 2100-01-02 00:00Z"
    (tmp_path / "key.pem").chmod(0o644)
    assert "chmod 600" in Certificate(config, tmp_path).warning()


def test_rtrl_serve_speaks_https_or_says_why_not(tmp_path: Path) -> None:
    world = StubWorld(tmp_path / "site")
    root = world.workspace.root
    (root / "rtrl.toml").write_text(
        '[gateway]\nport = 0\ntls_cert = "cert.pem"\ntls_key = "key.pem"\n[engine]\nprogram = "stub"\n'
    )
    umask = os.umask(0o022)
    try:
        with pytest.raises(UsageError, match=r"the TLS certificate .* is missing") as caught:
            serve(world.workspace, world.store, say=print, ready=print)
    finally:
        os.umask(umask)
    assert caught.value.hint
    write_pair(root)
    endpoint = start_detached(world.workspace)
    try:
        assert endpoint.url.startswith("https://")
        context = client(root)
        context.check_hostname = False
        headers = {"authorization": f"Bearer {world.key}"}
        answer = httpx.get(f"{endpoint.url}/v1/models", headers=headers, verify=context, timeout=60)
        assert answer.status_code == 200
        plain = endpoint.url.replace("https", "http")
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{plain}/v1/models", headers=headers)
    finally:
        stop(world.workspace)
