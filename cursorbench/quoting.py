"""Texts of others in a message to a model, which they can neither end nor speak for. Not for: redaction."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

# what a chat template may take for a token of its own, and so for the end of what is quoted: <|im_end|>,
# </s>, <seed:eos>, <turn|>, <SPECIAL_12>, [/INST], [|endofturn|], [e~[, ]~b]
_CONTROL = re.compile(
    r"<(?=[|｜]|/?[a-z]+(?:[_:][a-z0-9]+)*\|?>|[A-Z]+(?:_[A-Z0-9]+)+>)"
    r"|\[(?=\||[a-z]~\[|/?[A-Z]+(?:_[A-Z]+)*\])|\](?=~)"
)


def quoted(texts: Mapping[str, object]) -> str:
    """Texts of others as JSON, for a message. What looks like a token of a chat template is spelled out:
    servers find such tokens in texts, too, so that `<|im_end|>` in a quotation would be the message's end."""
    said = json.dumps(texts, ensure_ascii=False, indent=1)
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", said)
