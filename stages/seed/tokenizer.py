"""The seed model's own tokenizer: byte-level BPE over the population's words and code.

Digits are single tokens and words keep at most one leading blank, so that names and numbers can be
copied token by token. The second word of a name and the parenthesis after it may be one token: then what
follows `def add_price(` is found by looking one token back. Other punctuation never merges with words.

transformers (5.19) gives every folder of model type qwen2 the text splitting of Qwen2, whatever
tokenizer.json says. So the file says the same, and tokens that Qwen2's splitting would take apart are added
tokens, which are found before the text is split.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from stages.seed.format import CALL_PIECES, CHAT_TEMPLATE, END, PAD, SPECIAL_TOKENS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

VOCABULARY = 1024
# words | second words of names | digits | newlines with the indentation after them | punctuation | blanks
# transformers/models/qwen2/tokenization_qwen2.py
QWEN2_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
PIECES = r" ?[A-Za-z]+|_[A-Za-z]+\(?| ?[0-9]|\n+ *| ?[^\sA-Za-z0-9]+|\s"


def train_tokenizer(texts: Iterable[str], size: int = VOCABULARY) -> Tokenizer:
    """Learn merges from texts. Deterministic for the same texts in the same order."""
    from tokenizers import AddedToken, Regex, Tokenizer
    from tokenizers.decoders import ByteLevel as ByteLevelDecoder
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
    from tokenizers.trainers import BpeTrainer

    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = Sequence(
        [Split(Regex(PIECES), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=size - len(CALL_PIECES),
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer, taken_apart = _as_qwen2(tokenizer)
    # not special: they are part of the answer's text and must survive decoding
    tokenizer.add_tokens(
        [AddedToken(piece, normalized=False, special=False) for piece in (*taken_apart, *CALL_PIECES)]
    )
    return tokenizer


def _as_qwen2(tokenizer: Tokenizer) -> tuple[Tokenizer, list[str]]:
    """The same tokens with the same ids under Qwen2's splitting, and the texts that have to be added tokens.

    Those are kept in the vocabulary under their plain text, where an added token of that text finds its id.
    """
    from tokenizers import Regex, Tokenizer
    from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

    qwen2 = Split(Regex(QWEN2_PIECES), "isolated")
    document = json.loads(tokenizer.to_str())
    plain = {
        token: text
        for token, number in document["model"]["vocab"].items()
        if re.fullmatch(PIECES, text := tokenizer.decode([number], skip_special_tokens=False))
        and len(qwen2.pre_tokenize_str(text)) > 1
    }
    vocabulary = {plain.get(token, token): number for token, number in document["model"]["vocab"].items()}
    merges = [pair for pair in document["model"]["merges"] if "".join(pair) not in plain]
    document["model"] |= {"vocab": vocabulary, "merges": merges}
    renamed = Tokenizer.from_str(json.dumps(document))
    renamed.pre_tokenizer = Sequence([qwen2, ByteLevel(add_prefix_space=False, use_regex=False)])
    return renamed, list(plain.values())


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """tokenizer.json, tokenizer_config.json and chat_template.jinja, as Hugging Face reads them."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": PAD,
        "unk_token": PAD,  # without it Qwen2's class adds one of its own, beyond the embedding
        "additional_special_tokens": [token for token in SPECIAL_TOKENS if token not in (END, PAD)],
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1024,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
