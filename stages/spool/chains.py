"""Prompts stored as suffixes of what the session already holds, and put together again.

A generation whose prompt starts with the tokens of an earlier one of its session (prompt and output)
stores only what follows: `prompt_base` names the earlier one, `prompt_prefix` says how many of its
tokens are taken. Chains never leave a segment, so segments can be deleted or lost one by one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stages import routing
from stages.errors import IntegrityError
from stages.records import Generation, Payload
from stages.spool import codec
from stages.vault import Vault

Ids = npt.NDArray[np.int32]
Logprobs = npt.NDArray[np.float32]

MIN_PREFIX = 16  # ids; a shorter common prefix is not worth a link
MAX_DEPTH = 64  # links to follow for one prompt; the next one is stored in full
KEPT_PER_SESSION = 4  # agents that work side by side in one session


class Tokens(NamedTuple):
    """Exact tokens of a generation: prompt ids [P], output ids [O], logprob of each output id [O], and
    the experts of all but the last token [P + O - 1, layers, top_k] where the engine reports them
    (of other lengths when the generation has a defect)."""

    prompt: Ids
    output: Ids
    logprobs: Logprobs
    experts: routing.Experts | None = None

    @property
    def routed(self) -> tuple[int, ...]:
        """Layers and choices of the experts, () when they are not known of all tokens."""
        if self.experts is None or len(self.experts) != len(self.prompt) + len(self.output) - 1:
            return ()
        return self.experts.shape[1:]


class _Known(NamedTuple):
    id: str
    ids: Ids
    depth: int
    routed: tuple[int, ...]  # layers and choices of its experts; () when they are not known of all tokens


class _Whole(NamedTuple):
    """All tokens of a generation and their experts."""

    ids: Ids
    experts: routing.Experts | None

    @property
    def nbytes(self) -> int:
        return self.ids.nbytes + (0 if self.experts is None else self.experts.nbytes)


class SessionCache:
    """Tokens of recent generations by owner (user, key, session), to find what a new prompt extends.
    The writer's side."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._sessions: OrderedDict[tuple[str, ...], list[_Known]] = OrderedDict()
        self._segment = 0

    def of_segment(self, segment: int) -> None:
        """What follows is written into this one: forget everything when it is a new one."""
        if segment != self._segment:
            self._sessions.clear()
            self._bytes, self._segment = 0, segment

    def base(self, owner: tuple[str, ...], prompt: Ids) -> tuple[str, int, int]:
        """What `prompt` extends: generation id ("" for nothing), ids in common, depth of the new link.

        Nothing, where that is too deep already, rather than an earlier one: what goes on from an earlier one
        is a branch, trained as a sequence of its own, and so would the next be, until all kept are too deep.
        """
        best = ("", 0, 0)
        for known in self._sessions.get(owner, ()):
            common = common_prefix(known.ids, prompt)
            if common >= MIN_PREFIX and common > best[1]:
                best = (known.id, common, known.depth + 1)
        return best if best[2] <= MAX_DEPTH else ("", 0, 0)

    def routed(self, owner: tuple[str, ...], generation_id: str) -> tuple[int, ...]:
        """`Tokens.routed` of a generation that `base` named."""
        return next((k.routed for k in self._sessions.get(owner, ()) if k.id == generation_id), ())

    def add(self, owner: tuple[str, ...], generation_id: str, tokens: Tokens, depth: int) -> None:
        """Remember prompt and output of a generation just written."""
        entries = self._sessions.setdefault(owner, [])
        ids = np.concatenate((tokens.prompt, tokens.output))
        entries.append(_Known(generation_id, ids, depth, tokens.routed))
        self._bytes += ids.nbytes
        if len(entries) > KEPT_PER_SESSION:
            self._bytes -= entries.pop(0).ids.nbytes
        self._sessions.move_to_end(owner)
        while self._bytes > self._max_bytes and self._sessions:
            _, dropped = self._sessions.popitem(last=False)
            self._bytes -= sum(known.ids.nbytes for known in dropped)


class ChainReader:
    """Opens payloads and puts full prompts together. The readers' side.

    Args:
        lookup: generation id -> its record, for bases not seen yet (`Spool.record`).
        max_bytes: tokens kept in memory so that a forward pass need not look up.
    """

    def __init__(
        self,
        vault: Vault,
        lookup: Callable[[str], tuple[Generation, bytes]],
        max_bytes: int = 256 << 20,
    ) -> None:
        self._vault = vault
        self._lookup = lookup
        self._max_bytes = max_bytes
        self._bytes = 0
        self._full: OrderedDict[str, _Whole] = OrderedDict()

    def open(self, generation: Generation, sealed: bytes) -> tuple[Payload, Tokens]:
        """The payload as stored, and the tokens with prompt and experts in full.

        Raises:
            UserForgottenError: the user's key is gone.
            IntegrityError: no payload was written (no-train), it does not open, or lengths contradict.
        """
        chain = [self._unseal(generation, sealed)]
        links = [generation]
        while links[-1].prompt_base and links[-1].prompt_base not in self._full:
            if len(links) > MAX_DEPTH:  # the writer makes none: two that extend each other have no end
                raise IntegrityError(
                    f"the prompt of generation {generation.id} extends too many others",
                    hint="quarantine it",
                )
            base, base_sealed = self._lookup(links[-1].prompt_base)
            links.append(base)
            chain.append(self._unseal(base, base_sealed))
        prompt, experts = np.empty(0, np.int32), None
        for link, payload in zip(reversed(links), reversed(chain), strict=True):
            prompt, experts = self._join(link, payload)
            self._keep(link.id, _Whole(np.concatenate((prompt, _ids(payload.output))), experts))
        payload = chain[0]
        logprobs = np.frombuffer(payload.logprobs, np.float32)
        return payload, Tokens(prompt, _ids(payload.output), logprobs, experts)

    def _unseal(self, generation: Generation, sealed: bytes) -> Payload:
        if not sealed:
            raise IntegrityError(
                f"generation {generation.id} has no payload: it was requested with no-train",
                hint="skip generations with no_train",
            )
        plain = self._vault.unseal(generation.user, sealed, codec.generation_aad(generation.id))
        try:
            return codec.decode(plain)
        except ValueError as error:
            raise IntegrityError(
                f"the payload of generation {generation.id} does not decode", hint="quarantine it"
            ) from error

    def _join(self, generation: Generation, payload: Payload) -> tuple[Ids, routing.Experts | None]:
        suffix = _ids(payload.prompt)
        prompt, base = suffix, None
        if generation.prompt_base:
            base = self._full.get(generation.prompt_base)
            if base is None or len(base.ids) < generation.prompt_prefix:
                raise IntegrityError(
                    f"the prompt of generation {generation.id} extends tokens that are not there",
                    hint="quarantine it",
                )
            prompt = np.concatenate((base.ids[: generation.prompt_prefix], suffix))
        if len(prompt) != generation.prompt_tokens:
            raise IntegrityError(
                f"generation {generation.id} has {len(prompt)} prompt ids where {generation.prompt_tokens} "
                "were recorded",
                hint="quarantine it",
            )
        return prompt, routing.joined(payload.experts, base.experts if base else None)

    def _keep(self, generation_id: str, whole: _Whole) -> None:
        if generation_id in self._full:
            return
        self._full[generation_id] = whole
        self._bytes += whole.nbytes
        while self._bytes > self._max_bytes and len(self._full) > 1:
            _, dropped = self._full.popitem(last=False)
            self._bytes -= dropped.nbytes


def suffixed(
    generation: Generation, tokens: Tokens, request: str, answer: str, *, base_routed: tuple[int, ...] = ()
) -> Payload:
    """What is stored of a generation: its prompt without the `prompt_prefix` ids that its base holds.

    Nor the experts of those but the last, which the base did not forward, where it holds such
    (`base_routed`, its `Tokens.routed`).
    """
    first = max(generation.prompt_prefix - 1, 0) if base_routed and tokens.routed == base_routed else 0
    return Payload(
        prompt=tokens.prompt[generation.prompt_prefix :].astype("<i4", copy=False).tobytes(),
        output=tokens.output.astype("<i4", copy=False).tobytes(),
        logprobs=tokens.logprobs.astype("<f4", copy=False).tobytes(),
        request=request,
        answer=answer,
        experts=None if tokens.experts is None else routing.packed(tokens.experts, first),
    )


def common_prefix(left: Ids, right: Ids) -> int:
    """How many ids the two have in common from the start."""
    n = min(len(left), len(right))
    differ = left[:n] != right[:n]
    return int(differ.argmax()) if differ.any() else n


def _ids(data: bytes) -> Ids:
    if len(data) % 4:
        raise IntegrityError("token ids are cut off inside an id", hint="quarantine the record")
    return np.frombuffer(data, np.int32)
