"""Log-probabilities of sampled tokens under a model, without ever holding all logits.

    logp_t = z_{y_t} - log sum_v exp(z_v),   z = processed logits of hidden state t - 1

Only the positions that predict a wanted token go through the output head, in blocks of bounded
size; when a gradient is wanted and there is more than one block, a block's logits are computed again
in the backward pass instead of being kept.

Not here: what the distribution is (`sampling.py`), what is done with the numbers (`evidence.py`,
`update.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from stages.train.packing import Pack
from stages.train.routing import attach
from stages.train.sampling import Processing, processed_logits

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Head = Callable[[Tensor], Tensor]


def output_head(model: PreTrainedModel) -> Head:
    """Final hidden states [n, H] -> float32 logits [n, V], with the scaling and soft cap the model has."""
    config: Any = model.config.get_text_config()
    linear = model.get_output_embeddings()
    factor = float(getattr(config, "logit_scale", None) or 1.0)
    factor /= float(getattr(config, "logits_scaling", None) or 1.0)
    cap = getattr(config, "final_logit_softcapping", None)

    def head(hidden: Tensor) -> Tensor:
        logits: Tensor = linear(hidden).float()
        if factor != 1:
            logits = logits * factor
        return logits if cap is None else cap * torch.tanh(logits / cap)

    return head


def hidden_states(model: PreTrainedModel, pack: Pack) -> Tensor:
    """Final hidden states [N, H] of a packed micro-batch; `model` was loaded with `attention.NAME`."""
    attach(model, pack.replay)
    out = model.base_model(input_ids=pack.ids, position_ids=pack.positions, use_cache=False, pack=pack)
    states: Tensor = out.last_hidden_state[0]
    return states


def token_logprobs(
    hidden: Tensor, targets: Tensor, head: Head, processing: Processing, *, block_rows: int
) -> tuple[Tensor, Tensor]:
    """(logp [n], entropy [n]) in nats: hidden [n, H] predict `targets` [n].

    logp carries the gradient, entropy none. logp is -inf for a token the processing rules out (its
    gradient is zero). At most `block_rows` rows of logits exist at a time.
    """
    count = hidden.shape[0]
    parts: list[tuple[Tensor, Tensor]] = []
    again = torch.is_grad_enabled() and count > block_rows
    for first in range(0, count, block_rows):
        last = min(first + block_rows, count)
        block = (hidden[first:last], targets[first:last], head, processing.block(first, last))
        if again:
            parts.append(checkpoint(_block, *block, use_reentrant=False, preserve_rng_state=False))
        else:
            parts.append(_block(*block))
    if not parts:
        return hidden.new_zeros(0), hidden.new_zeros(0)
    return torch.cat([logp for logp, _ in parts]), torch.cat([entropy for _, entropy in parts])


def _block(hidden: Tensor, targets: Tensor, head: Head, processing: Processing) -> tuple[Tensor, Tensor]:
    logits = processed_logits(head(hidden), processing)
    normaliser = logits.logsumexp(-1)
    logp = logits.gather(1, targets[:, None])[:, 0] - normaliser
    with torch.no_grad():
        all_logp = logits - normaliser[:, None]
        # 0 log 0 = 0 for ids that were ruled out
        entropy = -(all_logp.exp() * all_logp.clamp(min=-1e4)).sum(-1)
    return logp, entropy


def rows_within(mebibytes: int, vocabulary: int) -> int:
    """How many rows of float32 logits fit into `mebibytes`; at least one."""
    return max(1, mebibytes * 2**20 // (4 * vocabulary))
