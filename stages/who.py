"""Who runs this program, as the registry has it (`by`). Not for: the model's users."""

from __future__ import annotations

import getpass
import os


def who() -> str:
    """The name that the machine knows; `uid 12345` where it knows none, as in a container of another's id."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the first before Python 3.13
        return f"uid {os.getuid()}"
