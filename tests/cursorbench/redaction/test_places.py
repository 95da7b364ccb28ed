"""Secrets behind commands, in shapes of some languages, in escaped headers and markup. None here is real."""

from __future__ import annotations

import base64

import pytest

from cursorbench.redaction import redact
from tests.cursorbench.redaction.linear import is_linear

HEX = "a1b2c3d4" * 4
LOGIN = base64.b64encode(b"bob:s3cret").decode()
LETTERS = "dTpodWFhYWJiYmNj"  # base64 of a login, without a digit
FOUND = "[redacted:credential]"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (rf"{{\"Authorization\": \"Basic {LOGIN}\"}}", rf"{{\"Authorization\": \"Basic {FOUND}\"}}"),
        (f"Authorization: Basic {LETTERS}", f"Authorization: Basic {FOUND}"),
        (f"https://{HEX}:x-oauth-basic@x.io/r.git", f"https://{FOUND}:{FOUND}/r.git"),
        (f"https://{HEX}:@x.io", f"https://{FOUND}:@x.io"),
        ("bob:s3same@tcp(127.0.0.1:3306)/shop", f"bob:{FOUND}@tcp(127.0.0.1:3306)/shop"),
        ("jdbc:oracle:thin:bob/sesame@//h:1521/x", f"jdbc:oracle:thin:bob/{FOUND}@//h:1521/x"),
        ("sqlplus -s bob/sesame@orcl", f"sqlplus -s bob/{FOUND}@orcl"),
        ("echo sesame | sudo -S make install", f"echo {FOUND} | sudo -S make install"),
        ("echo 'sesame' | docker login -u me --password-stdin",
         f"echo '{FOUND}' | docker login -u me --password-stdin"),
        ("echo 'root:sesame' | sudo chpasswd", f"echo '{FOUND}' | sudo chpasswd"),
        ("get(url, auth=('bob', 'sesame'))", f"get(url, auth=('bob', '{FOUND}'))"),
        ("HTTPBasicAuth('bob', 'sesame')", f"HTTPBasicAuth('bob', '{FOUND}')"),
        ('auth: { user: "bob", pass: "s3same" }', f'auth: {{ user: "bob", pass: "{FOUND}" }}'),
        (r'{\"pass\": \"s3same\"}', rf'{{\"pass\": \"{FOUND}\"}}'),
        ("PASS=s3same-s3same", f"PASS={FOUND}"),
        ("pw: s3same", f"pw: {FOUND}"),
        ('mail.setPassword("s3same")', f'mail.setPassword("{FOUND}")'),
        ("os.getenv('DB_PASSWORD', 'sesame')", f"os.getenv('DB_PASSWORD', '{FOUND}')"),
        (f'os.environ.get("API_KEY", "{HEX}")', f'os.environ.get("API_KEY", "{FOUND}")'),
        ("process.env.DB_PASSWORD || 'sesame'", f"process.env.DB_PASSWORD || '{FOUND}'"),
        (f"env['API_TOKEN'] ?? '{HEX}'", f"env['API_TOKEN'] ?? '{FOUND}'"),
        ('setx DB_PASSWORD "sesame"', f'setx DB_PASSWORD "{FOUND}"'),
        (f"set -gx OPENAI_API_KEY {HEX}", f"set -gx OPENAI_API_KEY {FOUND}"),
        ("<key>Password</key>\n<string>sesame</string>", f"<key>Password</key>\n<string>{FOUND}</string>"),
        ("&quot;password&quot;: &quot;sesame&quot;", f"&quot;password&quot;: &quot;{FOUND}&quot;"),
        ("password=&#39;sesame&#39;", f"password=&#39;{FOUND}&#39;"),
        (f"api_key: |\n  {HEX}\nx: 1", f"api_key: |\n  {FOUND}\nx: 1"),
        ('NSString *password = @"sesame";', f'NSString *password = @"{FOUND}";'),
        ('let password = r#"sesame"#;', f'let password = r#"{FOUND}"#;'),
        (f"Ocp-Apim-Subscription-Key: {HEX}", f"Ocp-Apim-Subscription-Key: {FOUND}"),
        (f"ALGOLIA_ADMIN_KEY={HEX}", f"ALGOLIA_ADMIN_KEY={FOUND}"),
        ("KAGI_API_KEY=aB3dE6gH9jK.aB3dE6gH9jKaB3dE", f"KAGI_API_KEY={FOUND}"),
        (f'{{"kty": "oct", "k": "{HEX}"}}', f'{{"kty": "oct", "k": "{FOUND}"}}'),
    ],
)  # fmt: skip
def test_what_is_masked(text: str, masked: str) -> None:
    assert redact(text).text == masked


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("gitlab, of a feed", "glimt-" + "abcDEF123456ghiJKL78"),
        ("gitlab, of an application", "gloas-" + "abcDEF123456ghiJKL78"),
        ("dynatrace", "dt0c01." + "A1B2C3D4" * 3 + "." + "A1B2C3D4" * 8),
        ("cerebras", "csk-" + "a1b2c3d4" * 6),
        ("teams", "x.webhook.office.com/webhookb2/" + f"{HEX[:8]}-0-0@0-0-0{'0' * 20}/IncomingWebhook/{HEX}"),
    ],
)
def test_keys_of_vendors(name: str, key: str) -> None:
    found = redact(f"use {key} now")
    assert found.counts == {"api_key": 1}, name
    assert key[-10:] not in found.text


@pytest.mark.parametrize(
    "text",
    [
        "--- PASS: TestLongNameOfSomething2 (0.00s)",
        "PASS: test_foo_12_bar_baz; pass=12.3s fail=3",
        'pass: "yes", "pass": true, bypass="abc123x"',
        'os.getenv("TOKEN_LIMIT", "4096"), os.getenv("API_KEY_HEADER", "X-API-Key-1")',
        "process.env.TOKEN_NAME || 'access_token', process.env.API_KEY || ''",
        'auth=(user, password), auth=("user", "pass"), setPassword(value), setPassword("")',
        "set -x PATH /usr/bin, set -euo pipefail",
        "echo $PASSWORD | sudo -S ls; echo done | tee x",
        "password: |\n  The words of somebody",
        'storage: "k": "a1b2c3d4a1b2c3d4a1b2c3d4"',
        "Authorization: Basic realm, authorization: required",
        "&quot;password&quot; and &lt;token&gt;",
    ],
)  # fmt: skip
def test_what_is_left(text: str) -> None:
    assert redact(text).text == text


@pytest.mark.parametrize(
    "unit",
    ["a:", "a:b@tcp(", "jdbc:oracle:thin:a/", "sqlplus -s ", "echo a | ", "echo a|sudo ", "auth=('a',",
     'pass="a', "pw=", "env.password ", "getenv('password',", "set -x password ", "<key>password</key> ",
     "password&quot;:", "password: |\\n ", "kty", '"d":"a', ".webhook.office.com/webhookb2/",
     "authorization\\\\\\"],
)  # fmt: skip
def test_the_time_is_linear_on_one_hostile_line(unit: str) -> None:
    assert is_linear(unit, "kty @tcp( oracle")
