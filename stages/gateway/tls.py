"""HTTPS of the public listener: the certificate, and its renewal while it serves.

    [gateway]
    tls_cert = "tls/fullchain.pem"
    tls_key  = "tls/privkey.pem"

Both files are read again when one of them changes; a pair that does not fit is told of, and the one before
goes on being served, until that pair is good: its day has come, its key may be read. Not for: client
certificates, several host names.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from stages.errors import RtrlError, UsageError
from stages.gateway.config import GatewayConfig

log = logging.getLogger("rtrl.gateway")

_SOON = 14  # days
_FOLLOW_S = 2.0  # between two looks at the files
_OLDEST = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_HINT = "gateway.tls_cert is the certificate with its chain, gateway.tls_key its private key, both PEM"


@dataclass(frozen=True)
class Expiry:
    """From when until when a certificate is good, and for which names."""

    since: datetime
    until: datetime
    names: tuple[str, ...]

    @property
    def now(self) -> str:
        """Why clients refuse it now, "" where they do not."""
        if self.days < 0:
            return "has expired"
        return f"is not good before {self.since:%Y-%m-%d %H:%M}Z" if self.since > datetime.now(UTC) else ""

    @property
    def days(self) -> float:
        """From now; negative when it is over."""
        return (self.until - datetime.now(UTC)).total_seconds() / 86_400


class Certificate:
    """Certificate and key of the files, as they are now.

    Args:
        folder: what relative paths are relative to.

    Raises:
        UsageError: (exit 2) a file is missing, unreadable or no PEM, or the key is not the certificate's.
    """

    def __init__(self, config: GatewayConfig, folder: Path) -> None:
        self.cert, self.key = folder / config.tls_cert, folder / config.tls_key
        self._oldest = _OLDEST[config.tls_min_version]
        self._next = 0.0
        self._stamp = self._stamps()
        self._refused = ""
        self.context = self._load()

    @classmethod
    def of(cls, config: GatewayConfig, folder: Path) -> Certificate | None:
        """That of the settings, None where HTTPS is not asked for. Raises as the class."""
        return cls(config, folder) if config.tls_cert else None

    def expiry(self) -> Expiry:
        """Of the file as it is. Raises UsageError when it is none."""
        from cryptography import x509

        try:
            found = x509.load_pem_x509_certificate(self.cert.read_bytes())
        except (OSError, ValueError) as error:
            raise UsageError(f"{self.cert} is no certificate: {error}", hint=_HINT) from error
        try:
            names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            names = x509.SubjectAlternativeName([])
        told = [str(one.value) for one in names]
        return Expiry(found.not_valid_before_utc, found.not_valid_after_utc, tuple(told))

    def warning(self) -> str:
        """What clients will soon refuse, or what others can read; "" for nothing."""
        found = self.expiry()
        if found.now:
            return f"the TLS certificate {self.cert} {found.now}: clients refuse it"
        if self.key.stat().st_mode & 0o077:
            return f"others than its owner can read the TLS key {self.key}: chmod 600"
        soon = found.days < _SOON
        return f"the TLS certificate {self.cert} expires in {found.days:.0f} days" if soon else ""

    async def follow(self) -> None:
        """Take a renewed pair; whoever is connected keeps the one before."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _FOLLOW_S
        stamp = self._stamps()
        if stamp == self._stamp and not self._refused:
            return
        told, self._refused = self._refused if stamp == self._stamp else "", ""
        self._stamp = stamp
        try:
            self.context = await asyncio.to_thread(self._renewed)
        except RtrlError as error:  # also while two files are being replaced one after the other
            self._refused = f"{error.message} ({error.hint})"
            if self._refused != told:
                log.warning("the renewed certificate is not taken: %s", self._refused)
        else:
            log.warning("the renewed certificate is served from now on")

    def _renewed(self) -> ssl.SSLContext:
        context = self._load()
        if why := self.expiry().now:
            raise UsageError(f"the TLS certificate {self.cert} {why}", hint="the one before is served on")
        return context

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(path) for path in (self.cert, self.key)]

    def _load(self) -> ssl.SSLContext:
        for name, path in (("certificate", self.cert), ("key", self.key)):
            _check(name, path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = self._oldest
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self.cert, self.key, password=lambda: "")
        except ssl.SSLError as error:
            raise UsageError(_why(error, self.cert, self.key), hint=_HINT) from error
        except OSError as error:
            raise UsageError(f"{error.filename or self.cert}: {error.strerror}", hint=_HINT) from error
        return context


def _check(name: str, path: Path) -> None:
    try:
        with path.open("rb") as file:
            file.read(1)
    except FileNotFoundError:
        raise UsageError(f"the TLS {name} {path} is missing", hint=_HINT) from None
    except OSError as error:
        raise UsageError(
            f"the TLS {name} {path} cannot be read: {error.strerror}",
            hint="whoever runs `rtrl serve` must be able to read it, and nobody else the key",
        ) from error


def _why(error: ssl.SSLError, cert: Path, key: Path) -> str:
    reason = error.reason or ""
    if "MISMATCH" in reason:
        return f"the key {key} is not that of the certificate {cert}"
    if b"ENCRYPTED" in key.read_bytes():
        return f"the key {key} has a passphrase; one without is needed"
    return f"{cert} and {key} are no certificate with its key in PEM ({reason or type(error).__name__})"


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
