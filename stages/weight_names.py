"""The names of a checkpoint's weights, as every child of it will have them.

transformers reads more than it writes: files without the prefix of the base model (GPT-2 on the Hub), with
buffers of older versions (`attn.bias`, `rotary_emb.inv_freq`), with a tied head beside its embedding. What it
writes has none of that, and an engine takes weights in place only where names and shapes are those that it
has. So a line's first checkpoint is given the names that its children have. No value changes.

Quantised weights are refused where the configuration does not name them: transformers takes the numbers that
stand for others as weights, which load, give logprobs, and are another model's.

Not here: values that contradict the configuration (`modelio.load_model` refuses them).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cursorbench.pretrained import causal_model_of, config_of
from stages import modelio
from stages.errors import IntegrityError

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

_WHOLE = frozenset({"F64", "F32", "F16", "BF16"})  # dtypes, as safetensors calls them
_BUFFERS = frozenset({r"rotary_emb\.inv_freq"})  # ignored in every model that computes it anew


def as_written(folder: Path) -> list[str]:
    """Rename and leave out in place what transformers would write otherwise; what was done, to be told.

    One file in memory at a time, and only those that change are written. Raises IntegrityError (12): a file
    is damaged, or holds quantised weights.
    """
    try:
        model = causal_model_of(config_of(folder), "meta")
    except Exception:  # noqa: BLE001 - no model that can be made: whoever loads it next says so
        return []
    held = {name: (path, dtype) for path in modelio.weight_files(folder) for name, dtype in _dtypes(path)}
    names = {name: path for name, (path, _) in held.items()}
    wanted = _wanted(names, model)
    if not getattr(model.config, "quantization_config", None):
        _refuse_quantised({name: dtype for name, (_, dtype) in held.items()}, wanted, model)
    spare = _doubles(folder, wanted, model)
    changed = {old: new for old, new in wanted.items() if new != old} | dict.fromkeys(spare)
    for path in sorted({names[old] for old in changed}):
        _rewrite(path, changed)
    index = folder / modelio.INDEX_FILE
    if changed and index.is_file():
        about = json.loads(index.read_bytes())
        files = about["weight_map"]
        about["weight_map"] = {
            new: file for old, file in files.items() if (new := changed.get(old, old)) is not None
        }
        index.write_text(json.dumps(about, indent=2, sort_keys=True) + "\n")
    return sorted(changed)


def _dtypes(path: Path) -> list[tuple[str, str]]:
    """Names and dtypes of a file's tensors, these as safetensors calls them."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return [(name, file.get_slice(name).get_dtype()) for name in file.keys()]  # noqa: SIM118
    except SafetensorError as error:
        raise IntegrityError(f"{path} is damaged: {error}", hint="fetch the model again") from error


def _refuse_quantised(
    dtypes: Mapping[str, str], wanted: Mapping[str, str | None], model: PreTrainedModel
) -> None:
    buffers = {name for name, _ in model.named_buffers()}
    for name, dtype in sorted(dtypes.items()):
        if dtype not in _WHOLE and wanted[name] is not None and wanted[name] not in buffers:
            raise IntegrityError(
                f"weight {name} is {dtype}, and config.json has no quantization_config that says of what",
                hint="give the model's weights that are not quantised",
            )


def _wanted(names: Mapping[str, Path], model: PreTrainedModel) -> dict[str, str | None]:
    """New names by old ones; None for what transformers passes over.

    A model with names in its files that are not its own in either way (Gemma 3 with images, experts apart)
    is written by a table of transformers', and the prefix is left to that.
    """
    own, prefix = set(model.state_dict()), f"{model.base_model_prefix}."
    passed_over = _BUFFERS | set(model._keys_to_ignore_on_load_unexpected or ())
    strange = [name for name in names if name not in own and prefix + name not in own]
    spare = {name for name in strange if any(re.search(each, name) for each in passed_over)}
    by_table = len(spare) < len(strange)
    found: dict[str, str | None] = {}
    for name in names:
        lacks_prefix = name not in own and prefix + name in own and not by_table
        found[name] = None if name in spare else prefix + name if lacks_prefix else name
    return found


def _doubles(folder: Path, wanted: Mapping[str, str | None], model: PreTrainedModel) -> list[str]:
    """Old names of tied weights that the file has twice with the same values."""
    old = {new: name for name, new in wanted.items() if new is not None}
    tied = {t: s for t, s in model.all_tied_weights_keys.items() if t in old and s in old}
    ends = {old[name] for pair in tied.items() for name in pair}
    if not ends:
        return []
    values: dict[str, Tensor] = {name: value for name, value in modelio.tensors(folder) if name in ends}
    return [old[t] for t, s in tied.items() if values[old[t]].equal(values[old[s]])]


def _rewrite(path: Path, changed: Mapping[str, str | None]) -> None:
    from safetensors.torch import load_file, save_file

    tensors = {changed.get(name, name): value for name, value in load_file(path).items()}
    kept = {name: value for name, value in tensors.items() if name is not None}
    with modelio.disk_errors():
        save_file(kept, path, metadata={"format": "pt"})
