"""The served fingerprint of a checkpoint: what an engine must hold and say once it serves it.

`served_fingerprint.json` beside the weights:

    {"schema": "rtrl-fingerprint/1",
     "probes": [[token id, ...], ...],                  lengths L_i >= 2
     "logprobs": {"parent": [[L_i - 1 floats], ...] or null, "child": [[L_i - 1 floats], ...]},
     "tensors": {name: {"sha256": ..., "numel": n, "sum": ...}}}

`logprobs[i][t]` is log p(probe[t + 1] | probe[..t]) at temperature 1 of a float32 forward pass. `sha256`
is over the C-contiguous little-endian float32 bytes of the tensor as it stands in the safetensors
file, `sum` the float64 sum of those values.

The probes are sampled from the line's first model itself, never taken from users: a checkpoint is
not sealed. A child keeps its parent's probes, so that their logprobs can be compared.

Not here: asking the engine (`stages/engine/`).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages import modelio
from stages.errors import IntegrityError

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

SCHEMA = "rtrl-fingerprint/1"
FILE = "served_fingerprint.json"
PROBES = 8
PROBE_TOKENS = 64
_OF_KEYS_AND_VALUES = {"full_attention", "sliding_attention", "chunked_attention"}  # names of transformers


def write_fingerprint(folder: Path, *, parent: Path | None) -> None:
    """Write `served_fingerprint.json` into the checkpoint `folder`, whose weights stand there already.

    `parent` is the folder of the checkpoint it was trained from, None for a line's first one. The
    weights are loaded back from disk: what is described is what was written. Raises IntegrityError when
    they give no numbers.
    """
    model = modelio.load_model(folder)
    parent_logprobs: list[list[float]] | None = None
    if parent is None:
        probes = sample_probes(model)
    elif (parent / FILE).is_file():
        known = read_fingerprint(parent)
        probes, parent_logprobs = known["probes"], known["logprobs"]["child"]
    else:
        parent_model = modelio.load_model(parent)
        probes = sample_probes(parent_model)
        parent_logprobs = probe_logprobs(parent_model, probes)
    fingerprint = {
        "schema": SCHEMA,
        "probes": probes,
        "logprobs": {"parent": parent_logprobs, "child": probe_logprobs(model, probes)},
        "tensors": tensor_checksums(folder),
    }
    (folder / FILE).write_text(json.dumps(fingerprint, sort_keys=True) + "\n")


def read_fingerprint(folder: Path) -> dict[str, Any]:
    """The fingerprint of a checkpoint folder. Raises IntegrityError when missing, torn or foreign."""
    path = folder / FILE
    try:
        fingerprint = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise IntegrityError(f"{path} cannot be read: {error}", hint="rtrl verify --full") from error
    if not isinstance(fingerprint, dict) or fingerprint.get("schema") != SCHEMA:
        raise IntegrityError(f"{path} is not of schema {SCHEMA}", hint="rtrl verify --full")
    return fingerprint


def sample_probes(
    model: PreTrainedModel, *, count: int = PROBES, length: int = PROBE_TOKENS, seed: int = 0
) -> list[list[int]]:
    """`count` sequences of `length` ids: a random first id, the rest sampled from `model` at temperature 1.

    Ancestral sampling. Each pass reads the last ids alone where the model gives back keys and values to go on
    with; of one that does not (those with a state in place of them) each reads all ids so far.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    config = model.config.get_text_config()  # a model that also reads images has one within
    vocabulary, limit = int(config.vocab_size), getattr(config, "max_position_embeddings", length)
    ids = torch.randint(vocabulary, (count, 1), generator=generator)
    keeps = {*(getattr(config, "layer_types", None) or ())} <= _OF_KEYS_AND_VALUES
    so_far: dict[str, Any] = {}
    with torch.no_grad():
        for _ in range(min(length, limit) - 1):
            fed = ids[:, -1:] if so_far else ids
            told = model(input_ids=fed.to(model.device), use_cache=keeps, **so_far)
            logits = told.logits[:, -1].float().cpu()
            _refuse_no_numbers(logits.logsumexp(-1))  # single ids may be ruled out
            drawn = torch.multinomial(logits.softmax(-1), 1, generator=generator)
            ids = torch.cat([ids, drawn], dim=1)
            known = told.get("past_key_values")
            so_far = {"past_key_values": known} if known is not None else {}
    return [[int(token) for token in row] for row in ids]


def probe_logprobs(model: PreTrainedModel, probes: list[list[int]]) -> list[list[float]]:
    """log p of each probe's tokens but the first, one probe at a time: lists of length L_i - 1."""
    import torch

    scores: list[list[float]] = []
    with torch.no_grad():
        for probe in probes:
            ids = torch.tensor([probe], device=model.device)
            logprobs = model(input_ids=ids, use_cache=False).logits[0, :-1].float().log_softmax(-1)
            found = logprobs.gather(1, ids[0, 1:, None])[:, 0].cpu()
            _refuse_no_numbers(found)
            scores.append(found.tolist())
    return scores


def _refuse_no_numbers(values: Tensor) -> None:
    """Finite weights can be too large to compute with: a last step of training that nothing measured."""
    if not bool(values.isfinite().all()):
        raise IntegrityError(
            "the model gives logprobs that are not finite",
            hint="its weights are damaged, or were trained too far: lower train.learning_rate",
        )


def tensor_checksums(folder: Path) -> dict[str, dict[str, Any]]:
    """sha256, number of values and float64 sum of every tensor of a checkpoint, as float32."""
    import numpy as np

    checksums: dict[str, dict[str, Any]] = {}
    for name, tensor in modelio.tensors(folder):
        values = np.ascontiguousarray(tensor.float().numpy()).astype("<f4", copy=False)
        checksums[name] = {
            "sha256": hashlib.sha256(values.tobytes()).hexdigest(),
            "numel": int(values.size),
            "sum": float(values.sum(dtype=np.float64)),
        }
    return checksums
