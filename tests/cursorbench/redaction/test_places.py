"""Secrets behind commands, in shapes of some languages, in escaped headers and markup. None here is real."""

from __future__ import annotations

import base64

import pytest

from cursorbench.redaction import redact
from tests.cursorbench.redaction.linear import is_linear

HEX = "a1b2c3d4" * 4
LOGIN = base64.b64encode(b"bob:s3cret").decode()
UUID = "3f9a1c7b-e204-4d85-8a1b-2c3d4e5f6071"
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
        (  # JSON in JSON, as .NET writes it
            r"{\u0022password\u0022:\u0022sesame\u0022,\u0022user\u0022:\u0022x1y2z3w4\u0022}",
            rf"{{\u0022password\u0022:\u0022{FOUND}\u0022,\u0022user\u0022:\u0022x1y2z3w4\u0022}}",
        ),
        (f"api_key: |\n  {HEX}\nx: 1", f"api_key: |\n  {FOUND}\nx: 1"),
        ('NSString *password = @"sesame";', f'NSString *password = @"{FOUND}";'),
        ('let password = r#"sesame"#;', f'let password = r#"{FOUND}"#;'),
        (f"Ocp-Apim-Subscription-Key: {HEX}", f"Ocp-Apim-Subscription-Key: {FOUND}"),
        (f"ALGOLIA_ADMIN_KEY={HEX}", f"ALGOLIA_ADMIN_KEY={FOUND}"),
        ("KAGI_API_KEY=aB3dE6gH9jK.aB3dE6gH9jKaB3dE", f"KAGI_API_KEY={FOUND}"),
        ("**Password:** `sesame`, **Token**: " + HEX, f"**Password:** `{FOUND}`, **Token**: {FOUND}"),
        ("| `DB_PASSWORD` | s3same-7 |", f"| `DB_PASSWORD` | {FOUND} |"),
        ("podman login -u bob -p sesame r.io", f"podman login -u bob -p {FOUND} r.io"),
        ("mongosh -u bob -p sesame", f"mongosh -u bob -p {FOUND}"),
        ("unzip -P sesame a.zip && 7z x -psesame b.7z", f"unzip -P {FOUND} a.zip && 7z x -p{FOUND} b.7z"),
        ("openssl enc -aes-256-cbc -k sesame -in a", f"openssl enc -aes-256-cbc -k {FOUND} -in a"),
        ("smbclient //h/s -U bob%sesame", f"smbclient //h/s -U bob%{FOUND}"),
        ("gh secret set X --body sesame", f"gh secret set X --body {FOUND}"),
        ("http -a bob:sesame x.io", f"http -a bob:{FOUND} x.io"),
        ("default login bob password sesame", f"default login bob password {FOUND}"),
        ('props.put("db.password", "s3same");', f'props.put("db.password", "{FOUND}");'),
        ("page.fill('#password', 's3same')", f"page.fill('#password', '{FOUND}')"),
        ("cy.get('[name=password]').type('s3same')", f"cy.get('[name=password]').type('{FOUND}')"),
        ("page.getByLabel('Password').fill('s3same')", f"page.getByLabel('Password').fill('{FOUND}')"),
        ('getConnection(url, "bob", "s3same")', f'getConnection(url, "bob", "{FOUND}")'),
        ("new mysqli('h', 'bob', 's3same', 'x')", f"new mysqli('h', 'bob', '{FOUND}', 'x')"),
        ('new NetworkCredential("bob", "s3same")', f'new NetworkCredential("bob", "{FOUND}")'),
        ("smtp.login('bob', 's3same')", f"smtp.login('bob', '{FOUND}')"),
        ('db.auth("bob", "s3same")', f'db.auth("bob", "{FOUND}")'),
        ('expect "*?assword:"\nsend "sesame\\r"', f'expect "*?assword:"\nsend "{FOUND}\\r"'),
        ("c.expect('Password:')\nc.sendline('sesame')", f"c.expect('Password:')\nc.sendline('{FOUND}')"),
        (r'expect \"password:\"\nsend \"sesame\r\"', rf'expect \"password:\"\nsend \"{FOUND}\r\"'),
        (r"page.fill(\"#password\", \"s3same\")", rf"page.fill(\"#password\", \"{FOUND}\")"),
        (r"getByLabel(\"Password\").fill(\"s3same\")", rf"getByLabel(\"Password\").fill(\"{FOUND}\")"),
        (r"new PDO(\"mysql:h\", \"bob\", \"s3same\")", rf"new PDO(\"mysql:h\", \"bob\", \"{FOUND}\")"),
        ('SecretStr("sesame")', f'SecretStr("{FOUND}")'),
        ('<input type="password" value="sesame">', f'<input type="password" value="{FOUND}">'),
        ('form-data; name="password"\n\nsesame\n', f'form-data; name="password"\n\n{FOUND}\n'),
        ('variable "db_password" {\n default = "sesame"', f'variable "db_password" {{\n default = "{FOUND}"'),
        ("ENV API_SECRET sesame", f"ENV API_SECRET {FOUND}"),
        ("define( 'AUTH_KEY', 'a1b2c3d4&' );", f"define( 'AUTH_KEY', '{FOUND}' );"),
        ('psk="s3same-x"', f'psk="{FOUND}"'),
        ("db.io:5432:shop:bob:sesame", f"db.io:5432:shop:bob:{FOUND}"),
        ("mnemonic: " + "sesame " * 11 + "open", f"mnemonic: {FOUND}"),
        (f'Authorization "Basic {LOGIN}";', f'Authorization "Basic {FOUND}";'),
        ("x: 1\nDB_PASSWORD=Tr0ub4dor&3;(x)#y\nz", f"x: 1\nDB_PASSWORD={FOUND}\nz"),
        ("password=Tr0ub4dor&user=bob", f"password={FOUND}&user=bob"),
        ("EMAIL_HOST_PASSWORD: wqch ognu iszt gdfn", f"EMAIL_HOST_PASSWORD: {FOUND}"),
        (f'<machineKey validationKey="{HEX}"/>', f'<machineKey validationKey="{FOUND}"/>'),
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
        ("gitlab, of a runner", "glrt-" + "t1_abcDEF123456ghiJKL78" + ".01." + "a1b2c3d4e"),
        ("aws, of a session", "IQoJb3JpZ2lu" + "aB3dE6gH9/" * 30 + "=="),
        ("aws, bedrock", "ABSK" + "QmVkcm9j" * 20),
        ("amazon mws", "amzn.mws." + UUID),
        ("docker", "dckr_pat_" + "abcDEF-123456_ghiJKL7890123"),
        ("replicate", "r8_" + "a1B2c3D4e5" * 3 + "a1B2c3D"),
        ("jina", "jina_" + "a1b2c3d4" * 4 + "abcDEF-12345_ghiJKL789012345"),
        ("brevo", "xkeysib-" + "a1b2c3d4" * 8 + "-" + "a1B2c3D4" * 2),
        ("mailgun, as it is now", "a1b2c3d4" * 4 + "-" + "a1b2c3d4" + "-" + "a1b2c3d4"),
        ("infisical", "st." + "a1b2c3d4" * 3 + "." + "a1b2c3d4" * 4 + "." + "a1b2c3d4" * 4),
        ("razorpay", "rzp_live_" + "gnd21exsR9qhnw"),
        ("clickup", "pk_" + "88299498_" + "A1B2C3D4" * 4),
        ("asana", "2/" + "5233642641642681/2602480379926812:" + HEX),
        ("k3s", "K10" + HEX + HEX + "::server:" + HEX),
        ("zapier", "hooks.zapier.com/hooks/catch/" + "9380875/lmp1xd3"),
        ("feishu", "open.feishu.cn/open-apis/bot/v2/hook/" + UUID),
        (
            "discord, canary",
            "https://canary.discord.com/api/webhooks/" + "123456789012345678/" + "aB3dE6gH9_" * 6,
        ),
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
        r"\u0022password\u0022: \u0022Passwort\u0022, \u0022tokens\u0022:\u002212\u0022",
        "| password | string | | token | VARCHAR(255) | | secret | required |",
        "errors.add('password', 'is too short'), form.fill('name', 'x1y2z3w4'), s.login('bob', 'password')",
        "DriverManager.getConnection(url, user, password), SecretStr(value), new PDO($dsn, $user, $pass)",
        "openssl req -key a.pem -out b, zip -r a.zip b, git log -u a%b, x.py:5432: y, http -v x.io:80/a:b",
        'psk = load_psk(), variable "password" { type = string }, <input type="password" name="value">',
        "the mnemonic: a name, of three letters or so, for an instruction of the machine",
        'send "$password\\r"; send "exit\\r"; db.auth(user, password)',
        "2.0 ** 3, **bold:** text, f(token=**kwargs)",
    ],
)  # fmt: skip
def test_what_is_left(text: str) -> None:
    assert redact(text).text == text


@pytest.mark.parametrize(
    "unit",
    ["a:", "a:b@tcp(", "jdbc:oracle:thin:a/", "sqlplus -s ", "echo a | ", "echo a|sudo ", "auth=('a',",
     'pass="a', "pw=", "env.password ", "getenv('password',", "set -x password ", "<key>password</key> ",
     "password&quot;:", 'password\\u0022:', 'password:\\u0022a', "password: |\\n ", "kty", '"d":"a',
     ".webhook.office.com/webhookb2/",
     "authorization\\\\\\", "| password ", "|        ", ".fill('", "mnemonic: a ", "mnemonic: abc abc ",
     ".put('", "login('a',", "pdo new PDO('a',", "DBI->connect(a", "x:5432:a", 'variable "password" {',
     "zip -P ", "7z -p", "smbclient -U a", "net use ", "DB_PASSWORD=a1b2&", "password: abcd ",
     "ENV password ", "http a", "name=\"password\"\n", "default login a ", 'assword" ; ', "assword' send "],
)  # fmt: skip
def test_the_time_is_linear_on_one_hostile_line(unit: str) -> None:
    assert is_linear(unit, "kty @tcp( oracle")
