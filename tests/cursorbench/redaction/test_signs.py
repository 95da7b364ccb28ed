"""Passwords of any signs, as programs make them, and what only looks like one. None here is real."""

from __future__ import annotations

import json
import random
import string
from urllib.parse import quote

import pytest

from cursorbench.redaction import redact
from cursorbench.redaction.words import is_reference
from tests.cursorbench.redaction.linear import is_linear

FOUND = "[redacted:credential]"
HEX = "a1b2c3d4" * 4
PLACES = {
    "of JSON": lambda password: json.dumps({"user": "bob", "password": password}),
    "of a shell": lambda password: f"export DB_PASSWORD='{password}'",
    "of YAML": lambda password: f"db:\n  password: {password}\n  port: 1\n",
    "of properties": lambda password: f"spring.datasource.password={password}\nx=1\n",
    "of a flag": lambda password: f"tool --password '{password}' --host x",
    "of curl": lambda password: f"curl -u 'bob:{password}' https://x.io",
    "of mysql": lambda password: f"mysql -u root -p'{password}' shop",
    "of an address": lambda password: f"postgres://bob:{quote(password, safe='')}@db:5432/shop",
    "of a form": lambda password: f"user=bob&password={quote(password, safe='')}&x=1",
    "of a sentence": lambda password: f"log in with password: {password}",
    "of ADO": lambda password: f"Server=db;Database=x;User Id=sa;Password={password};Encrypt=True",
}


@pytest.mark.parametrize("place", PLACES)
def test_passwords_that_a_program_made(place: str) -> None:
    """Where a sign began one it was taken for a reference: 6 to 23 of 100 were left, in whole or in part."""
    chosen = random.Random(place)
    signs = string.ascii_letters + string.digits + "!@#$%^&*"
    left = 0
    for _ in range(300):
        password = "".join(chosen.choices(signs, k=16))
        shown = redact(PLACES[place](password)).text
        left += FOUND not in shown or any(password[at : at + 5] in shown for at in range(12))
    assert left <= 21


@pytest.mark.parametrize(
    "value",
    ["#Summer2026!", "%7XWu70P5nSPO", "&9dfkJ3x", "*W4q^AXj#bd", "$l944gM5!LVZ", "$VYh4o6&JC", "[q4#x!9",
     "{x;y!93Kd", "<mNW&@g]/|", "Enterprise2026", "putin-2026", "insertCoin99", "%40xyz9"],
)  # fmt: skip
def test_what_is_no_reference(value: str) -> None:
    assert not is_reference(value)


@pytest.mark.parametrize(
    "value",
    ["$TOKEN", "${TOKEN:-x}", "$(cat x)", "$env:TOKEN", "$1", "$user:$password", "$this->password", "$$TOKEN",
     "$_POST['x']", "$oauth2Token", "{{ token }}", "{token!r}", "{0}", '{"a": 1}', "<your-key>", "<%= x %>",
     "%s", "%(name)s", "%NAME%", "%{name}", "%5.2f", "***", "*token", "&token", "&quot;", "&'static str",
     "#{token}", "#ff00aa", "#password-field", "#inputPassword3", "[redacted]", "[0-9]+", '["a"]', "!Ref",
     "changeme", "change-it", "replace-with-a-key", "enter your key", "%24%7BTOKEN%7D", "%3Ctoken%3E"],
)  # fmt: skip
def test_what_is_a_reference(value: str) -> None:
    assert is_reference(value)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"- name: API_TOKEN\n  value: {HEX}\n", f"- name: API_TOKEN\n  value: {FOUND}\n"),
        (f'{{"name": "MY_API_KEY", "value": "{HEX}"}}', f'{{"name": "MY_API_KEY", "value": "{FOUND}"}}'),
        (f'<add key="ApiKey" value="{HEX}"/>', f'<add key="ApiKey" value="{FOUND}"/>'),
        ('"db_password": {"sensitive": true, "value": "sesame"}',
         f'"db_password": {{"sensitive": true, "value": "{FOUND}"}}'),
        ("Uid=sa;PWD={s;s!me7};", f"Uid=sa;PWD={FOUND}}};"),
        ("CREATE LOGIN a WITH PASSWORD = N'sesame';", f"CREATE LOGIN a WITH PASSWORD = N'{FOUND}';"),
        ("password: 'it''s-sesame'", f"password: '{FOUND}'"),
        ("sqlcmd -S db -U sa -P 's3s&me' -Q x", f"sqlcmd -S db -U sa -P '{FOUND}' -Q x"),
        ("htpasswd -bc .htpasswd bob s3same", f"htpasswd -bc .htpasswd bob {FOUND}"),
        ("htpasswd -nb bob s3same", f"htpasswd -nb bob {FOUND}"),
        ("nmcli dev wifi connect Home password s3same", f"nmcli dev wifi connect Home password {FOUND}"),
        ("echo 'sesame' | npx wrangler secret put KEY", f"echo '{FOUND}' | npx wrangler secret put KEY"),
        ("echo sesame | gh auth login --with-token", f"echo {FOUND} | gh auth login --with-token"),
        ('  storePassword "s3same"\n', f'  storePassword "{FOUND}"\n'),
        ("FERNET_KEY=a1B2_c3D4-e5F6a1B2=", f"FERNET_KEY={FOUND}"),
        ("x\nDB_PASSWORD=S&sA7me;x\ny", f"x\nDB_PASSWORD={FOUND}\ny"),
        ("to=https%3A%2F%2Fx.io%3Fpassword%3Dsesame", f"to=https%3A%2F%2Fx.io%3Fpassword%3D{FOUND}"),
        ("the password for staging: S3s!ame7", f"the password for staging: {FOUND}"),
        ("Password for 'https://x.io': S3s!ame7", f"Password for 'https://x.io': {FOUND}"),
        ("server.ssl.key-store-password: changeit9", f"server.ssl.key-store-password: {FOUND}"),
    ],
)  # fmt: skip
def test_what_is_masked(text: str, masked: str) -> None:
    assert redact(text).text == masked


@pytest.mark.parametrize(
    "key",
    ["A3-" + "A1B2C3-D4E5F6-A1B2C-3D4E5-F6A1B-2C3D4", "as-" + "a1B2c3D4e5F6a1B2c3D4e5",
     "A" * 21 + "MLheAAAAAAA0%2B" + "a1B2c3D4" * 9],
)  # fmt: skip
def test_keys_of_vendors(key: str) -> None:
    assert redact(f"use {key} now").text == "use [redacted:api_key] now"


@pytest.mark.parametrize(
    "text",
    [
        "- name: TOKEN_EXPIRY\n  value: 3600s1\n- name: TOKEN\n  value: file",
        '{"name": "token", "value": "access_token"}, {"name": "API_KEY", "value": ""}',
        "password: !Ref DbPassword",
        "  password: (v1)=>V2(v1)\n  password: a1&&B2||c3\n",
        '"password": {"type": "string"}, "value": "sesame7"',
        "password={value}; password={self.x};",
        'unexpected token "a1b2c3"\n the password "a1b2c3" is wrong',
        "password for the API: https://Ab1.io/x, secret in namespace: MyNamespace1 and password of a: b",
        "echo done | gh issue create; htpasswd -c .htpasswd bob; nmcli dev wifi list",
        "as-" + "abcdefghijklmnopqrstuv" + " A3-paper A" * 3 + "A" * 90,
    ],
)
def test_what_is_left(text: str) -> None:
    assert redact(text).text == text


@pytest.mark.parametrize(
    "unit",
    ["--password '", "-u 'a:", "password='a''", "\nDB_PASSWORD=a", "\nDB_PASSWORD=aB3&aB3&", "pwd={",
     "A" * 21, 'name: token value: "', '"password": {"value": ', "\npassword 'a1", "echo a | gh ",
     "htpasswd -b a ", "sqlcmd -P '", "$a$", "password: $a", "password for a ", "password={a"],
)  # fmt: skip
def test_the_time_is_linear_on_one_hostile_line(unit: str) -> None:
    assert is_linear(unit, "value password mysql ")
