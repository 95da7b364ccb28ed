"""Redaction of text that a person, a log, a report or a judge sees. `docs/privacy.md` has the rules.

`redact(text)` masks keys, passwords, e-mail addresses and the like; a `Redactor` does so for many texts
and counts what it masked; `findings(text)` says where they are; `visible(text)` takes out what does not show.
Not for: tokens, which are sealed and never altered; removing records.
"""

from cursorbench.redaction.invisible import visible
from cursorbench.redaction.masking import Redacted, Redactor, by_kind, findings, mask, redact
from cursorbench.redaction.spans import KINDS, Kind

__all__ = ["KINDS", "Kind", "Redacted", "Redactor", "by_kind", "findings", "mask", "redact", "visible"]
