"""Whether a folder's tokenizer, chat template and configuration are its parent's. Reads small files only.

A child is served with its parent's tokenizer by an engine that takes weights in place: whatever would
make tokens or layers mean something else is refused, with the first difference that was found. What
computes nothing (padding, ids of special tokens, dropout) is said and the parent's is kept.
Not here: weights (`weights.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cursorbench.pretrained import tokenizer_of
from stages import modelio
from stages.errors import InputMissingError, IntegrityError
from stages.model_config import as_read

# Keys of config.json that change no logit of a given sequence.
PASSIVE_KEYS = frozenset(
    {
        "_name_or_path", "architectures", "attention_dropout", "bos_token_id", "chunk_size_feed_forward",
        "dtype", "eos_token_id", "hidden_dropout", "id2label", "initializer_range", "label2id",
        "max_position_embeddings", "output_attentions", "output_hidden_states", "output_router_logits",
        "pad_token_id", "problem_type", "return_dict", "router_aux_loss_coef", "torch_dtype",
        "transformers_version", "use_cache",
    }
)  # fmt: skip
_SAVED = "tokenizer_config.json"
_TEMPLATE = "chat_template.jinja"
_SLOW = ("vocab.json", "tokenizer.model")
_LOST = "what was sampled with one tokenizer means nothing to another: train from the parent's own files"


def check_tokenizer(folder: Path, parent: Path) -> list[str]:
    """What to say of the tokenizer in `folder`; the parent's is used either way.

    Raises IntegrityError (exit 12) when it makes other tokens, InputMissingError (exit 5) when it cannot
    be compared because it is in a slow format only.
    """
    path = folder / modelio.TOKENIZER_FILE
    if not path.is_file():
        if any((folder / name).is_file() for name in _SLOW):
            raise InputMissingError(
                f"{folder} has no {modelio.TOKENIZER_FILE} to compare with the parent's",
                hint="save the tokenizer in its fast format, or leave its files away",
            )
        return ["the folder holds no tokenizer; the parent's is taken"]
    ours = parent / modelio.TOKENIZER_FILE
    if _difference(_json(path), _json(ours)) and (found := _difference(_loaded(folder), _loaded(parent))):
        raise IntegrityError(f"{path} is not the parent's tokenizer: {found}", hint=_LOST)
    said = []
    special, expected = _special(folder), _special(parent)
    for name in sorted(special.keys() & expected.keys()):
        if special[name] == expected[name]:
            continue
        told = f"{name} is {special[name]!r}, the parent's is {expected[name]!r}"
        if name in ("bos_token", "eos_token"):
            raise IntegrityError(f"{folder / _SAVED} is not the parent's: {told}", hint=_LOST)
        said.append(f"{_SAVED}: {told}, which is kept")
    return said


def check_template(folder: Path, parent: Path) -> list[str]:
    """What to say of the chat template. Raises IntegrityError (exit 12) when it is another one."""
    theirs, ours = chat_template(folder), chat_template(parent)
    if theirs is None:
        return [] if ours is None else ["the folder holds no chat template; the parent's is taken"]
    if ours is None:
        return ["the parent has no chat template; the folder's is not taken"]
    if theirs.strip() == ours.strip():
        return []
    rows = zip(theirs.strip().split("\n"), ours.strip().split("\n"), strict=False)
    line, a, b = next(
        ((n, a, b) for n, (a, b) in enumerate(rows, start=1) if a != b), (0, "its length", "another length")
    )
    raise IntegrityError(
        f"the chat template of {folder} is not the parent's: line {line} is {a[:60]!r}, not {b[:60]!r}",
        hint="a policy trained under one template is served under the parent's: train with the parent's",
    )


def check_config(folder: Path, parent: Path, max_model_len: int) -> list[str]:
    """What to say of config.json; the parent's is kept.

    Raises IntegrityError (exit 12) when it names another vocabulary or architecture, or a model made for
    fewer positions than the engine serves (`max_model_len`).
    """
    theirs, ours = _resolved(folder), _resolved(parent)
    shape = "the architecture must be the parent's"
    declared = modelio.read_config(folder).get("architectures") or []
    expected = modelio.read_config(parent).get("architectures") or []
    if declared and expected and declared != expected:
        theirs_is, ours_is = (one[0] if isinstance(one, list) else one for one in (declared, expected))
        raise IntegrityError(f"{folder} is a {theirs_is}, its parent a {ours_is}", hint=shape)
    differing = sorted(key for key in theirs.keys() | ours.keys() if theirs.get(key) != ours.get(key))
    if computing := [key for key in differing if _computes(key, ours)]:
        told = ", ".join(f"{key} {theirs.get(key)!r}, not {ours.get(key)!r}" for key in computing[:4])
        raise IntegrityError(f"config.json of {folder} is not the parent's: {told}", hint=shape)
    positions, known = (_positions(one) for one in (theirs, ours))
    if positions is not None and positions < min(max_model_len, known or max_model_len):
        raise IntegrityError(
            f"{folder} is made for {positions} tokens; the engine serves up to {max_model_len}",
            hint="train at the parent's length, or lower engine.max_model_len",
        )
    silent = ("transformers_version", "_name_or_path", "dtype", "torch_dtype", "use_cache", "architectures")
    return [
        f"config.json: {key} is {theirs.get(key)!r}; the parent's {ours.get(key)!r} is kept"
        for key in differing
        if key.rsplit(".", 1)[-1] not in silent
    ]


def chat_template(folder: Path) -> str | None:
    """The default chat template of a checkpoint folder, wherever it is kept; None without one."""
    path = folder / _TEMPLATE
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise IntegrityError(f"{path} is no text in UTF-8: {error}", hint="save it again") from error
    saved = folder / _SAVED
    found = _json(saved).get("chat_template") if saved.is_file() else None
    if isinstance(found, list):  # several by name
        found = next((one.get("template") for one in found if one.get("name") == "default"), None)
    return found if isinstance(found, str) else None


def _difference(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """The first part in which two tokenizer.json differ; truncation and padding are a caller's, not its."""
    a, b = theirs.get("model") or {}, ours.get("model") or {}
    one, two = _vocabulary(a), _vocabulary(b)
    if one != two:
        names = sorted(one.keys() | two.keys(), key=lambda name: (min(_ids(one, two, name)), name))
        name = next(name for name in names if one.get(name) != two.get(name))
        return f"token {name!r} is {_told(one.get(name))}, not {_told(two.get(name))}"
    if _merges(a) != _merges(b):
        return "its merges differ"
    if _rest(a, "vocab", "merges") != _rest(b, "vocab", "merges"):
        return "its model differs"
    for part in ("added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder"):
        if theirs.get(part) != ours.get(part):
            return f"its {part} differ" if part == "added_tokens" else f"its {part} differs"
    return ""


def _loaded(folder: Path) -> dict[str, Any]:
    """The tokenizer as transformers makes it of the files, which is what a trainer saves again.

    Its classes put steps and tokens of their own in place of what stands in tokenizer.json.
    """
    try:
        tokenizer = tokenizer_of(folder)
        found: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    except (ValueError, KeyError, OSError, AttributeError, TypeError) as error:
        raise IntegrityError(f"the tokenizer of {folder} does not load: {error}", hint=_LOST) from error
    return found


def _vocabulary(model: Mapping[str, Any]) -> dict[str, int]:
    found = model.get("vocab") or {}
    if isinstance(found, Mapping):
        return dict(found)
    if not isinstance(found, list) or not all(isinstance(entry, list) and entry for entry in found):
        raise IntegrityError(f"a vocabulary of tokenizer.json is {str(found)[:60]!r}", hint=_LOST)
    return {str(entry[0]): number for number, entry in enumerate(found)}  # unigram: [token, score]


def _ids(one: Mapping[str, int], two: Mapping[str, int], name: str) -> list[int]:
    return [known[name] for known in (one, two) if name in known]


def _told(number: int | None) -> str:
    return "not there" if number is None else f"id {number}"


def _merges(model: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Pairs; written as "a b" by old versions of the tokenizers library and as [a, b] by new ones."""
    return [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model.get("merges") or ()]


def _rest(values: Mapping[str, Any], *without: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in without}


def _special(folder: Path) -> dict[str, str]:
    path = folder / _SAVED
    saved = _json(path) if path.is_file() else {}
    found = {name: saved.get(name) for name in ("bos_token", "eos_token", "pad_token", "unk_token")}
    texts = {name: one.get("content") if isinstance(one, Mapping) else one for name, one in found.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _resolved(folder: Path) -> dict[str, Any]:
    """The configuration with its defaults filled in, nested keys as `a.b`. Raises IntegrityError."""
    config = modelio.read_config(folder)
    try:
        return _flat(as_read(config))
    except ValueError as error:
        raise IntegrityError(
            f"config.json of {folder} is of no model that can be loaded: {error}",
            hint="give a Hugging Face causal-LM folder",
        ) from error


def _computes(key: str, ours: Mapping[str, Any]) -> bool:
    """Whether logits depend on it. `ours` has all defaults: a key that is not in it is the trainer's own."""
    if key.startswith("quantization_config"):
        return True
    return key in ours and key.rsplit(".", 1)[-1] not in PASSIVE_KEYS


def _positions(config: Mapping[str, Any]) -> int | None:
    found = (value for key, value in config.items() if key.endswith("max_position_embeddings"))
    return next((value for value in found if isinstance(value, int)), None)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        nested = isinstance(value, Mapping) and key not in ("id2label", "label2id")
        found |= _flat(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return found


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise InputMissingError(f"there is no {path}", hint="rtrl verify --full") from error
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{path} is not JSON: {error}", hint="save the tokenizer again") from error
    if not isinstance(found, dict):
        raise IntegrityError(f"{path} is not a JSON object", hint="save the tokenizer again")
    return found
