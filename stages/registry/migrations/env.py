"""Alembic's entry point: the migrations run on the connection `migrate.py` hands over."""

from __future__ import annotations

from alembic import context
from sqlmodel import SQLModel

import stages.registry.models  # noqa: F401  (fills the metadata)

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=SQLModel.metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
