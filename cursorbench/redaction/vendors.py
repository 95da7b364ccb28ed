"""API keys and tokens in the forms that vendors give them; JSON web tokens; private keys.

The forms come from detect-secrets (Yelp, Apache-2.0), where its pattern takes linear time, plus forms
it does not know or finds by patterns that take quadratic time on hostile text (OpenAI, npm, JWT).
Only the patterns are used: nothing is verified over the network. Not for: keys without a form of their
own (`entropy.py`), keys that a name gives away (`credentials.py`).
"""

from __future__ import annotations

import importlib
import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import cache

from cursorbench.redaction.spans import Span

_LIBRARY = {
    "aws": "AWSKeyDetector",
    "azure_storage_key": "AzureStorageKeyDetector",
    "discord": "DiscordBotTokenDetector",
    "github_token": "GitHubTokenDetector",
    "gitlab_token": "GitLabTokenDetector",
    "mailchimp": "MailchimpDetector",
    "pypi_token": "PypiTokenDetector",
    "sendgrid": "SendGridDetector",
    "slack": "SlackDetector",
    "square_oauth": "SquareOAuthDetector",
    "stripe": "StripeDetector",
    "telegram_token": "TelegramBotTokenDetector",
    "twilio": "TwilioKeyDetector",
}

# a pattern of unlimited length begins where a word does: linear time
_WORD = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))"
_OWN = tuple(
    re.compile(pattern)
    for pattern in (
        _WORD + r"sk-[A-Za-z0-9_-]{20,}+",  # OpenAI, Anthropic, OpenRouter, LiteLLM
        _WORD + r"gsk_[A-Za-z0-9]{20,}+",  # Groq
        _WORD + r"xai-[A-Za-z0-9]{40,}+",
        _WORD + r"pplx-[A-Za-z0-9]{40,}+",
        _WORD + r"github_pat_[A-Za-z0-9_]{22,}+",
        _WORD + r"npm_[A-Za-z0-9]{36}",
        _WORD + r"hf_[A-Za-z0-9]{30,}+",
        _WORD + r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}+",
        _WORD + r"dop_v1_[a-f0-9]{64}",
        _WORD + r"(?:dapi|dkea)[a-f0-9]{32}",  # Databricks
        _WORD + r"(?:[rsp]k|whsec)_(?:live|test)_[0-9A-Za-z]{16,}+",
        _WORD + r"whsec_[A-Za-z0-9+/=]{24,}+",
        _WORD + r"xapp-[0-9]-[A-Za-z0-9-]{20,}+",
        _WORD + r"ya29\.[A-Za-z0-9_-]{20,}+",  # Google OAuth
        _WORD + r"GOCSPX-[A-Za-z0-9_-]{20,}+",
        _WORD + r"sntry[su]_[A-Za-z0-9_=+/-]{40,}+",
        _WORD + r"rtrl-[A-Za-z0-9_-]{20,}+",  # keys of our own gateway
        _WORD + r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}",  # Shopify
        _WORD + r"sb[ps]_[a-f0-9]{40}",  # Supabase
        _WORD + r"sb_secret_[A-Za-z0-9_-]{20,}+",
        _WORD + r"do[or]_v1_[a-f0-9]{64}",
        _WORD + r"ATATT3[A-Za-z0-9_=-]{40,}+",  # Atlassian
        _WORD + r"tvly-[A-Za-z0-9-]{20,}+",
        r"AIza[0-9A-Za-z_-]{35}",  # Google
        r"hvs\.[A-Za-z0-9_-]{24,}+",  # HashiCorp Vault
        r"(?i:https://discord(?:app)?\.com/api/webhooks/)[0-9]{5,30}/[A-Za-z0-9_-]{20,}+",
        r"AGE-SECRET-KEY-1[0-9A-Z]{58}",
    )
)
_JWT = re.compile(_WORD + r"eyJ[A-Za-z0-9_-]{6,}+\.[A-Za-z0-9_-]{6,}+(?:\.[A-Za-z0-9_-]*+){0,3}")
_BEGIN = re.compile(
    r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-[23]:"
)
_END = re.compile(
    r"-----END (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----|Private-MAC: ?[0-9a-f]{40,64}"
)
_BODY = re.compile(r"(?:[A-Za-z0-9+/=\s:,.-]|\\+[nrt])*+")
_KEY_CHARACTERS = re.compile(r"[A-Za-z0-9+/=]")
_FAR = 20_000  # an END further away belongs to something else
_LEAST_BODY = 32  # fewer characters than that are no key: the line is only spoken of


@cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    found: list[re.Pattern[str]] = []
    for module, name in _LIBRARY.items():
        detector = getattr(importlib.import_module(f"detect_secrets.plugins.{module}"), name)
        found += detector.denylist
    return (*found, *_OWN)


def api_keys(text: str) -> Iterator[Span]:
    """Keys and tokens of known vendors. A pattern's group, where it has one, is the secret in its context."""
    for pattern in _patterns():
        for match in pattern.finditer(text):
            yield Span(match.start(), match.end(), "api_key", match.start())


def web_tokens(text: str) -> Iterator[Span]:
    """JSON web tokens, signed or encrypted, whole or cut off in the last part."""
    if "eyJ" in text:
        for match in _JWT.finditer(text):
            yield Span(match.start(), match.end(), "jwt", match.start())


def private_keys(text: str) -> Iterator[Span]:
    """Blocks from BEGIN to END; without an END as far as there is base64. Escaped newlines count as such."""
    if "-----BEGIN" not in text and "PuTTY-User-Key-File" not in text:
        return
    ends = [match.end() for match in _END.finditer(text)]
    after = 0
    for match in _BEGIN.finditer(text):
        if match.start() < after:
            continue
        at = bisect_left(ends, match.end())
        close = ends[at] if at < len(ends) and ends[at] - match.end() <= _FAR else None
        if close is None:
            body = _BODY.match(text, match.end())
            close = body.end() if body else match.end()
        after = close
        if len(_KEY_CHARACTERS.findall(text[match.end() : close])) >= _LEAST_BODY:
            yield Span(match.start(), close, "private_key", match.start())
