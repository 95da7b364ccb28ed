"""What is wrong with a store of checkpoints, in words that hold no credentials, and what to look at.

Libraries say what they were told: endpoints with a password in them, keys. So what is known is said in our
words, and what is not is repeated without the values of variables that hold secrets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from cursorbench.redaction.masking import redact
from stages.errors import DependencyDownError, InputMissingError, RtrlError

_SECRET_VARIABLE = re.compile(r"KEY|SECRET|TOKEN|PASSW|CREDENTIAL|CONNECTION_STRING", re.IGNORECASE)
_USER = re.compile(r"//[^/\s\"'@]+@")
_SHORTEST = 6  # a value that is shorter would take words out of the message
_S3 = ("s3", "s3a")
_AWAY = {"EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError"}  # botocore's
_AWAY |= {"ConnectionError", "TimeoutError"}  # Python's
_NO_KEYS = {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound"}


def explained(url: str, error: Exception) -> RtrlError:
    """The user's error for one that a library raised about the store at `url`."""
    protocol = url.partition("://")[0]
    kinds = {each.__name__ for one in _causes(error) for each in type(one).__mro__}
    said = _said(error, os.environ)
    if isinstance(error, ImportError):
        what = "pip install 'rtrl[s3]'" if protocol in _S3 else said
        return InputMissingError(f"what {protocol}:// wants is not installed: {said}", hint=what)
    if no_bucket(error):
        bucket = url.partition("://")[2].partition("/")[0]
        return DependencyDownError(
            f"the store {url} cannot be used: there is no bucket {bucket}",
            hint="make it, or correct deploy.store; AWS_ENDPOINT_URL says on which server",
        )
    if kinds & _NO_KEYS:
        what, hint = "there are no credentials for it", _hint(protocol, "credentials")
    elif "PermissionError" in kinds:
        what, hint = f"it refuses access: {said}", _hint(protocol, "credentials")
    elif kinds & _AWAY:
        what, hint = f"it does not answer: {said}", _hint(protocol, "endpoint")
    else:
        what, hint = said, "look at deploy.store and at what its protocol needs (docs/serving.md)"
    return DependencyDownError(f"the store {url} cannot be used: {what}", hint=hint)


def no_bucket(error: Exception) -> bool:
    """Whether the bucket itself is not there, in place of something in it."""
    return any(_code(one) == "NoSuchBucket" for one in _causes(error))


def _hint(protocol: str, about: str) -> str:
    if protocol not in _S3:
        return "look at deploy.store: is it there, and may this user read and write it?"
    if about == "credentials":
        return (
            "look at AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, in the environment of this "
            "process, and whether they may list, read and write there"
        )
    return (
        "look at AWS_ENDPOINT_URL and AWS_REGION in the environment of this process, whether that server is "
        "up, and whether this machine reaches it"
    )


def _said(error: Exception, environment: Mapping[str, str]) -> str:
    """The library's words, without what is nobody's to read, cut short."""
    text = f"{type(error).__name__}: {error}"
    for name, value in environment.items():
        if len(value) >= _SHORTEST and _SECRET_VARIABLE.search(name):
            text = text.replace(value, "[hidden]")
    return redact(_USER.sub("//[hidden]@", text)).text[:300]


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _code(error: BaseException) -> str:
    """The code in an answer of S3, "" for other errors."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""
