"""Texts to vectors: by an encoder of one's own on this machine, or by an OpenAI-compatible service.

No model comes with this package: which one, and from where, is the team's choice (docs/harness.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cursorbench.errors import InputMissingError
from cursorbench.harness.results import RefusedError, printable
from cursorbench.pretrained import ALONE, config_of, tokenizer_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

BATCH = 64
ANSWER_S = 60.0


class Embedder(Protocol):
    """Gives texts with like meaning like vectors."""

    @property
    def name(self) -> str:
        """What decides its vectors; indexes of other names are of no use to it."""

    def embed(self, texts: Sequence[str]) -> Floats:
        """Vectors of length one [texts, dimensions]. Raises RefusedError (provider)."""


class Encoder:
    """A Hugging Face encoder in a local folder: the mean of its last layer, as of sentence-transformers.

    Args:
        folder: config.json, weights as safetensors, tokenizer.
        tokens: of one text at most; the rest is cut.

    Raises:
        InputMissingError: there is no model.
    """

    def __init__(self, folder: Path, tokens: int = 256) -> None:
        if not (folder / "config.json").is_file():
            raise InputMissingError(f"{folder} has no model", hint="a Hugging Face folder of an encoder")
        self._folder, self._tokens = folder, tokens
        self._loaded: tuple[Any, Any] | None = None
        digest = hashlib.sha256((folder / "config.json").read_bytes())
        for path in sorted(folder.glob("*.safetensors")):
            digest.update(f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}".encode())
        self.name = f"encoder:{digest.hexdigest()[:16]}:{tokens}"

    def embed(self, texts: Sequence[str]) -> Floats:
        import numpy as np
        import torch

        tokenizer, model = self._load()
        parts = []
        for start in range(0, len(texts), BATCH):
            batch = tokenizer(
                [printable(text) for text in texts[start : start + BATCH]],
                padding=True,
                truncation=True,
                max_length=self._tokens,
                return_tensors="pt",
            )
            with torch.inference_mode():
                hidden = model(**batch).last_hidden_state
            mask = batch["attention_mask"].unsqueeze(-1).to(hidden.dtype)
            mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1)
            parts.append(mean.float().numpy())
        return unit(np.concatenate(parts)) if parts else np.zeros((0, 0), np.float32)

    def _load(self) -> tuple[Any, Any]:
        if self._loaded is None:
            from transformers import AutoModel

            model = AutoModel.from_pretrained(self._folder, config=config_of(self._folder), **ALONE).eval()
            self._loaded = (tokenizer_of(self._folder), model)
        return self._loaded


class Service:
    """`POST /v1/embeddings` of an OpenAI-compatible service."""

    def __init__(self, base_url: str, key: str, model: str) -> None:
        from cursorbench.harness.completion import root_of

        self._url = f"{root_of(base_url)}/v1/embeddings"
        self._key, self._model = key, model
        self.name = f"service:{self._url}:{model}"

    def embed(self, texts: Sequence[str]) -> Floats:
        import httpx
        import numpy as np

        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        rows: list[list[float]] = []
        with httpx.Client(headers=headers, timeout=ANSWER_S, trust_env=False) as client:
            for start in range(0, len(texts), BATCH):
                batch = [printable(text) for text in texts[start : start + BATCH]]
                try:
                    answer = client.post(self._url, json={"model": self._model, "input": batch})
                    found = answer.raise_for_status().json()["data"]
                    rows += [[float(one) for one in row["embedding"]] for row in found]
                except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
                    raise RefusedError("provider", "the embedding service does not answer") from error
        if len(rows) != len(texts) or len({len(row) for row in rows}) > 1:
            raise RefusedError("provider", "the embedding service answers something else")
        return unit(np.array(rows, np.float32).reshape(len(rows), -1))


def unit(rows: Floats) -> Floats:
    """The rows with length one; a row of zeros stays."""
    import numpy as np

    length = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: Floats = (rows / np.where(length > 0, length, 1)).astype(np.float32)
    return scaled
