"""A head that predicts the token after the next one, so that an engine can draft with it.

    m_i = N_f(B(W [N_h(h_i); N_e(e(t_{i+1}))]))        q(t_{i+2} | t_{<=i+1}) = softmax(U m_i)

h is the model's last hidden state, e and U its own embedding and output head, B one decoder layer as
the model's own, N root-mean-square norms. Sources: DeepSeek-V3, arXiv 2412.19437, section 2.2 (one
depth); names of the tensors: MiMo, arXiv 2505.07608, which vLLM drafts with (`mimo_mtp`) for models of
Qwen2's layers. Not here: how it is trained (`self_distillation.py`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from stages import modelio
from stages.errors import IntegrityError, UsageError
from stages.train.packing import Pack

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FOLDER = "mtp"
_PREFIX = "model.mtp_layers.0."
_NEW = ("token_layernorm.weight", "hidden_layernorm.weight", "input_proj.weight", "final_layernorm.weight")


class MtpHead(nn.Module):  # type: ignore[misc]
    """The head over a model of Qwen2's layers; embedding and output head stay the model's.

    A new one hands h_i to a copy of the model's last layer, with a little of the token's embedding.
    """

    def __init__(self, model: PreTrainedModel, seed: int) -> None:
        super().__init__()
        config: Any = model.config
        from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2RMSNorm

        size = int(config.hidden_size)
        self.block = Qwen2DecoderLayer(config, layer_idx=0)
        self.token_layernorm = Qwen2RMSNorm(size, eps=config.rms_norm_eps)
        self.hidden_layernorm = Qwen2RMSNorm(size, eps=config.rms_norm_eps)
        self.final_layernorm = Qwen2RMSNorm(size, eps=config.rms_norm_eps)
        self.input_proj = nn.Linear(2 * size, size, bias=False)
        body: Any = model.base_model
        self.block.load_state_dict(body.layers[-1].state_dict())
        self.final_layernorm.load_state_dict(body.norm.state_dict())
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            embedded = torch.randn(size, size, generator=generator) * config.initializer_range
            self.input_proj.weight.copy_(torch.cat([torch.eye(size), embedded], dim=1))
        self.to(next(model.parameters()).device)

    def forward(self, model: PreTrainedModel, hidden: Tensor, pack: Pack) -> Tensor:
        """m [N, H] of N packed cells: `hidden` [N, H] are h_i, `pack` holds t_{i+1} at position i."""
        body: Any = model.base_model
        embedded = body.embed_tokens(pack.ids)
        embedded = torch.where((pack.positions == 0)[..., None], 0.0, embedded)  # as vLLM's, which masks it
        joined = torch.cat([self.hidden_layernorm(hidden[None]), self.token_layernorm(embedded)], dim=-1)
        states = self.input_proj(joined)
        states = self.block(
            states,
            attention_mask=None,
            position_ids=pack.positions,
            position_embeddings=body.rotary_emb(states, pack.positions),
            use_cache=False,
            pack=pack,
        )
        out: Tensor = self.final_layernorm(states)[0]
        return out

    def tensors(self) -> dict[str, Tensor]:
        """By the names of MiMo's layout."""
        return {_PREFIX + name.removeprefix("block."): value for name, value in self.state_dict().items()}

    def fill(self, tensors: dict[str, Tensor]) -> None:
        """Take the values of `tensors`. Raises IntegrityError when they are not this head's."""
        named = {}
        for name, value in tensors.items():
            own = name.removeprefix(_PREFIX)
            named[own if own in _NEW else f"block.{own}"] = value.to(torch.float32)
        expected = {name: value.shape for name, value in self.state_dict().items()}
        if {name: value.shape for name, value in named.items()} != expected:
            raise IntegrityError(
                "the multi-token prediction head of the parent is not one of this model",
                hint="rtrl verify --full",
            )
        self.load_state_dict(named)


def require_fit(checkpoint: Path) -> None:
    """Raise UsageError (exit 2) when no engine would draft with a head on this model."""
    kind = modelio.read_config(checkpoint).get("model_type")
    if kind != "qwen2":
        raise UsageError(
            f"train.mtp_passes: no engine drafts with a head on a model of type {kind}",
            hint="a multi-token prediction head is for models of Qwen2's layers; set mtp_passes to 0",
        )


def head_of(model: PreTrainedModel, parent: Path, seed: int) -> tuple[MtpHead, bool]:
    """The head to train, and whether it goes on from the one beside the checkpoint in `parent`.

    Raises IntegrityError (exit 12) when that of the parent is damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    head = MtpHead(model, seed)
    path = parent / FOLDER / modelio.WEIGHTS_FILE
    if not path.is_file():
        return head, False
    try:
        head.fill(load_file(path))
    except SafetensorError as error:
        raise IntegrityError(f"{path} is damaged: {error}", hint="rtrl verify --full") from error
    return head, True


def write_head(head: MtpHead, checkpoint: Path, dtype: modelio.ExportDtype) -> None:
    """Write `checkpoint/mtp/`, the draft model that vLLM takes beside the checkpoint."""
    from safetensors.torch import save_file

    folder = checkpoint / FOLDER
    folder.mkdir()
    config = modelio.read_config(checkpoint)
    config |= {"architectures": ["MiMoForCausalLM"], "num_nextn_predict_layers": 1}
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    kind = torch.bfloat16 if dtype == "bfloat16" else torch.float32
    tensors = {name: value.detach().cpu().to(kind).contiguous() for name, value in head.tensors().items()}
    with modelio.disk_errors():
        save_file(tensors, folder / modelio.WEIGHTS_FILE, metadata={"format": "pt"})
