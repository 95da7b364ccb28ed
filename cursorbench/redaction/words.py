"""The names that give a secret away, and what in a secret's place is none.

Not for: where a name and its secret stand (`credentials.py`, `places.py`).
"""

from __future__ import annotations

import re
from itertools import pairwise
from urllib.parse import unquote

STRONG = (  # whatever is assigned to these is secret
    r"pass(?:word|wd|phrase|code)s?|pwd|secret|(?<=[_-])pass(?![a-z])"
    r"|(?:pass|kenn|watch|wacht)wo(?:rt|ord)|mot de passe|contrase(?:ñ|n|\\u00f1)a|senha|lösenord|hasło"
    r"|пароль|密码|密碼|パスワード|비밀번호"
)
WEAK = (
    r"(?:api|access|auth|secret|private|signing|encryption|account|master|client|service|shared|admin|app"
    r"|application|consumer|subscription|deploy|webhook|hmac|license|validation|decryption|pre-?shared"
    r"|fernet|session|cookie|crypto|cipher|aes|jwt|functions)"
    r"[ _.-]?(?:key|token|hash)s?|access[_-]?key[_-]?id|tokens?|credentials?|bearer"
)
NAME = rf"(?i:(?P<strong>{STRONG})|(?P<weak>{WEAK}))"
TAIL = r"(?i:[_-](?:key|value|hash|base|base64|b64|[0-9]{1,2}|dev|test|prod|staging|live)){0,2}"
ESCAPES = r"\\{0,7}"  # before a quote: JSON in JSON in JSON has seven
BLANKS = r"[ \t\xa0]{0,4}"

_REFERENCE = re.compile(  # a password may begin with any sign: what follows it tells
    r"\$(?:[{(\[\"'\s]|\$(?:[{(]|\w+\Z)|[$@*?!#](?:\Z|[\s/.:-])|\d{1,2}(?![\w$])|\Z)"
    r"|\{(?:[{%\s\"'\\}$#]|[\w.\[\]\"'()-]{0,80}(?:![rsa])?(?::[^{}]{0,80})?\}|\Z)"
    r"|<(?:[%!?/<(\s]|[$\w][\w .,:/|'\"=-]{0,80}(?:>|\Z))"
    r"|%(?:[({\[%\s]|[-+#0]{0,2}\d{0,3}(?:\.\d)?l{0,2}[sdvqrxXifgupc@](?![A-Za-z0-9])|\w+%|[wWiIqQ][\[({<|!/]|\Z)"
    r"|\*(?:\*|\s|\Z)|#(?:[{#\s]|[0-9a-fA-F]{3,8}\Z|\Z)|&(?:[&'\s]|#x?[0-9a-fA-F]{1,6};|\Z)"
    r"|\[(?:[\s\"'\[\]{$<^]|[\w .,:|*/()-]{0,80}(?:\]|\Z))|![A-Za-z]{2,16}\Z"
    r"|\.{3}|x{3,}|(?:your|my|the|some|an?)[ _-]"
    r"|(?:insert|replace|change|enter|put)(?:[ _-]|(?:me|this|it|your\w*)?(?![a-z0-9]))"
    r"|(?:process|os|env|sys|self|this|ctx|config|settings|secrets|vars|params|request|args|options|import)\b[.\[(]"
    r"|(?:none|null|nil|true|false|undefined|optional|required|string|str|int|bool|any|number|object|bytes)\b",
    re.IGNORECASE,
)
_SIGN_AND_NAME = re.compile(  # $name, &name, *name, #name, and what may come after it
    r"(?:\${1,2}|[&*#])(?P<name>[A-Za-z_][\w-]*+)(?=\Z|[\s.,:;=\[\](){}<>/|\\\"'`?@$&%-])"
)
_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")


def is_reference(value: str) -> bool:
    """Whether it says where the secret is: `$TOKEN`, `{{ token }}`, `<your-token>`, `os.environ[...]`."""
    if _ENCODED.match(value):
        value = unquote(value)
    named = _SIGN_AND_NAME.match(value)
    return bool(_REFERENCE.match(value)) or (named is not None and not _is_random(named["name"]))


def _is_random(word: str) -> bool:
    """Whether a word changes between digits, small letters and capitals as names do not: `gQ7vpG`."""
    kinds = ["d" if c.isdigit() else "u" if c.isupper() else "l" for c in word]
    changes = sum(a != b for a, b in pairwise(kinds))
    return len(word) >= 5 and len({*kinds}) == 3 and changes >= len(word) / 2


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
