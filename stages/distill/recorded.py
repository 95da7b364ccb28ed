"""The reward spec that an experience was made with, as it holds it.

Not for: a spec to distill by (`spec.py`).
"""

from __future__ import annotations

from stages import schemas
from stages.distill.spec import RewardSpec, parse
from stages.errors import IntegrityError, UsageError
from stages.stage import Artifact


def spec_of(experience: Artifact) -> RewardSpec:
    """Raises IntegrityError (12) when the file is gone, or is not the spec that the experience names."""
    try:
        spec = parse((experience.path / schemas.SPEC_FILE).read_text("utf-8"), schemas.SPEC_FILE)
    except (FileNotFoundError, UnicodeDecodeError, UsageError) as error:
        raise IntegrityError(
            f"the reward spec of {experience.ref} cannot be read: {error}",
            hint="the file is damaged: `rtrl verify --full` says which artifacts are; distill again",
        ) from error
    if spec.digest != experience.meta["spec"]:
        raise IntegrityError(
            f"{experience.ref} holds another reward spec than it names", hint="rtrl verify --full"
        )
    return spec
