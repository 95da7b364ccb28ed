"""What is masked, what is left, and that masking is stable, complete and linear. No secret here is real."""

from __future__ import annotations

import base64
import json
import re
import string
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cursorbench.redaction import KINDS, Redactor, findings, mask, redact, visible
from tests.cursorbench.redaction.linear import is_linear

BODY = "MIIEowIBAAKCAQEA7bq8fS0m2kQ9vXrT1yZ3" * 3
KEY = "9fK2mQ7xT4vB8nZ1pL5wR3cY6"
LINE = "MIIEowIBAAKCAQEA7bq8fS0m2kQ9vXrT1yZ3" + "q8fS0m2kQ9vXrT1yZ3aB+cD/eF9g"
LOGIN = base64.b64encode(b"bob:s3cret").decode()
UUID = "3f9a1c7b-e204-4d85-8a1b-2c3d4e5f6071"
VENDOR = {
    "anthropic": "sk-ant-api03-" + "Ab3-_xY9" * 6,
    "openai": "sk-proj-" + "aB3dE6gH9" * 5,
    "github": "ghp_" + "a1B2c3D4e5F6" * 3,
    "github fine": "github_pat_" + "11ABCDEFG0abcdefghijkl_0123456789",
    "gitlab": "glpat-" + "abcDEF123456ghiJKL78",
    "aws": "AKIA" + "IOSFODNN7ABCDEFG",
    "google": "AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6q",
    "slack": "xoxb-" + "123456789012-123456789012-abcdefABCDEF123456789012",
    "stripe": "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "hugging face": "hf_" + "abcdefghijklmnopqrstuvwxyzABCDEFGH",
    "npm": "npm_" + "abcdefghijklmnopqrstuvwxyz0123456789",
    "sendgrid": "SG." + "a" * 22 + "." + "b" * 43,
    "telegram": "123456789:" + "AAbbCCddEEffGGhhIIjjKKllMMnnOOppQQr",
    "gitlab, with its routing": "glpat-" + "abcDEF123456ghiJKL78-ab_cdef" + ".01." + "a1b2c3d4e",
    "slack, a browser's": "xoxc-" + "123456789012-123456789012-123456789012-" + "a1b2c3d4" * 8,
    "slack, a browser's cookie": "xoxd-" + "aB3%2FdE6%2BgH9" * 6 + "%3D",
    "slack, a workflow": "hooks.slack.com/workflows/" + "T0ABCDEF1/A0ABCDEF1/123456789012345678/abcdEFGH1234",
    "azure": "aB3" + "8Q~" + "deghjklmno.pqrstuv-wxyzABCDEF_GHI1",
    "airtable": "pat" + "aB3dE6gH9jK1lM" + "." + "a1b2c3d4" * 8,
    "mailgun": "key-" + "a1b2c3d4" * 4,
    "langsmith": "lsv2_pt_" + "a1b2c3d4" * 4 + "_a1b2c3d4e5",
    "langsmith, a service's": "lsv2_sk_" + "a1b2c3d4" * 4 + "_a1b2c3d4e5",
    "rubygems": "rubygems_" + "a1b2c3d4" * 6,
    "pulumi": "pul-" + "a1b2c3d4" * 5,
    "resend": "re_" + "abcdEFGH" + "_" + "ijklmnopQRSTUVWX1234yzab",
    "paypal": "access_token" + "$production$" + "a1b2c3d4e5f6g7h8" + "$" + "a1b2c3d4" * 4,
    "1password": "ops_" + "eyJzaWduSW5BZGRyZXNz" * 12,
    "hubspot": "pat-" + f"na1-{UUID}",
    "launchdarkly": "sdk-" + UUID,
    "plaid": "access-" + f"production-{UUID}",
    "heroku": "HRKU-" + UUID,
    "heroku, as it is now": "HRKU-" + "AA" + "aB3dE6_H-9" * 5 + "abcdefgh",
    "postman": "PMAK-" + "a1b2c3d4" * 3 + "-" + "a1b2c3d4" * 4 + "e5",
    "tailscale": "tskey-" + "auth-kAbcDEF123CNTRL-" + "aB3dE6gH9jK1" * 2,
    "firecrawl": "fc-" + "a1b2c3d4" * 4,
    "e2b": "e2b_" + "a1b2c3d4" * 5,
    "elevenlabs": "sk_" + "a1b2c3d4" * 6,
    "sonarqube": "squ_" + "a1b2c3d4" * 5,
    "sourcegraph": "sgp_" + "a1b2c3d4" * 2 + "_" + "a1b2c3d4" * 5,
    "shippo": "shippo_" + "live_" + "a1b2c3d4" * 5,
    "mailersend": "mlsn." + "a1b2c3d4" * 8,
    "buildkite": "bkua_" + "a1b2c3d4" * 5,
    "clojars": "CLOJARS_" + "a1b2c3d4e5" * 6,
    "packagist": "packagist_" + "uut_" + "a1b2" * 17,
    "kaggle": "KGAT_" + "a1b2c3d4" * 4,
    "flutterwave": "FLWSECK_" + "TEST-" + "a1b2c3d4" * 4,
    "cursor": "crsr_" + "a1b2c3d4" * 8,
    "inngest": "signkey-" + "prod-" + "a1b2c3d4" * 8,
    "trigger": "tr_" + "prod_" + "abcdefGHIJ" * 2,
    "shopify": "shpua_" + "a1b2c3d4" * 4,
    "hugging face, of an organisation": "api_" + "org_" + "abcdefghijklmnopqrstuvwxyzABCDEFGH",
    "digitalocean spaces": "DO00" + "A1B2C3D4E5F6G7H8",
}


# what may stand right before a key and is no part of it: of URLs, JSON, diffs, a terminal's colours
ESCAPES = (
    "%3D",
    "%22",
    "%20",
    r"\u0022",
    r"\u003d",
    "\n-",
    r"\n-",
    r"\u001b[32m",
    r"\033[1;31m",
    "[0m",
    "[K",
)


@pytest.mark.parametrize("name", VENDOR)
def test_keys_of_vendors(name: str) -> None:
    key = VENDOR[name]
    for text in (
        f"use {key} now",
        f'{{"k": "{key}"}}',
        f"line\\n{key}\\n",
        *(f"x{e}{key}\n" for e in ESCAPES),
    ):
        found = redact(text)
        assert VENDOR[name][-12:] not in found.text, text
        assert sum(found.counts.values()) == 1


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ('password = "hunter2"', 'password = "[redacted:credential]"'),
        (
            "machine api.example login me password hunter2",
            "machine api.example login me password [redacted:credential]",
        ),
        (
            "machine a\\nlogin me\\npassword hunter2\\n",
            "machine a\\nlogin me\\npassword [redacted:credential]\\n",
        ),
        ("Server=db;Uid=sa;Pwd=sesame;Encrypt=no", "Server=db;Uid=sa;Pwd=[redacted:credential];Encrypt=no"),
        ("pwd=sesame;Server=db;", "pwd=[redacted:credential];Server=db;"),
        ("<db.password>sesame</db.password>", "<db.password>[redacted:credential]</db.password>"),
        ("sshpass -p sesame ssh x", "sshpass -p [redacted:credential] ssh x"),
        ("mysql -u root -psesame shop", "mysql -u root -p[redacted:credential] shop"),
        ("docker login -u me -p sesame hub", "docker login -u me -p [redacted:credential] hub"),
        ("requirepass sesame", "requirepass [redacted:credential]"),
        ('password: str = "sesame"', 'password: str = "[redacted:credential]"'),
        ("const password?: string = 'sesame'", "const password?: string = '[redacted:credential]'"),
        ('let password: &str = "sesame";', 'let password: &str = "[redacted:credential]";'),
        (
            'let password = String::from("sesame");',
            'let password = String::from("[redacted:credential]");',
        ),
        ('var password string = "sesame"', 'var password string = "[redacted:credential]"'),
        ('char password[8] = "sesame";', 'char password[8] = "[redacted:credential]";'),
        ('#define WIFI_PASSWORD  "sesame"', '#define WIFI_PASSWORD  "[redacted:credential]"'),
        ('password = """sesame"""', 'password = """[redacted:credential]"""'),
        ('password = "it\'s-sesame"', 'password = "[redacted:credential]"'),
        ('"password": "se`sa\'me"', '"password": "[redacted:credential]"'),
        (r'{"password": "ab\"cd\\ef\u003c"}', '{"password": "[redacted:credential]"}'),
        (r"{\"password\": \"ab\\\"cd\", \"x\": 1}", r"{\"password\": \"[redacted:credential]\", \"x\": 1}"),
        (
            r"\\\\\\\"password\\\\\\\": \\\\\\\"sesame\\\\\\\"",
            r"\\\\\\\"password\\\\\\\": \\\\\\\"[redacted:credential]\\\\\\\"",
        ),
        ("user=bob&password%3Dsesame%21%26x", "user=bob&password%3D[redacted:credential]%26x"),
        ("%22password%22%3A%20%22sesame%22", "%22password%22%3A%20%22[redacted:credential]%22"),
        ("密码：sesame1", "密码：[redacted:credential]"),
        ('{"name":"DB_PASSWORD","value":"sesame"}', '{"name":"DB_PASSWORD","value":"[redacted:credential]"}'),
        ("- name: DB_PASSWORD\n  value: sesame\n", "- name: DB_PASSWORD\n  value: [redacted:credential]\n"),
        ('<add key="Password" value="sesame"/>', '<add key="Password" value="[redacted:credential]"/>'),
        ("CREATE USER a IDENTIFIED BY 'sesame';", "CREATE USER a IDENTIFIED BY '[redacted:credential]';"),
        ("ALTER ROLE a WITH PASSWORD 'sesame';", "ALTER ROLE a WITH PASSWORD '[redacted:credential]';"),
        ("define('DB_PASSWORD', 'sesame');", "define('DB_PASSWORD', '[redacted:credential]');"),
        ('ConvertTo-SecureString "sesame"', 'ConvertTo-SecureString "[redacted:credential]"'),
        ("openssl rsa -passin pass:sesame", "openssl rsa -passin pass:[redacted:credential]"),
        ("keytool -storepass sesame", "keytool -storepass [redacted:credential]"),
        ("SECRET_KEY_BASE=a1b2c3d4e5f6a7b8", "SECRET_KEY_BASE=[redacted:credential]"),
        ("API key: a1b2c3d4e5f6a7b8", "API key: [redacted:credential]"),
        ("Cookie: sid=abcdef; theme=dark", "Cookie: [redacted:credential]"),
        ("k?X-Amz-Signature=8f675d8a9368db8f233a&x=1", "k?X-Amz-Signature=[redacted:credential]&x=1"),
        ("DB_PASS: w1nter", "DB_PASS: [redacted:credential]"),
        ("Passwort: Geheim7", "Passwort: [redacted:credential]"),
        ("contraseña = 'sesamo'", "contraseña = '[redacted:credential]'"),
        ("%2Fhome%2Fada%2Fshop", "%2Fhome%2F[redacted:home_path]%2Fshop"),
        ("vscode-remote://wsl+ubuntu/home/ada/x", "vscode-remote://wsl+ubuntu/home/[redacted:home_path]/x"),
        ("C:\\\\\\\\Users\\\\\\\\ada\\\\\\\\x", "C:\\\\\\\\Users\\\\\\\\[redacted:home_path]\\\\\\\\x"),
        ("PASSWORD=hunter2", "PASSWORD=[redacted:credential]"),
        ("export DB_PASSWORD=correcthorse", "export DB_PASSWORD=[redacted:credential]"),
        ("'client_secret': 'a1b2c3d4e5'", "'client_secret': '[redacted:credential]'"),
        ('{"api_key": "abc123def456"}', '{"api_key": "[redacted:credential]"}'),
        (r"{\"apiKey\": \"abc123def456\"}", r"{\"apiKey\": \"[redacted:credential]\"}"),
        ("mysql --password=sesame", "mysql --password=[redacted:credential]"),
        ("rtrl --token abc123def", "rtrl --token [redacted:credential]"),
        ("curl -u bob:s3cret x.org", "curl -u bob:[redacted:credential] x.org"),
        ("Authorization: Basic Ym9iOnMzY3JldA==", "Authorization: Basic [redacted:credential]"),
        ("postgres://bob:pa55@db/x", "postgres://bob:[redacted:credential]@db/x"),
        ("postgres://bob:pa/s5#w@db/x", "postgres://bob:[redacted:credential]@db/x"),
        ("redis://:pa?s5@10.0.0.1:6379", "redis://:[redacted:credential]@10.0.0.1:6379"),
        ("https://bob:p@s5@x/r.git", "https://bob:[redacted:credential]@x/r.git"),
        ('{"auth": "' + LOGIN + '"}', '{"auth": "[redacted:credential]"}'),
        (r"{\"auth\":\"" + LOGIN + r"\"}", r"{\"auth\":\"[redacted:credential]\"}"),
        (f"//r.x/:_auth={LOGIN}", "//r.x/:_auth=[redacted:credential]"),
        (f'"SessionToken": "{"aB3dE6gH" * 100}=="', '"SessionToken": "[redacted:credential]"'),
        ("https://a1b2c3d4e5f6a7b8@x/r.git", "https://[redacted:credential]@x/r.git"),
        ("https://x/cb?token=abc123def456&y=1", "https://x/cb?token=[redacted:credential]&y=1"),
        ("mail alice.b+c@corp.io.", "mail [redacted:email]."),
        ("+alice@corp.io", "+[redacted:email]"),
        ("alice@corp.com(Alice), bob@corp.de(home)", "[redacted:email](Alice), [redacted:email](home)"),
        ('password: hunter22, user="root"', 'password: [redacted:credential], user="root"'),
        ('Password: hunter22 host="db.local"', 'Password: [redacted:credential] host="db.local"'),
        ('{"a": "password: aHVudGVy=", "b": 1}', '{"a": "password: [redacted:credential]", "b": 1}'),
        ('api_key="a1b2c3d4e5\\", x = "y z"', 'api_key="[redacted:credential]\\", x = "y z"'),
        ('password: dict[str, str] | None = "se"', 'password: dict[str, str] | None = "se"'),
        (
            'password: dict[str, str] | None = "sesame"',
            'password: dict[str, str] | None = "[redacted:credential]"',
        ),
        ('password: Optional[str]="sesame"', 'password: Optional[str]="[redacted:credential]"'),
        ("o'brien@corp.io", "[redacted:email]"),
        ('"Ada L" <"ada l"@corp.io>', '"Ada L" <[redacted:email]>'),
        (r"{\"to\": \"ada\u0040corp.io\"}", r"{\"to\": \"[redacted:email]\"}"),
        (
            "ada&#64;corp.io, ada＠corp.io, e=ada%2540corp.io",
            "[redacted:email], [redacted:email], e=[redacted:email]",
        ),
        (
            r'"jos\u00e9@ex\u00e4mple.de", \u003cada@corp.io\u003e',
            r'"[redacted:email]", \u003c[redacted:email]\u003e',
        ),
        ("to=ada%40ex%C3%A4mple.de&x", "to=[redacted:email]&x"),
        ("s-ada@corp.io-2025-01-01-10-00-00-abcdef0123", "[redacted:email]"),
        (r"to:\nalice@corp.io", r"to:\n[redacted:email]"),
        ("u=alice%40corp.io", "u=[redacted:email]"),
        ("cd /home/alice/src", "cd /home/[redacted:home_path]/src"),
        ("file:///Users/bob.s/x", "file:///Users/[redacted:home_path]/x"),
        (r'"C:\\Users\\Eve Smith\\x"', r'"C:\\Users\\[redacted:home_path]\\x"'),
        (r"at\n/Users/bob/x", r"at\n/Users/[redacted:home_path]/x"),
        ("/c/Users/eve/x", "/c/Users/[redacted:home_path]/x"),
        ("projects/-Users-bob-code", "projects/-Users-[redacted:home_path]-code"),
        (" -Users-bob-code", " -Users-[redacted:home_path]-code"),
        (r"ls\n-mnt-c-Users-bob-x", r"ls\n-mnt-c-Users-[redacted:home_path]-x"),
        ("~/.claude/projects/-home-bob/a.jsonl", "~/.claude/projects/-home-[redacted:home_path]/a.jsonl"),
        (r"projects\C--Users-bob-code", r"projects\C--Users-[redacted:home_path]-code"),
        ("`file:///c%3A/Users/bob/One%20x`", "`file:///c%3A/Users/[redacted:home_path]/One%20x`"),
        ("/cygdrive/c/Users/bob/x", "/cygdrive/c/Users/[redacted:home_path]/x"),
        (r"C:\Documents and Settings\bob\x", r"C:\Documents and Settings\[redacted:home_path]\x"),
        ("/c/Documents and Settings/bob/x", "/c/Documents and Settings/[redacted:home_path]/x"),
        (r'{"cwd":"\/Users\/bob\/x"}', r'{"cwd":"\/Users\/[redacted:home_path]\/x"}'),
        (r"file:\/\/\/mnt\/c\/Users\/bob", r"file:\/\/\/mnt\/c\/Users\/[redacted:home_path]"),
        ("/data/home/alice/x", "/data/home/[redacted:home_path]/x"),
        ("see /nfs/home/alice", "see /nfs/home/[redacted:home_path]"),
        (
            "/mnt/nas01/home/alice/x /home2/bob/y",
            "/mnt/nas01/home/[redacted:home_path]/x /home2/[redacted:home_path]/y",
        ),
        ("/scratch/users/alice/run", "/scratch/users/[redacted:home_path]/run"),
        (
            "/private/var /Volumes/Macintosh HD/Users/eve/x",
            "/private/var /Volumes/Macintosh HD/Users/[redacted:home_path]/x",
        ),
        ("docker run -v/home/alice/x:/y", "docker run -v/home/[redacted:home_path]/x:/y"),
        ("-I/home/alice/include", "-I/home/[redacted:home_path]/include"),
        (r'["run", "-v/Users/eve/x:/y"]', r'["run", "-v/Users/[redacted:home_path]/x:/y"]'),
        (r"\\wsl$\Ubuntu\home\bob\x", r"\\wsl$\Ubuntu\home\[redacted:home_path]\x"),
        (
            r'"\\\\wsl.localhost\\Ubuntu-22.04\\home\\bob\\x"',
            r'"\\\\wsl.localhost\\Ubuntu-22.04\\home\\[redacted:home_path]\\x"',
        ),
        (r"\\fs01\Users\bob\x", r"\\fs01\Users\[redacted:home_path]\x"),
        (r'"\\\\fs01.corp.io\\home$\\bob\\x"', r'"\\\\fs01.corp.io\\home$\\[redacted:home_path]\\x"'),
        (r"\\tsclient\C\Users\bob", r"\\tsclient\C\Users\[redacted:home_path]"),
        (
            "/home/staff/bob/x /home/b/bob/x",
            "/home/staff/[redacted:home_path]/x /home/b/[redacted:home_path]/x",
        ),
        (
            r'"/home/J\u00f6rg/x", \u003e/home/bob\u003c',
            r'"/home/[redacted:home_path]/x", \u003e/home/[redacted:home_path]\u003c',
        ),
        (r'"C:\\Users\\J\u00f6rg B\\x"', r'"C:\\Users\\[redacted:home_path]\\x"'),
        (
            "/home//bob/x, /run/media/bob/usb",
            "/home//[redacted:home_path]/x, /run/media/[redacted:home_path]/usb",
        ),
        ("/home/corp.local/bob/x", "/home/[redacted:home_path]/x"),
        ("/System/Volumes/Data/Users/bob/x", "/System/Volumes/Data/Users/[redacted:home_path]/x"),
        (
            "/proc/1/root/home/bob /host/home/bob/x",
            "/proc/1/root/home/[redacted:home_path] /host/home/[redacted:home_path]/x",
        ),
        ("curl -d @/home/bob/x", "curl -d @/home/[redacted:home_path]/x"),
        ("//wsl$/Debian/home/bob", "//wsl$/Debian/home/[redacted:home_path]"),
        ('cd "/Users/Eve Smith/x"', 'cd "/Users/[redacted:home_path]/x"'),
        (r"{\"cwd\": \"/home/Eve de Smith/x y\"}", r"{\"cwd\": \"/home/[redacted:home_path]/x y\"}"),
        ("open '/data/home/Eve Smith/x'", "open '/data/home/[redacted:home_path]/x'"),
        (r"cd /Users/Eve\ Smith/x", r"cd /Users/[redacted:home_path]/x"),
        ('"/home/alice and /home/bob"', '"/home/[redacted:home_path] and /home/[redacted:home_path]"'),
        ('in "/home/alice or x/y', 'in "/home/[redacted:home_path] or x/y'),
        (f"is {KEY} ok", "is [redacted:high_entropy] ok"),
        # to the closing quote, where it is on the same line and not far away
        ('mysql --password="two words9" shop', 'mysql --password="[redacted:credential]" shop'),
        ("mysql --password='two words9' shop", "mysql --password='[redacted:credential]' shop"),
        ('curl -u "admin:Pa ss word9" x/', 'curl -u "admin:[redacted:credential]" x/'),
        (
            'nmcli dev wifi connect x password "abc9x d" y',
            'nmcli dev wifi connect x password "[redacted:credential]" y',
        ),
        ('mysql --password="hunter22\nshop" x', 'mysql --password="[redacted:credential]\nshop" x'),
        (
            f'mysql --password="hunter22 {"x " * 200}"',
            f'mysql --password="[redacted:credential] {"x " * 200}"',
        ),
        ("mysql --password=hunter22 'a' shop", "mysql --password=[redacted:credential] 'a' shop"),
    ],
)
def test_what_is_masked(text: str, masked: str) -> None:
    """`projects/-Users-bob-code` was expected to stay once: Claude Code keeps its logs under such names."""
    assert redact(text).text == masked


@pytest.mark.parametrize(
    "text",
    [
        "password=password",
        "mysql -p shop",
        "def f(password: str = '', token: str = None, *, secret: Secret = Secret()) -> None:",
        'def login(password: str, user="admin_user", *, token: list[str], role = "admin-1"):',
        "password: string; token: string = getToken(), password: string = props.password",
        "password: z.string().min(8), password: { type: String, required: true }",
        '#define TOKEN_MAX 128 #define PASSWORD_FIELD "password"',
        "name: password, value: form.value.password",
        "env: [{name: DB_PASSWORD, valueFrom: {secretKeyRef: {name: db, key: password}}}]",
        "- name: DB_PASSWORD\n  value: $(OTHER)\n- name: X",
        "password%3D%24%7BPASSWORD%7D and token%3A%20yes",
        "x = '\"password\": \"' + password + '\"'",
        "the logo@2x.png, icons/home@3x.webp, q@k.transpose(-2, -1), h@self.attn.forward(x)",
        "0x3f9A1c7Be204D85f6A1b2C3d4E5f6071" + "12345678",
        f"pat-{UUID} asdk-{UUID} sdk-version task_a1b2c3d4e5f6 access-control-allow-origin sk_test_mode",
        "pwd=one;and=two",
        "<password>${DB_PASSWORD}</password>",
        "cookie: which one?",
        "two_passes = 12",
        "connect(password=self.password, token=token)",
        "def login(password: str, token: Token | None = None) -> None:",
        "token = get_token()",
        'if token == "abcdefgh1": return',
        "api_key=os.environ['X']",
        'api_key = "${API_KEY}"',
        '"token": "<your-token>"',
        'password: "Password:"',
        "max_tokens=1024, tokens: 4096",
        "git@github.com:a/b.git",
        "+git@github.com:a/b.git",
        "+@pytest.fixture\n-@pytest.fixture",
        r"\n+@pytest.fixture\n",
        "npm i react@18.2.0 x@1.2.3-rc.next @scope/pkg",
        "@pytest.mark.parametrize and @AGENTS.md",
        "https://x.com/home/index.html",
        "/Users/Shared/x",
        "src/data/home/index.html and https://x.com/data/home/index.html",
        "/app/src/home/page.tsx",
        "GET /api/users/alice/posts, GET /data/users/1",
        "app-v/home/page.tsx",
        r"D:\\src\\app\\home\\index.ts",
        r"re.compile('\\w+\\home\\x'), ..\app\home\x, D:\\\\a\\\\home\\\\x",
        "import a from '@/home/index'; import('@/home/index'); import \"@/Users/List\"",
        "01HZX3K5M7P9R1T3V5X7Z9B1D3 and SHA256:Xb1nT0pL5wR3cY6hV8uJ2kD4fS7aQ9eZ1xC5vB8nXb0",
        'sha256 = "1yr9f9q04a2k1iyqvrw8p628zdhvksqnsfm1ial6dij74yy5n4s9";',
        "_ZN4core3ptr$LT$T$GT$17h3f2a9d0c1e6b7a8fE",
        "commit 8b49153f2a9d0c1e6b7a8f9e0d1c2b3a4f5e6d7c",
        "550e8400-e29b-41d4-a716-446655440000",
        '"integrity": "sha512-oRxV1dVvqMXS0G5Sm0mKFZEvlKkmx2FSjk1J4l+P1p1nYl9YJ5o1ofnR2bNGkW6r1Ylv0=="',
        "x v0.0.13 h1:/KBBKHuVRbq1lYx5BzEHBAFBP8VcQzJejZ/IA3iR28k=",
        "toolu_01A09q90qw90lq917835lq9",
        "ThisIsAVeryLongIdentifierNameV2ForTesting",
        "src/components/Button2/IndexPage3/FooBar4.tsx",
        "SGVsbG8gd29ybGQsIHRoaXMgaXMgYSBmaXh0dXJlMQ==",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGq3Xb1nT0pL5wR3cY6hV8uJ2kD4fS7aQ9eZ1xC5vB8n",
        "-----BEGIN RSA PRIVATE KEY----- is how one begins",
        'assert line == "-----END RSA PRIVATE KEY-----"',
        'if "-----BEGIN RSA PRIVATE KEY-----" in open("/var/lib/projects/of/some/thing/x.py").read(): x()',
        f"-----BEGIN CERTIFICATE-----\n{LINE}\n{LINE}\n-----END CERTIFICATE-----",
        f"{LINE}\n{LINE}\n-----END PUBLIC KEY-----",
        f"data:image/png;base64,{LINE * 20}",
        "import re_export; re_exported_names_that_are_long_ones_too2 re_12345678_somethingthatislongenough",
        "cache-key-d41d8cd98f00b204e9800998ecf8427e /key-d41d8cd98f00b204e9800998ecf8427e",
        "key-d41d8cd98f00b204e9800998ecf8427e.json key-d41d8cd98f00b204e9800998ecf8427e8b49153f",
        "pul-request repul-8b49153f2a9d0c1e6b7a8f9e0d1c2b3a4f5e6d7c rubygems_mirror lsv2_pt_example",
        "pattern.matches patchwork2023x.8b49153f2a9d0c1e6b7a8f9e0d1c2b3a4f5e6d7c access_token$production$x",
        "xoxd-example ops_eyes FAQ~8Q~7 https://hooks.slack.com/workflows/ https://api.slack.com/workflows/a/b/c/d",
        "http://localhost:3000/@vite/client http://127.0.0.1:8080/x#y@z http://a.io:80,http://b/@c",
        "https://unpkg.com:443/react@18.2.0/x.js http://host:port/x@y http://h:${PORT}/@x",
        "https://x.io/a:b/c@d docker://hub/a:1/b@sha256:8b49153f2a9d ssh://git@x.io:a/b@main",
        'auth: passport, "auth": "required", auth = getAuth(x), "author": "' + LOGIN + '"',
        r"https:\/\/x.com\/home\/index.html and \/app\/src\/home\/page",
        "x--users-list ab--Users-list --home-dir=x app-home-page- src/app-Users-list-x",
        "file:///d%3A/dev/x, Documents and Settings of yours",
        r"C:\Documents and Settings\All Users\x",
    ],
)
def test_what_is_left(text: str) -> None:
    assert redact(text).text == text


@pytest.mark.parametrize(
    "block",
    [
        f"-----BEGIN RSA PRIVATE KEY-----\n{BODY}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN OPENSSH PRIVATE KEY-----\\n{BODY}\\n-----END OPENSSH PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{BODY}",
    ],
)
def test_private_keys_go_as_a_whole(block: str) -> None:
    assert redact(f'key: "{block}"; x').text == f'key: "{mask("private_key")}"; x'


SHOWN = {
    "of Python": "\n".join(f'    "{line}\\n"' for line in ("{}", LINE, LINE, "q3Xb9Q==")),
    "of JSON": json.dumps(["{}", LINE, LINE, "q3Xb9Q=="]),
    "with numbers": "\n".join(f"{n:6}→{line}" for n, line in enumerate(("{}", LINE, LINE, "q3Xb9Q=="), 8)),
    "of a diff": "\n".join(f"+{line}" for line in ("{}", LINE, LINE, "q3Xb9Q==")),
    "escaped": "\\n".join(("{}", LINE, LINE, "q3Xb9Q==")),
    "with its headers": "\n".join(
        f'"{line}\\n"' for line in ("{}", "Proc-Type: 4,ENCRYPTED", "", LINE, LINE, "q3Xb9Q==")
    ),
}


@pytest.mark.parametrize("form", SHOWN)
def test_a_private_key_cut_off_at_its_end(form: str) -> None:
    found = redact(SHOWN[form].replace("{}", "-----BEGIN RSA PRIVATE KEY-----") + "\n(What is it?)")
    assert found.counts == {"private_key": 1}
    assert found.text.endswith("(What is it?)")
    assert not re.search("MIIE|eF9g|q3Xb", found.text)


@pytest.mark.parametrize("form", [name for name in SHOWN if name != "with its headers"])
def test_a_private_key_cut_off_at_its_begin(form: str) -> None:
    lines = SHOWN[form].replace("{}", LINE)
    found = redact(f"What is it?\n{lines}\n-----END RSA PRIVATE KEY-----\nA key.")
    assert found.counts == {"private_key": 1}
    assert found.text.startswith("What is it?")
    assert found.text.endswith(mask("private_key") + "\nA key.")
    assert not re.search("MIIE|eF9g|q3Xb", found.text)


def test_of_a_private_key_no_piece_of_a_line_is_left() -> None:
    text = f"{LINE[-20:]}\n{LINE}\n{LINE}\n-----END OPENSSH PRIVATE KEY-----\nok"
    assert redact(text).text == f"{mask('private_key')}\nok"
    cut = f'"-----BEGIN OPENSSH PRIVATE KEY-----\\n"\n"{LINE}\\n"\n"{LINE[:9]}'
    assert redact(cut).text == f'"{mask("private_key")}'


def test_web_tokens() -> None:
    token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"
    assert redact(f"jwt {token} end").text == f"jwt {mask('jwt')} end"
    assert redact(f"cut {token[:40]}").text == f"cut {mask('jwt')}"


def test_findings_take_time_as_the_text_is_long() -> None:
    """What was masked was put into the middle of a list as long as the text: 720 KB took half a minute."""
    text = "ada@corp.io " * 60_000
    started = time.process_time()
    found = findings(text)
    assert time.process_time() - started < 15
    assert [(start, end) for start, end, _ in found[:2]] == [(0, 11), (12, 23)]
    assert found[-1][:2] == (len(text) - 12, len(text) - 1)


def test_a_report_over_many_texts() -> None:
    redactor = Redactor()
    assert redactor("mail a@b.org and c@d.org") == "mail [redacted:email] and [redacted:email]"
    redactor("nothing")
    redactor("/home/alice/x")
    assert redactor.report() == {"texts": 3, "changed": 2, "masked": {"email": 2, "home_path": 1}}


PIECES = st.sampled_from(
    [
        *VENDOR.values(),
        KEY,
        "a@b.org",
        "/home/bob/",
        "/nfs/home/bob b/",
        "-v/home/",
        'password="',
        "token=",
        "eyJ",
        "[redacted:",
        "]",
        "://",
        "@",
    ]
    + [mask(kind) for kind in KINDS]
    + list(" \n\"'\\:=-/")
)
TEXTS = st.lists(st.one_of(PIECES, st.text(max_size=6)), max_size=14).map("".join)


@settings(deadline=None, max_examples=300)
@given(TEXTS)
@example('password="a@b.org')
@example("/home/a/home/a/home/a")
def test_masking_again_changes_nothing_and_the_rest_is_the_text(text: str) -> None:
    found = redact(text)
    again = redact(found.text)
    assert (again.text, again.counts) == (found.text, {})
    pattern = "|".join(re.escape(mask(kind)) for kind in KINDS)
    left = [re.escape(piece) for piece in re.split(pattern, found.text)]
    assert re.fullmatch("(?s:.+?)".join(left), text)
    assert (found.text == text) == (not found.counts)


@settings(deadline=None, max_examples=200)
@given(
    secret=st.sampled_from(sorted(VENDOR.values())),
    before=st.text(max_size=30),
    after=st.text(max_size=30),
    quote=st.sampled_from(["", '"', "'", "`", '\\"', " "]),
)
def test_a_planted_key_never_survives(secret: str, before: str, after: str, quote: str) -> None:
    before += " " if quote == "" else ""  # a key is not part of a longer word
    after = (" " if quote == "" else "") + after
    assert secret not in redact(f"{before}{quote}{secret}{quote}{after}").text


@settings(deadline=None, max_examples=200)
@given(
    name=st.sampled_from(["password", "passwd", "client_secret", "DB_PASSWORD", "userPassword", "pwd"]),
    change=st.sampled_from([str.lower, str.upper, str.title, str]),
    value=st.text(string.ascii_letters, min_size=3, max_size=12),
    joint=st.sampled_from([" = ", ": ", "=", ":", " => ", ":="]),
    quote=st.sampled_from(['"', "'", "`", '\\"']),
    before=st.text(max_size=20),
)
def test_a_planted_password_never_survives(
    name: str, change: object, value: str, joint: str, quote: str, before: str
) -> None:
    value = f"Q7{value}"
    assert callable(change)
    text = f"{before} {change(name)}{joint}{quote}{value}{quote} end"
    assert value not in redact(text).text


HOSTILE: tuple[str, ...] = (
    "a",
    "eyJ",
    "sk-",
    "://",
    "a@",
    "x@a.",
    'password="',
    "-----BEGIN RSA PRIVATE KEY-----",
)
HOSTILE += (  # base64, in lines and without
    "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0t",
    "LS0tLS1C" * 9 + "\n",
    "aGVsbG8gd29ybGQg",
    "ICAgICAgICAgICAg\\n",
)
HOSTILE += (
    "/home/a",
    "C:\\Users\\a",
    "--a_",
    "bearer ",
    "xoxb-1-",
    "=",
    "AKIA",
    "glagent-",
    "{",
    "/:_authToken",
    "://a:b/",
    "://a:b@",
    "-----END RSA PRIVATE KEY-----",
    f"{LINE}\n",
    f"-----END RSA PRIVATE KEY-----\n{LINE}\n",
    f'-----BEGIN RSA PRIVATE KEY-----\n"{LINE}',
    "-----BEGIN RSA PRIVATE KEY-----Version: ",
    "-Users-",
    "\\/Users",
    "c%3A/Users/a",
    'auth="',
    "a8Q~",
    "re_A1",
    "xoxd-",
    "password: a ",
    "password: str = 'a\"b",
    "password: a[",
    "password: a|a|",
    'password="\\\\',
    "password='a\"a",
    "#define ",
    "#define password ",
    "password%3D",
    "password%3Da%20",
    "name: password ",
    'name="password" ',
    "identified by ",
    "role password ",
    "[0m",
    "a@b.cc.d",
)


@pytest.mark.parametrize("unit", ["\x1b[", "\x1b[1;", "\x1b]", "\x1b]8;;a", "\x1b[ !"])
def test_sequences_of_a_terminal_are_found_in_linear_time(unit: str) -> None:
    started = time.process_time()
    visible(unit * (400_000 // len(unit)))
    assert time.process_time() - started < 5


def test_what_a_terminal_shows_is_what_is_looked_at() -> None:
    """`grep --color` puts its sequences into the middle of what it found; their ends look like text."""
    key = VENDOR["anthropic"]
    coloured = f"\x1b[01;31m\x1b[K{key[:8]}\x1b[m\x1b[K{key[8:]}\x1b]8;;http://x\x07 ok\x1b]8;;\x1b\\"
    assert visible(coloured) == f"{key} ok"
    assert visible(f"\x1b(B\x1b[m{key}\x1b[m\x1b(B ok") == f"{key} ok", (
        "`tput sgr0`, before a key and behind it"
    )
    assert redact(visible(coloured)).text == "[redacted:api_key] ok"


@pytest.mark.parametrize("unit", HOSTILE)
def test_the_time_is_linear_on_one_hostile_line(unit: str) -> None:
    assert is_linear(unit)
