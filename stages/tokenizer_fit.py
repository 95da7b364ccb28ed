"""Whether a model has an embedding for every token that its tokenizer makes. Asked when a line begins.

Not here: whether two tokenizers are one (`train/outside/likeness.py`).
"""

from __future__ import annotations

from pathlib import Path

from cursorbench.pretrained import config_of, tokenizer_of
from stages.errors import IntegrityError


def require_tokenizer_fits(folder: Path) -> None:
    """Raise IntegrityError (exit 12) when the tokenizer, as transformers loads it, has too many ids.

    One id without an embedding in a request ends vLLM's engine for everybody. Classes add tokens of their
    own: what tokenizer.json holds says too little. The same when configuration or tokenizer do not load.
    """
    try:
        rows = int(config_of(folder).get_text_config().vocab_size)
        tokenizer = tokenizer_of(folder)
    except Exception as error:  # whatever transformers makes of a stranger's files
        told = " ".join(str(error).split())
        if "trust_remote_code" in told:
            raise IntegrityError(
                f"{folder} is read by code of its own (`auto_map`), and code of a model's is not run",
                hint="a model type that transformers has itself; a newer transformers may have this one",
            ) from error
        raise IntegrityError(
            f"configuration or tokenizer of {folder} do not load: {told}",
            hint="see its config.json and tokenizer_config.json; a model type that is not recognised wants a "
            "newer transformers",
        ) from error
    if beyond := sorted(token for token, number in tokenizer.get_vocab().items() if number >= rows):
        raise IntegrityError(
            f"{folder}: {len(beyond)} tokens have no embedding (vocab_size is {rows}): "
            f"{', '.join(map(repr, beyond[:3]))}",
            hint="name existing tokens as unk_token, pad_token, eos_token in tokenizer_config.json, "
            "or resize the model's embedding",
        )
