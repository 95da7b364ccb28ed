"""Which weights sampled a token, told from the answer itself.

The stub's logprobs depend on the bytes of the weights that it holds at that moment, one by one. A real
engine's are compared with those of a forward pass of every checkpoint over the same tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stages.gateway.stub_weights import salt_of
from stages.stage import Artifact

NEAR = 0.02  # nats, on average; float32 in engine and forward pass are 1e-5 apart, checkpoints of a run 0.1


class Stub:
    """Hears the stub. `checkpoints` by short name."""

    def __init__(self, checkpoints: dict[str, Artifact]) -> None:
        self._digests = {salt_of(each.path): each.digest for each in checkpoints.values()}
        if len(self._digests) != len(checkpoints):
            raise ValueError("two checkpoints sound alike")

    def heard(self, prompt: Sequence[int], ids: Sequence[int], logprobs: Sequence[float]) -> set[str]:
        """Digests of the weights that sampled the tokens; "?" for none of ours."""
        found = set()
        for index, (token, value) in enumerate(zip(ids, logprobs, strict=True)):
            salt = (round(-value * 500) - index * 31 - token * 17) % 1000
            found.add(self._digests.get(salt, "?"))
        return found


class Real:
    """Hears vLLM, by forward passes in float32."""

    def __init__(self, checkpoints: dict[str, Artifact]) -> None:
        from stages import modelio

        self._models = {
            each.digest: modelio.load_model(Path(each.path)).eval() for each in checkpoints.values()
        }

    def heard(self, prompt: Sequence[int], ids: Sequence[int], logprobs: Sequence[float]) -> set[str]:
        """As `Stub.heard`, for all tokens together."""
        import torch

        if not len(ids):
            return set()
        tokens = torch.tensor([[*prompt, *ids]])
        apart = {}
        with torch.no_grad():
            for digest, model in self._models.items():
                scores = model(tokens).logits[0, len(prompt) - 1 : -1].float().log_softmax(-1)
                told = scores.gather(1, tokens[0, len(prompt) :, None])[:, 0].numpy()
                apart[digest] = float(np.abs(told - np.asarray(logprobs)).mean())
        nearest = min(apart, key=lambda digest: apart[digest])
        return {nearest if apart[nearest] < NEAR else "?"}


def listener(engine: str, checkpoints: dict[str, Artifact]) -> Stub | Real:
    """Who tells the weights of an engine's answers."""
    return Stub(checkpoints) if engine == "stub" else Real(checkpoints)
