"""A model's configuration as the transformers installed here reads it.

Versions write the same model differently: 5.x moves `rope_theta` into `rope_parameters`, names the type of
each layer, and leaves out what 4.x wrote. What is read is the same, with all defaults filled in.
Not here: reading the file (`modelio.read_config`), which differences matter (whoever compares).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cursorbench.pretrained import config_of


def as_read(config: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of the model that `config`, the content of a config.json, describes.

    Raises ValueError where transformers makes no configuration of it.
    """
    from transformers import CONFIG_MAPPING

    kind = config.get("model_type")
    if kind not in CONFIG_MAPPING:
        raise ValueError(f"transformers knows no model_type {kind!r}")
    try:
        read = CONFIG_MAPPING[kind].from_dict(json.loads(json.dumps(config)))  # it changes what it is given
        found: dict[str, Any] = json.loads(read.to_json_string(use_diff=False))
    except Exception as error:  # each class of configuration checks in its own way
        raise ValueError(str(error)) from error
    return found


def context_of(folder: Path) -> int | None:
    """Tokens of the longest text that a model was made for; None where its configuration does not say."""
    limit = getattr(config_of(folder).get_text_config(), "max_position_embeddings", None)
    return limit if isinstance(limit, int) and limit > 0 else None
