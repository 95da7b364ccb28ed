"""What is wrapped in base64 is masked where its text holds something; all other base64 stays."""

from __future__ import annotations

import base64
import json
import random

import pytest

from cursorbench.redaction import mask, redact

LINES = "\n".join("MIIEowIBAAKCAQEA7bq8fS0m2kQ9vXrT1yZ3" + "q8fS0m2kQ9vXrT1yZ3aB+cD/eF9g" for _ in range(20))
PEM = f"-----BEGIN RSA PRIVATE {'KEY'}-----\n{LINES}\n-----END RSA PRIVATE {'KEY'}-----\n"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def wrapped(text: str, width: int = 76) -> str:
    found = encoded(text)
    return "\n".join(found[at : at + width] for at in range(0, len(found), width))


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"client-key-data: {encoded(PEM)}\nx: 1", "client-key-data: {private_key}\nx: 1"),
        (f"$ base64 id\n{wrapped(PEM)}\n$ exit", "$ base64 id\n{private_key}\n$ exit"),
        (f"k: |\n  {wrapped(PEM, 64)}\nx", "k: |\n  {private_key}\nx"),
        (json.dumps(wrapped(PEM)), '"{private_key}"'),
        (rf"a\n{encoded(PEM)}\n", r"a\n{private_key}\n"),
        (base64.urlsafe_b64encode(PEM.encode()).decode(), "{private_key}"),
        (encoded(json.dumps({"type": "service_account", "private_key": PEM})), "{private_key}"),
        (f"URL: {encoded('postgres://bob:sesame@db/x')}", "URL: {credential}"),
        (f"a={encoded('mail to ada@corp.io, please')}", "a={email}"),
    ],
)
def test_what_is_masked(text: str, masked: str) -> None:
    """Keys of a kubeconfig were shown: base64 over 200 characters, or of a text, was left alone."""
    kinds = {kind: mask(kind) for kind in ("private_key", "credential", "email")}
    assert redact(text).text == masked.format(**kinds)


@pytest.mark.parametrize(
    "text",
    [
        encoded("hello world, this is a fixture"),
        wrapped("hello world, this is a fixture " * 20),
        f"data:image/png;base64,{base64.b64encode(random.Random(1).randbytes(5_000)).decode()}",
        f"-----BEGIN CERTIFICATE-----\n{LINES}\n-----END CERTIFICATE-----",
        encoded(f"-----BEGIN CERTIFICATE-----\n{LINES}\n-----END CERTIFICATE-----\n"),
        "getUserAuthenticationTokenFromSessionStorage = anotherVeryLongIdentifierOfSomebody\n",
    ],
)
def test_what_is_left(text: str) -> None:
    assert redact(text).text == text
