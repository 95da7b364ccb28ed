"""What transformers makes of a model's folder: of its files alone, and by no code of the model's own.

Errors are transformers' own, of many kinds: whoever asks tells what they mean. Not for: weights (`load_model`
of `stages/modelio.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

ALONE: Final[dict[str, Any]] = {"local_files_only": True, "trust_remote_code": False}


def config_of(folder: Path) -> PreTrainedConfig:
    """The configuration, with all defaults filled in, to make a model of: it chooses no kernels.

    A config.json may name an attention, or a kernel of the Hub's, which is code that is fetched and run.
    transformers heeds it before what its caller asks for: a whole pack went through it as one sequence.
    """
    from transformers import AutoConfig

    config: PreTrainedConfig = AutoConfig.from_pretrained(folder, **ALONE)
    config._attn_implementation = config._experts_implementation = None  # also of models within
    return config


def tokenizer_of(folder: Path) -> Any:
    """The tokenizer, with what its class puts in place of what stands in the files."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, **ALONE)


def causal_model_of(config: PreTrainedConfig, device: str = "cpu") -> PreTrainedModel:
    """A causal model of that form, with initial values; on "meta" with none, of no size."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, trust_remote_code=False)
