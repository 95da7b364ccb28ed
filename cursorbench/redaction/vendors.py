"""API keys and tokens in the forms that vendors give them; JSON web tokens.

The forms come from detect-secrets (Yelp, Apache-2.0), where its pattern takes linear time, plus forms
it does not know or finds by patterns that take quadratic time on hostile text (OpenAI, npm, JWT).
Only the patterns are used: nothing is verified over the network. Not for: keys without a form of their
own (`entropy.py`), keys that a name gives away (`credentials.py`).
"""

from __future__ import annotations

import importlib
import re
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


def _word(start: str, letters: str = "A-Za-z0-9_-") -> str:
    """`start` where a word of `letters` begins: what follows it without limit is read once, in linear time.

    It is looked for as it stands, and what is before it then: 50 times faster than the other way about.
    Escapes end in letters and digits and are no part of a word: of strings, of URLs, of a terminal's
    colours; nor is the sign before a line of a diff.
    """
    escapes = (r"\\[nrt]", r"%[0-9A-Fa-f]{2}", r"\\u[0-9A-Fa-f]{4}", r"[\[;0-9]m", r"\[K")
    before = (*escapes, "^-", r"\n-", r"\\n-")
    return rf"{start}(?:(?<![{letters}]{start})|" + "|".join(rf"(?<={one}{start})" for one in before) + ")"


_WORD = _word("")
_UUID = r"[a-f0-9]{8}(?:-[a-f0-9]{4}){3}-[a-f0-9]{12}"
_OWN = tuple(
    re.compile(pattern)
    for pattern in (
        _word("sk-") + r"[A-Za-z0-9_-]{20,}+",  # OpenAI, Anthropic, OpenRouter, LiteLLM
        _word("gsk_") + r"[A-Za-z0-9]{20,}+",  # Groq
        _word("xai-") + r"[A-Za-z0-9]{40,}+",
        _word("pplx-") + r"[A-Za-z0-9]{40,}+",
        _word("github_pat_") + r"[A-Za-z0-9_]{22,}+",
        _word("glpat-")
        + r"[A-Za-z0-9_-]{20,}+\.[0-9a-z]{2}\.[0-9a-z]{7,12}",  # GitLab, whole in its new form
        _word("gl")  # GitLab, of feeds, applications and the like
        + r"(?:imt|oas|ffct|wt|rt|rtr|dt|cbt|ptt|agent)-[A-Za-z0-9_-]{20,}+"
        r"(?:\.[0-9a-z]{2}\.[0-9a-z]{7,12})?",
        _word("dt0") + r"[a-z][0-9]{2}\.[A-Z0-9]{24}\.[A-Z0-9]{64}",  # Dynatrace
        _word("csk-") + r"[a-z0-9]{40,}+",  # Cerebras
        r"\.webhook\.office\.com/webhookb2/[0-9a-f@/-]{36,}+IncomingWebhook/[0-9a-f]{32}[0-9A-Za-z/-]*+",
        _word("npm_") + r"[A-Za-z0-9]{36}",
        _word("hf_") + r"[A-Za-z0-9]{30,}+",
        _word("lin_") + r"(?:api|oauth)_[A-Za-z0-9]{32,}+",
        _word("dop_v1_") + r"[a-f0-9]{64}",
        _word("d") + r"(?:api|kea)[a-f0-9]{32}",  # Databricks
        _WORD + r"(?:[rspe]k|whsec)_(?:org_)?(?:live|test)_[0-9A-Za-z]{16,}+",
        _word("sk_prod_") + r"[A-Za-z0-9_-]{40,}+",  # Liveblocks
        _word("mdb_sa_sk_") + r"[A-Za-z0-9_-]{40}",  # MongoDB Atlas
        _word("pdl_") + r"(?:live|sdbx)_apikey_[a-z0-9]{26}_[A-Za-z0-9]{22}_[A-Za-z0-9]{3}",  # Paddle
        _word("sq0") + r"(?:atp|csp)-[A-Za-z0-9_-]{22,}+",  # Square
        _word("da2-") + r"[a-z0-9]{26}(?![a-z0-9])",  # AWS AppSync
        r"(?<![\w/])[0-9]/[0-9]{16}(?:/[0-9]{16})?:[a-f0-9]{32}",  # Asana
        _word("whsec_") + r"[A-Za-z0-9+/=]{24,}+",
        _word("xapp-") + r"[0-9]-[A-Za-z0-9-]{20,}+",
        _word("xox") + r"[cde]-[A-Za-z0-9%+/=_-]{20,}+",  # Slack, of a browser's session
        r"hooks\.slack\.com/(?:workflows|triggers)/[A-Za-z0-9_-]{6,}+(?:/[A-Za-z0-9_-]{6,}+){1,4}",
        _word(r"ya29\.") + r"[A-Za-z0-9_-]{20,}+",  # Google OAuth
        _word("GOCSPX-") + r"[A-Za-z0-9_-]{20,}+",
        _word("sntry") + r"[su]_[A-Za-z0-9_=+/-]{40,}+",
        _word("rtrl-") + r"[A-Za-z0-9_-]{20,}+",  # keys of our own gateway
        _word("shp") + r"(?:at|ca|pa|ss|ua)_[a-fA-F0-9]{32}",  # Shopify
        _word("sb[ps]_") + r"[a-f0-9]{40}",  # Supabase
        _word("sb_secret_") + r"[A-Za-z0-9_-]{20,}+",
        _word("do[or]_v1_") + r"[a-f0-9]{64}",
        _word("AT") + r"(?:ATT|CTT)3[A-Za-z0-9_=-]{40,}+",  # Atlassian
        _word("tvly-") + r"[A-Za-z0-9-]{20,}+",
        _word("lsv2_") + r"[a-z]{2}_[A-Za-z0-9]{20,}+(?>(?:_[A-Za-z0-9]{4,})?)",  # LangSmith
        _word("rubygems_") + r"[a-f0-9]{48}",
        _word("pul-") + r"[a-f0-9]{40}",  # Pulumi
        _word("A3-")
        + r"[A-Z0-9]{6}-(?:[A-Z0-9]{6}|[A-Z0-9]{11})(?:-[A-Z0-9]{5}){3,4}(?![A-Z0-9-])",  # of an account
        _word("ops_ey") + r"[A-Za-z0-9+/=_-]{50,}+",  # 1Password
        _word("pat") + r"[A-Za-z0-9]{14}\.[a-f0-9]{64}(?![A-Za-z0-9])",  # Airtable
        r"(?<!/)" + _word("key-") + r"[a-f0-9]{32}(?![\w-]|\.\w)",  # Mailgun
        _word("re_") + r"(?=\w{0,32}\d)(?=\w{0,32}[A-Z])[A-Za-z0-9]{8}_[A-Za-z0-9]{24}(?![\w-])",  # Resend
        _word("pat-") + rf"[a-z]{{2}}[0-9]-{_UUID}",  # HubSpot
        _word("(?:sdk|api)-") + _UUID,  # LaunchDarkly
        _word("access-") + rf"(?:sandbox|development|production)-{_UUID}",  # Plaid
        _word("ctx7sk-") + _UUID,  # Context7
        _word("HRKU-") + rf"(?:{_UUID}|AA[A-Za-z0-9_-]{{58}})",  # Heroku
        _word("PMAK-") + r"[a-f0-9]{24}-[a-f0-9]{34}",  # Postman
        _word("tskey-") + r"[a-z]{2,12}-[A-Za-z0-9]{8,}+(?>(?:-[A-Za-z0-9]{8,}+)?)",  # Tailscale
        _word("fc-") + r"[a-f0-9]{32}(?![A-Za-z0-9])",  # Firecrawl
        _word("e2b_") + r"[a-f0-9]{40}",
        _word("sk_") + r"[a-f0-9]{48}(?![A-Za-z0-9])",  # ElevenLabs
        _word("sq[apu]_") + r"[a-f0-9]{40}",  # SonarQube
        _word("sgp_") + r"(?:[a-f0-9]{16}_|local_)?[a-f0-9]{40}",  # Sourcegraph
        _word("shippo_") + r"(?:live|test)_[a-f0-9]{40}",
        _word(r"mlsn\.") + r"[a-f0-9]{64}",  # MailerSend
        _word("bkua_") + r"[a-f0-9]{40}",  # Buildkite
        _word("CLOJARS_") + r"[a-f0-9]{60}",
        _word("packagist_") + r"[a-z]{3}_[a-f0-9]{68}",
        _word("KGAT_") + r"[a-f0-9]{32}",  # Kaggle
        _word("FLWSECK") + r"(?:_TEST)?-[A-Za-z0-9]{12,}+",  # Flutterwave
        _word("crsr_") + r"[a-f0-9]{64}",  # Cursor
        _word("key_") + r"[a-f0-9]{64}",  # Cursor, as it was
        _word("signkey-") + r"(?:prod|test|branch)-[a-f0-9]{32,}+",  # Inngest
        _word("tr_") + r"(?:dev|prod|stg)_[A-Za-z0-9]{20,}+",  # Trigger.dev
        _word("api_org_") + r"[A-Za-z]{34}",  # Hugging Face, of an organisation
        _word("ls__") + r"[a-f0-9]{32}",  # LangSmith, as it was
        _word("DO00") + r"[A-Z0-9]{16}(?![A-Za-z0-9])",  # DigitalOcean Spaces
        _word("IQoJb3JpZ2lu") + r"[A-Za-z0-9+/]{100,}+={0,2}",  # AWS, of a session
        _word("ABSK") + r"[A-Za-z0-9+/]{100,}+={0,2}",  # AWS Bedrock
        _word(r"amzn\.mws\.") + _UUID,
        _word("dckr_") + r"[po]at_[A-Za-z0-9_-]{20,}+",  # Docker
        _word("a[ks]-") + r"(?=[A-Za-z]{0,21}[0-9])(?=[a-z0-9]{0,21}[A-Z])[A-Za-z0-9]{22}(?![\w-])",  # Modal
        _word("A" * 21) + r"(?=[A-Za-z0-9]{0,60}%[23])[A-Za-z0-9%]{60,}+",  # Twitter, of an application
        _word("nvapi-") + r"[A-Za-z0-9_-]{40,}+",  # NVIDIA
        _word("r8_") + r"[A-Za-z0-9]{37}(?![A-Za-z0-9])",  # Replicate
        _word("tgp_v1_") + r"[A-Za-z0-9_-]{40,}+",  # Together
        _word("fw_") + r"(?=[A-Za-z]{0,23}[0-9])[A-Za-z0-9]{22,24}(?![\w-])",  # Fireworks
        _word("jina_") + r"[A-Za-z0-9_-]{50,}+",
        _word("pcsk_") + r"[A-Za-z0-9]{4,8}_[A-Za-z0-9]{50,}+",  # Pinecone
        _word("wandb_v1_") + r"[A-Za-z0-9_]{40,}+",
        _word("rpa_") + r"[A-Z0-9]{32,}[A-Za-z0-9]*+",  # RunPod
        _word("rnd_") + r"(?=[A-Za-z]{0,31}[0-9])[A-Za-z0-9]{28,32}(?![\w-])",  # Render
        _word("nfp_") + r"[A-Za-z0-9]{36,}+",  # Netlify
        _word("vc") + r"[pikra]_[A-Za-z0-9]{40,}+",  # Vercel
        _word("vercel_blob_rw_") + r"[A-Za-z0-9]{16}_[A-Za-z0-9]{20,}+",
        _word("ntn_") + r"[A-Za-z0-9]{40,}+",  # Notion
        _word("figd_") + r"[A-Za-z0-9_-]{36,}+",  # Figma
        _word("CFPAT-") + r"[A-Za-z0-9_-]{40,}+",  # Contentful
        _word("NRAK-") + r"[A-Z0-9]{27}",  # New Relic
        _word("glsa_") + r"[A-Za-z0-9]{32}_[a-f0-9]{8}",  # Grafana
        _word("glc_") + r"eyJ[A-Za-z0-9+/=_-]{40,}+",
        _word("ph") + r"[xs]_[A-Za-z0-9]{40,}+",  # PostHog
        _word("xkeysib-") + r"[a-f0-9]{64}-[A-Za-z0-9]{16}",  # Brevo
        _word("xsmtpsib-") + r"[a-f0-9]{64}-[A-Za-z0-9]{16}",
        r"(?<![A-Za-z0-9])[a-f0-9]{32}-[a-f0-9]{8}-[a-f0-9]{8}(?![A-Za-z0-9-])",  # Mailgun, as it is now
        _word("dp\\.") + r"(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}",  # Doppler
        _word("st\\.") + r"[a-f0-9]{24}\.[a-f0-9]{32}\.[a-f0-9]{32}",  # Infisical
        _word("hv") + r"[br]\.[A-Za-z0-9_-]{24,}+",  # HashiCorp Vault, of batches and recovery
        r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{60,}+",  # Terraform Cloud
        _word("CCIPAT_") + r"[A-Za-z0-9]{22}_[a-f0-9]{40}",  # CircleCI
        _word("pscale_") + r"(?:pw|tkn|oauth)_[A-Za-z0-9_.=-]{32,}+",  # PlanetScale
        _word("napi_") + r"[a-z0-9]{50,}+",  # Neon
        _word("npg_") + r"(?=[A-Za-z]{0,11}[0-9])[A-Za-z0-9]{12,}+",
        _word("rzp_") + r"(?:live|test)_[A-Za-z0-9]{14}",  # Razorpay
        _word("duffel_") + r"(?:live|test)_[A-Za-z0-9_=-]{43}",
        _word("tfp_") + r"[A-Za-z0-9_.=-]{59}",  # Typeform
        _word("fio-u-") + r"[A-Za-z0-9_=-]{64}",  # Frame.io
        _word("rdme_") + r"[a-z0-9]{70}",  # ReadMe
        _word("pk_") + r"[0-9]{6,9}_[A-Z0-9]{32}",  # ClickUp
        _word("WPL_AP1\\.") + r"[A-Za-z0-9.]{16,}+=*+",  # LinkedIn
        _word("apify_api_") + r"[A-Za-z0-9]{36}",
        _word("secret_lambda_") + r"[a-f0-9]{32}\.[A-Za-z0-9]{32}",
        _word("oy2") + r"[a-z0-9]{43}(?![a-z0-9])",  # NuGet
        _word("AKCp") + r"[A-Za-z0-9]{60,}+",  # Artifactory
        _word("sha256~") + r"[A-Za-z0-9_-]{43}",  # OpenShift
        _word("K10") + r"[a-f0-9]{64}::[A-Za-z0-9._-]{1,64}:[a-f0-9]{32}",  # k3s
        _word("xprv") + r"[1-9A-HJ-NP-Za-km-z]{107}",
        r"hooks\.zapier\.com/hooks/catch/[0-9]{4,}+/[a-z0-9]{5,}+",
        r"hook\.[a-z0-9]{2,4}\.make\.com/[a-z0-9]{24,}+",
        r"maker\.ifttt\.com/trigger/[\w-]{1,64}/(?:json/)?with/key/[A-Za-z0-9_-]{20,}+",
        rf"open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/v2/hook/{_UUID}",
        rf"qyapi\.weixin\.qq\.com/cgi-bin/webhook/send\?key={_UUID}",
        _word("fm2_") + r"[A-Za-z0-9+/=,]{100,}+",  # Fly.io
        _word(r"v1\.0-") + r"[a-f0-9]{24}-[a-f0-9]{100,}+",  # Cloudflare, of an origin
        r"access_token(?:\\{0,2}\$|%24)(?:production|sandbox)(?:\\{0,2}\$|%24)[A-Za-z0-9]{16}"
        r"(?:\\{0,2}\$|%24)[a-f0-9]{32}",  # PayPal
        _word("", "A-Za-z0-9_~.-") + r"[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}"
        r"(?![A-Za-z0-9_~-])",  # Azure, of an application
        r"AIza[0-9A-Za-z_-]{35}",  # Google
        r"hvs\.[A-Za-z0-9_-]{24,}+",  # HashiCorp Vault
        r"(?i:https://(?:\w{2,8}\.)?discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/)[0-9]{5,30}/[A-Za-z0-9_-]{20,}+",
        r"AGE-SECRET-KEY-1[0-9A-Z]{58}",
    )
)
_JWT = re.compile(_word("eyJ") + r"[A-Za-z0-9_-]{6,}+\.[A-Za-z0-9_-]{6,}+(?:\.[A-Za-z0-9_-]*+){0,3}")


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
