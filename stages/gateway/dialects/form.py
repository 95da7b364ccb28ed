"""What a dialect is: another API in front of the same generation.

A dialect reads its request into one of `/v1/chat/completions` or `/v1/completions`, which is all that the
gateway behind it knows (sampling, sessions, capture), and its form tells that API's answer in the words of
its own. Here are the interface and the plain form, which changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
import orjson

from stages.gateway.errors import ApiError, invalid
from stages.gateway.request import Api

DONE = b"data: [DONE]\n\n"
_MISSING = re.compile(r"missing required field `(\w+)`")
T = TypeVar("T")


class Form(Protocol):
    """How one answer is told. Pieces of a stream are bytes to send, b"" for nothing.

    Attributes:
        tells_stop: whether a choice has to have `stop_reason`: the stop string that ended it, else None.
        id_header: where that API's clients look for the name of an answer, b"" for nowhere but in its body.
    """

    tells_stop: bool
    id_header: bytes

    def whole(self, body: dict[str, Any]) -> dict[str, Any]:
        """A whole answer; `body` as the plain API's."""
        ...

    def piece(self, chunk: dict[str, Any]) -> bytes:
        """The next piece of a stream; `chunk` as the plain API's."""
        ...

    def end(self) -> bytes:
        """What follows the last piece of a complete answer."""
        ...

    def broken(self, error: ApiError, request_id: str) -> bytes:
        """The end of an answer that is not complete."""
        ...


class Dialect(NamedTuple):
    """An API. `read` makes a body of `api` of its own, and gives the answer's form. Raises ApiError.

    `fields`: what it calls those of `api` that have another name there.
    """

    api: Api
    read: Callable[[dict[str, Any]], tuple[dict[str, Any], Form]]
    fields: Mapping[str, str] = MappingProxyType({})

    def tell(self, error: ApiError) -> None:
        """What is said of a field of `api` is said by the name that it has here."""
        param = error.param or ""
        if param in self.fields:
            error.param = self.fields[param]
            error.message = re.sub(rf"\b{param}\b", error.param, error.message)


class Plain:
    """OpenAI's chat and completions, as they are."""

    tells_stop = False
    id_header = b""

    def whole(self, body: dict[str, Any]) -> dict[str, Any]:
        """See `Form`."""
        return body

    def piece(self, chunk: dict[str, Any]) -> bytes:
        """See `Form`."""
        return b"data: " + orjson.dumps(chunk) + b"\n\n"

    def end(self) -> bytes:
        """See `Form`."""
        return DONE

    def broken(self, error: ApiError, request_id: str) -> bytes:
        """See `Form`. No [DONE] follows."""
        return b"data: " + orjson.dumps(error.body(request_id)) + b"\n\n"


PLAIN = Plain()


def named(event: dict[str, Any]) -> bytes:
    """A server-sent event that bears the name of its `type`."""
    return f"event: {event['type']}\n".encode() + b"data: " + orjson.dumps(event) + b"\n\n"


def read_as(body: dict[str, Any], kind: type[T]) -> T:
    """The fields of `body` that are not null, as `kind`, a struct. Raises ApiError 400."""
    try:
        return msgspec.convert({name: value for name, value in body.items() if value is not None}, kind)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at ")
        missing = _MISSING.search(what)
        param = ".".join(filter(None, (where.strip("`$."), missing and missing[1]))) or None
        message = "it is required" if missing else f"{what[:1].lower()}{what[1:]}"
        if what.startswith("Invalid enum value"):  # which it repeats
            message = "it is none of what it may be"
        raise invalid(f"{param}: {message}" if param else message, param=param) from None


def string_in(block: dict[str, Any], name: str, where: str) -> str:
    """The field `name` of a block that has to have it. Raises ApiError 400."""
    found = block.get(name)
    if not isinstance(found, str):
        raise invalid(f"{name} must be a string", param=f"{where}.{name}")
    return found
