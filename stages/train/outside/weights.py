"""The weights in a folder that somebody else trained: there, finite, and of the parent's model.

Not here: tokenizer, template and configuration (`likeness.py`).
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stages import modelio
from stages.errors import InputMissingError, IntegrityError
from stages.registry.canonical import digest as canonical_digest
from stages.registry.objects import hash_file

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from stages.stage import Progress

_OTHER_LAYOUTS = {
    "adapter_config.json": ("a LoRA adapter without its model", "merge it first (peft: merge_and_unload)"),
    "pytorch_model.bin": ("pickled weights", "save with safe_serialization=True"),
    "pytorch_model.bin.index.json": ("pickled weights", "save with safe_serialization=True"),
    "fsdp_config.json": ("sharded training state", "merge it into a Hugging Face folder (verl.model_merger)"),
    ".metadata": ("a distributed checkpoint", "convert it into a Hugging Face folder first"),
}
_READ = (modelio.INDEX_FILE, "config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


@dataclass(frozen=True)
class Weights:
    """What the files hold. `dtype` is that of the largest part, e.g. "bfloat16"."""

    tensors: int
    parameters: int
    dtype: str


def folder_digest(folder: Path) -> str:
    """`sha256:...` over the files that an import reads. Raises InputMissingError without weights."""
    require_layout(folder)
    names = {path.name for path in modelio.weight_files(folder)} | set(_READ)
    files = {name: hash_file(folder / name)[1] for name in sorted(names) if (folder / name).is_file()}
    return canonical_digest(files, what="import")


def require_layout(folder: Path) -> None:
    """Raises InputMissingError (exit 5) unless `folder` is a Hugging Face folder with whole weights."""
    if not folder.is_dir():
        raise InputMissingError(f"there is no folder {folder}", hint="give the trained model's folder")
    has_weights = (folder / modelio.WEIGHTS_FILE).is_file() or (folder / modelio.INDEX_FILE).is_file()
    for name, (what, hint) in _OTHER_LAYOUTS.items():
        if not has_weights and (folder / name).is_file():
            raise InputMissingError(f"{folder} holds {what} ({name})", hint=hint)
    modelio.read_config(folder)
    modelio.weight_files(folder)


def examine_weights(folder: Path, *, progress: Progress) -> Weights:
    """Read every tensor once, one in memory at a time.

    Raises:
        IntegrityError: (exit 12) a file is torn, a value is not finite, or a tensor is of a dtype of
            quantised weights.
    """
    import torch

    progress.start("reading weights")
    sizes: dict[str, int] = {}
    count = 0
    for name, tensor in modelio.tensors(folder):
        if not tensor.is_floating_point() or tensor.element_size() < 2:  # fp8 and fp4 are quantised, too
            raise IntegrityError(
                f"weight {name} of {folder} is {tensor.dtype}", hint="import weights that are not quantised"
            )
        if not bool(torch.isfinite(tensor).all()):
            bad = int((~torch.isfinite(tensor)).sum())
            raise IntegrityError(
                f"weight {name} of {folder} is not finite in {bad} of {tensor.numel()} places",
                hint="the training has diverged: import an earlier checkpoint of it",
            )
        dtype = str(tensor.dtype).removeprefix("torch.")
        sizes[dtype] = sizes.get(dtype, 0) + tensor.numel()
        count += 1
        progress.advance(note=name)
    if not count:
        raise IntegrityError(f"the weights of {folder} hold no tensor", hint="save the model again")
    return Weights(count, sum(sizes.values()), max(sizes, key=lambda name: sizes[name]))


def load_as_child(folder: Path, parent: Path, scratch: Path) -> PreTrainedModel:
    """The model in float32: the parent's configuration with the weights of `folder`.

    Raises IntegrityError (exit 12) when names or shapes of the weights are not the parent's, or a head that
    the parent's configuration ties to the embedding has other values.
    """
    staged = scratch / "imported"
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    try:
        shutil.copyfile(parent / "config.json", staged / "config.json")
        for path in (*modelio.weight_files(folder), folder / modelio.INDEX_FILE):
            if path.is_file():
                (staged / path.name).symlink_to(path.resolve())
        return modelio.load_model(staged)
    except IntegrityError as error:
        message = error.message.replace(str(staged), str(folder))
        raise IntegrityError(
            message, hint="the weights must be those of the parent's model, every tensor by its name"
        ) from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)
