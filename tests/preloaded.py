"""What the process that `tests/processes.py` forks has loaded: imported by that process alone."""

from __future__ import annotations

import gc
import importlib
from contextlib import suppress

LIBRARIES = (
    "alembic",
    "cryptography.hazmat.primitives.ciphers.aead",
    "httpx",
    "pandas",
    "pyarrow.parquet",
    "pydantic_settings",
    "scipy.optimize",
    "scipy.stats",
    "sqlmodel",
    "torch",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.qwen2.modeling_qwen2",
    "typer.main",
)
STAGES = (
    "stages.collect.run",
    "stages.cycle.run",
    "stages.deploy.run",
    "stages.distill.run",
    "stages.eval.run",
    "stages.registry.verify",
    "stages.rollback.run",
    "stages.serve",
    "stages.target.endpoint",
    "stages.train.run",
)
gc.disable()
for name in (*LIBRARIES, *STAGES):
    with suppress(ImportError):
        importlib.import_module(name)
gc.freeze()  # else each fork's collector would go through all of it, and with that copy it
gc.enable()
