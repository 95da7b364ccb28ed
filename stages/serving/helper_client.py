"""Asks the helper beside an engine that somebody else starts for weights (`python -m stages.delivery`).

Whatever answers at its address (a proxy's page, another server) and does not speak as a helper is a helper
that is down. Not here: what the engine does with the weights (`outside.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import msgspec

from stages.errors import DependencyDownError, IntegrityError
from stages.trust import trusted

Offer = Callable[[str, str], Any]


class Fetched(msgspec.Struct, frozen=True):
    """Where the engine finds the checkpoint, how many bytes came for it, and how many deltas that was."""

    path: str
    bytes: int
    links: int


class _Why(msgspec.Struct, frozen=True):
    message: str
    hint: str = ""
    exit_code: int = 0  # none: it was asked wrongly
    lost: str = ""


class _Refused(msgspec.Struct, frozen=True):
    error: _Why


class HelperClient:
    """The helper of one engine.

    Args:
        name: the engine's, in `[targets.NAME]`.
        url, key: where it listens, and the bearer token it wants.
        offer: sees that a checkpoint (digest) is in the store that the helper fetches from, and of its chain
            the one (digest) that is lost there.
    """

    def __init__(self, name: str, url: str, key: str, timeout_s: float, offer: Offer) -> None:
        self._name, self._url, self._timeout_s = name, url.rstrip("/"), timeout_s
        self._headers = {"authorization": f"Bearer {key}"}
        self._offer = offer

    async def fetch(self, digest: str) -> Fetched:
        """Have it fetch a checkpoint, and put into the store what it says is lost there.

        Raises:
            DependencyDownError (13): it does not answer as a helper does, or cannot fetch now, or in time.
            IntegrityError (12): the checkpoint is damaged where it fetches from.
        """
        offered = set[str]()
        while isinstance(told := await self._ask(digest), _Why):
            if not told.lost or told.lost in offered:
                kind = IntegrityError if told.exit_code == IntegrityError.code else DependencyDownError
                raise kind(f"the helper of {self._name}: {told.message}", hint=told.hint or self._hint)
            offered.add(told.lost)
            await asyncio.to_thread(self._offer, digest, told.lost)
        return told

    async def _ask(self, digest: str) -> Fetched | _Why:
        """What it says to one request. Raises DependencyDownError (13) when it says nothing."""
        try:
            async with httpx.AsyncClient(
                trust_env=False, timeout=self._timeout_s, verify=trusted(self._url)
            ) as client:
                body = {"checkpoint": digest}
                answer = await client.post(f"{self._url}/fetch", json=body, headers=self._headers)
        except httpx.ReadTimeout as error:
            raise DependencyDownError(
                f"the helper of {self._name} has not fetched {digest[:19]} within {self._timeout_s:g} s",
                hint="it goes on: deploy again in a while; a slow deploy.store wants a larger "
                "engine.update_timeout_s",
            ) from error
        except httpx.HTTPError as error:
            raise DependencyDownError(
                f"the helper of {self._name} at {self._url} does not answer: {type(error).__name__}",
                hint="start it: python -m stages.delivery --help",
            ) from error
        try:
            if answer.status_code == httpx.codes.OK:
                return msgspec.json.decode(answer.content, type=Fetched)
            return msgspec.json.decode(answer.content, type=_Refused).error
        except (ValueError, RecursionError) as error:
            raise DependencyDownError(
                f"the helper of {self._name}: what answers at {self._url} is none (status "
                f"{answer.status_code}, and {len(answer.content)} bytes that a helper does not send)",
                hint=self._hint,
            ) from error

    @property
    def _hint(self) -> str:
        return f"look at helper in [targets.{self._name}], at what stands before it, and at its log"
