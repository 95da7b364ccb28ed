"""The names that give a secret away, and what in a secret's place is none.

Not for: where a name and its secret stand (`credentials.py`, `places.py`).
"""

from __future__ import annotations

import re

STRONG = (  # whatever is assigned to these is secret
    r"pass(?:word|wd|phrase|code)s?|pwd|secret|(?<=[_-])pass(?![a-z])"
    r"|(?:pass|kenn|watch|wacht)wo(?:rt|ord)|mot de passe|contrase(?:ñ|n|\\u00f1)a|senha|lösenord|hasło"
    r"|пароль|密码|密碼|パスワード|비밀번호"
)
WEAK = (
    r"(?:api|access|auth|secret|private|signing|encryption|account|master|client|service|shared|admin|app"
    r"|application|consumer|subscription|deploy|webhook|hmac|license|validation|decryption|pre-?shared)"
    r"[ _.-]?(?:key|token|hash)s?|access[_-]?key[_-]?id|tokens?|credentials?|bearer"
)
NAME = rf"(?i:(?P<strong>{STRONG})|(?P<weak>{WEAK}))"
TAIL = r"(?i:[_-](?:key|value|hash|base|base64|b64|[0-9]{1,2}|dev|test|prod|staging|live)){0,2}"
ESCAPES = r"\\{0,7}"  # before a quote: JSON in JSON in JSON has seven
BLANKS = r"[ \t\xa0]{0,4}"

_REFERENCE = re.compile(
    r"[$<{%*\[#&]|\.{3}|x{3,}|(?:your|my|the|some|an?)[ _-]"
    r"|(?:insert|replace|change|enter|put)[ _-]?(?:me|your|the)?"
    r"|(?:process|os|env|sys|self|this|ctx|config|settings|secrets|vars|params|request|args|options|import)\b[.\[(]"
    r"|(?:none|null|nil|true|false|undefined|optional|required|string|str|int|bool|any|number|object|bytes)\b",
    re.IGNORECASE,
)


def is_reference(value: str) -> bool:
    """Whether it says where the secret is: `$TOKEN`, `{{ token }}`, `<your-token>`, `os.environ[...]`."""
    return bool(_REFERENCE.match(value))


def is_mixed(value: str) -> bool:
    """Letters and digits both: what keys are and words are not."""
    return any(c.isdigit() for c in value) and any(c.isalpha() for c in value)


def quoted_is_secret(value: str, *, strong: bool) -> bool:
    """Whether a quoted value of such a name is its secret, and not a label or a description."""
    if len(value) < 4 or is_reference(value):
        return False
    if strong:
        return not re.fullmatch(rf"(?i:(?:{STRONG})[ :*]*)|[ \W]*", value) and value.count(" ") <= 6
    return len(value) >= 8 and " " not in value and is_mixed(value)
