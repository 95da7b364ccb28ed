"""Checkpoints as Hugging Face folders: load, save, check, describe.

A checkpoint folder holds config.json, model.safetensors (or its shards and index), tokenizer.json,
tokenizer_config.json, chat_template.jinja, generation_config.json, and served_fingerprint.json.

Not here: training, serving. Heavy imports happen inside the functions.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cursorbench.files import sha256_of
from cursorbench.pretrained import ALONE, config_of
from stages.delta import SUFFIX as DELTA
from stages.errors import DependencyDownError, InputMissingError, IntegrityError, UsageError, of_machine

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

ExportDtype = Literal["float32", "bfloat16"]

TOKENIZER_FILE = "tokenizer.json"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

# Everything of a checkpoint folder that training does not change.
_COMPANIONS = (
    TOKENIZER_FILE, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt", "tokenizer.model", "chat_template.jinja", "generation_config.json",
    "preprocessor_config.json", "processor_config.json",
)  # fmt: skip
TEMPLATES = "additional_chat_templates"  # beside chat_template.jinja: one for requests with tools, say


def read_config(folder: Path) -> dict[str, Any]:
    """`config.json` of a checkpoint folder. Raises InputMissingError or IntegrityError."""
    path = folder / "config.json"
    if not path.is_file():  # a pipe or a device, which an archive may bring, has no end
        raise InputMissingError(
            f"{folder} is no checkpoint: it has no config.json", hint="give a Hugging Face causal-LM folder"
        )
    try:
        config = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{path} is not JSON: {error}", hint="rtrl verify --full") from error
    if not isinstance(config, dict):
        raise IntegrityError(f"{path} is not a JSON object", hint="rtrl verify --full")
    return config


def tokenizer_digest(folder: Path) -> str:
    """sha256 (hex) of tokenizer.json. Raises InputMissingError when there is none."""
    path = folder / TOKENIZER_FILE
    if not path.is_file():
        raise InputMissingError(
            f"{folder} has no {TOKENIZER_FILE}", hint="save the tokenizer in its fast format"
        )
    return sha256_of(path)


def weight_files(folder: Path) -> list[Path]:
    """Its safetensors files by name, none of another folder. Raises InputMissingError or IntegrityError."""
    single = folder / WEIGHTS_FILE
    if single.is_file():
        return [single]
    index = folder / INDEX_FILE
    if not index.is_file():
        if any(folder.glob(f"*{DELTA}")):
            raise InputMissingError(
                f"{folder} holds its weights as a delta to another checkpoint's",
                hint="`rtrl show checkpoint@vN --rebuild` names a folder with the whole checkpoint",
            )
        raise InputMissingError(
            f"{folder} has no {WEIGHTS_FILE}", hint="only safetensors weights are read, never pickles"
        )
    try:
        shards = sorted({str(name) for name in json.loads(index.read_bytes())["weight_map"].values()})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise IntegrityError(f"{index} is no index of weights: {error}", hint="rtrl verify --full") from error
    if missing := [name for name in shards if Path(name).name != name or not (folder / name).is_file()]:
        raise IntegrityError(f"{folder} lacks {', '.join(missing)}", hint="rtrl verify --full")
    return [folder / name for name in shards]


def tensors(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """Name and value of every tensor on disk, in name order within a file, in its stored dtype.

    Raises InputMissingError without weights, IntegrityError when a file is torn.
    """
    from safetensors import SafetensorError, safe_open

    for path in weight_files(folder):
        try:
            with safe_open(path, framework="pt") as file:
                for name in sorted(file.keys()):
                    yield name, file.get_tensor(name)
        except SafetensorError as error:
            raise IntegrityError(f"{path} is damaged: {error}", hint="rtrl verify --full") from error


def checkpoint_meta(folder: Path, *, parent: str | None, generation: int) -> dict[str, Any]:
    """The `meta` of a checkpoint artifact.

    `parent` is the digest of the checkpoint it was trained from, `generation` its depth in the line's tree.
    `dtype` is that of the largest part of the weights, e.g. "float32".
    """
    sizes: dict[str, int] = {}
    for _, tensor in tensors(folder):
        name = str(tensor.dtype).removeprefix("torch.")
        sizes[name] = sizes.get(name, 0) + tensor.numel()
    if not sizes:
        raise IntegrityError(f"the weights of {folder} hold no tensor", hint="rtrl verify --full")
    named = read_config(folder).get("architectures")
    return {
        "parent": parent,
        "dtype": max(sizes, key=lambda name: sizes[name]),
        "parameters": sum(sizes.values()),
        "architecture": str(named[0]) if isinstance(named, list) and named else "unknown",
        "tokenizer": tokenizer_digest(folder),
        "generation": generation,
    }


def load_model(folder: Path, *, attention: str | None = None) -> PreTrainedModel:
    """The model of a checkpoint folder in float32, in evaluation mode.

    `attention` of transformers, None for torch's or the model's own. Raises InputMissingError (no files),
    IntegrityError (damaged), UsageError (no such attention), DependencyDownError (no memory, a failing disk).
    """
    read_config(folder), weight_files(folder)
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        model, info = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config_of(folder),
            dtype=torch.float32,
            attn_implementation=attention,
            output_loading_info=True,
            **ALONE,
        )
    except SafetensorError as error:
        raise IntegrityError(f"the weights of {folder} are damaged: {error}", hint="rtrl verify") from error
    except Exception as error:  # whatever transformers makes of a stranger's files
        known = of_machine(error)
        if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):
            hint = "its weights take 4 bytes a parameter here; free memory, or use a larger machine"
            known = DependencyDownError(f"there is not enough memory to load {folder}", hint=hint)
        if isinstance(known, DependencyDownError):
            raise known from error
        if error.args == (attention,):  # the model has a list of attentions of its own
            raise UsageError(f"{folder}: an architecture that is not packed", hint="`rtrl export`") from error
        raise IntegrityError(
            f"{folder} does not load as a causal language model: {' '.join(str(error).split())}",
            hint="config.json and the weights must belong together; give those that are not quantised",
        ) from error
    _refuse_partial_load(folder, info)
    _refuse_untied(folder, model)
    return model.eval()


def _refuse_partial_load(folder: Path, info: Mapping[str, Any]) -> None:
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if names := sorted(str(name) for name in info.get(what) or ()):
            raise IntegrityError(
                f"the weights of {folder} do not fit its config.json: {what.replace('_', ' ')} {names[:3]}",
                hint="config.json and the weights must belong together",
            )


def _refuse_untied(folder: Path, model: PreTrainedModel) -> None:
    """A tied head that files hold with values of its own: transformers takes it, vLLM does not."""
    tied = model.get_expanded_tied_weights_keys(all_submodels=True)
    for name in sorted(tied.keys() - model.all_tied_weights_keys.keys()):
        raise IntegrityError(
            f"{folder} has an output head of its own ({name}), but config.json ties it to {tied[name]}",
            hint="one matrix is served for both: leave the head out, or set tie_word_embeddings to false",
        )


def load_masters(model: PreTrainedModel, path: Path) -> None:
    """Replace the weights of `model` by the float32 masters in `path`. Raises IntegrityError."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        masters = load_file(path)
    except (SafetensorError, OSError) as error:
        raise IntegrityError(f"{path} is damaged: {error}", hint="rtrl verify --full") from error
    if other := sorted(set(masters) ^ {name for name, _ in model.named_parameters()}):
        raise IntegrityError(
            f"{path} holds other weights than the checkpoint: {other[:3]}",
            hint="the line state and the checkpoint must come from one run",
        )
    model.load_state_dict(masters, strict=False)


@contextmanager
def disk_errors() -> Iterator[None]:
    """safetensors reports a full disk as an error of its own; this makes it the OSError it is."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        if found := re.search(r"os error (\d+)", str(error)):
            raise OSError(int(found[1]), str(error)) from error
        raise


def _in_bfloat16(model: PreTrainedModel) -> dict[str, Tensor]:
    """The weights rounded. Tied ones stay one tensor, or each would be written; what transformers keeps in
    float32 and what is no float stays as it is."""
    import torch

    exact = tuple(model._keep_in_fp32_modules_strict or ())
    rounded: dict[tuple[int, torch.Size], Tensor] = {}
    state = {}
    for name, value in model.state_dict().items():
        if not value.is_floating_point() or any(part in name for part in exact):
            state[name] = value
            continue
        which = value.data_ptr(), value.shape
        if which not in rounded:
            rounded[which] = value.to(torch.bfloat16)
        state[name] = rounded[which]
    return state


def save_checkpoint(model: PreTrainedModel, folder: Path, *, companions: Path, dtype: ExportDtype) -> None:
    """Write `model` as a Hugging Face folder. Tokenizer, templates and (but for the dtype) config.json are
    those of `companions`: of the parent, whose words an engine and other versions of transformers know.

    The model itself keeps its float32 weights. Raises IntegrityError on a weight that is not finite.
    """
    import torch
    from transformers.utils import logging

    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise IntegrityError(
                f"weight {name} is not finite; nothing was written", hint="lower learning_rate"
            )
    folder.mkdir(parents=True, exist_ok=True)
    logging.disable_progress_bar()
    _save(model, folder, _in_bfloat16(model) if dtype == "bfloat16" else None)
    config = read_config(companions if (companions / "config.json").is_file() else folder) | {"dtype": dtype}
    config.pop("torch_dtype", None)  # as transformers 4 calls it
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    for path in companions.iterdir() if companions != folder else ():
        if goes_along(path.name) and path.is_file():
            shutil.copyfile(path, folder / path.name)
    copy_templates(companions, folder)


def goes_along(name: str) -> bool:
    """Whether a file of a checkpoint folder is its children's, too: also what its licence asks to hand on."""
    return name in _COMPANIONS or name.upper().startswith(("LICENSE", "LICENCE", "NOTICE"))


def copy_templates(source: Path, folder: Path) -> None:
    """Bring along the further chat templates of a model that has several; no folder, which may be a link."""
    for path in (source / TEMPLATES).glob("*.jinja") if source != folder else ():
        (folder / TEMPLATES).mkdir(parents=True, exist_ok=True)
        if path.is_file():
            shutil.copyfile(path, folder / TEMPLATES / path.name)


def _save(model: PreTrainedModel, folder: Path, state: dict[str, Tensor] | None) -> None:
    """transformers does not write every generation_config.json that it reads (a temperature without
    do_sample, say): a plain one is written then, which the companions' own replaces."""
    from transformers import GenerationConfig

    known = model.generation_config
    try:
        try:
            known.validate(strict=True)
        except ValueError:
            model.generation_config = GenerationConfig.from_model_config(model.config)
        with disk_errors():
            model.save_pretrained(folder, state_dict=state)
    finally:
        model.generation_config = known
