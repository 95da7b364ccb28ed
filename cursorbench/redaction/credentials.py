"""Secrets that their surroundings give away: assignments, command-line flags, headers, URLs.

Quoted values are taken nearly always; bare ones only where they can hardly be an expression of source
code. References (`$TOKEN`, `{{ token }}`, `<your-token>`, `os.environ[...]`) are no secrets.
Not for: forms of known vendors (`vendors.py`).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

from cursorbench.redaction.spans import Span

_STRONG = (  # whatever is assigned to these is secret
    r"pass(?:word|wd|phrase|code)s?|pwd|secret|(?<=[_-])pass(?![a-z])"
    r"|(?:pass|kenn|watch|wacht)wo(?:rt|ord)|mot de passe|contrase(?:ñ|n|\\u00f1)a|senha|lösenord|hasło"
    r"|пароль|密码|密碼|パスワード|비밀번호"
)
_WEAK = (
    r"(?:api|access|auth|secret|private|signing|encryption|account|master|client|service|shared)"
    r"[ _.-]?(?:key|token|hash)s?|access[_-]?key[_-]?id|tokens?|credentials?|bearer"
)
_NAME = rf"(?i:(?P<strong>{_STRONG})|(?P<weak>{_WEAK}))"
_TAIL = r"(?i:[_-](?:key|value|hash|base|base64|b64|[0-9]{1,2}|dev|test|prod|staging|live)){0,2}"
_ESCAPES = r"\\{0,7}"  # before a quote: JSON in JSON in JSON has seven
_BLANKS = r"[ \t\xa0]{0,4}"
_IS = r"(?:=>|:=|=(?!=)|:(?!:)|[：＝])"
_IN_WORDS = r"[\w@#!%^*?~-]"  # on both sides of a quote that ends nothing
_QUOTED = (  # up to the quote that began it, over those that are escaped or of another kind
    r"(?:(?:String::from\(|[bruf]{0,2})(?P<escape>\\{1,7})?(?P<quote>[\"'`]{3}|[\"'`]))(?P<quoted>(?:[^\"'`\n\\]"
    rf"|(?<={_IN_WORDS})(?!(?P=quote))[\"'`](?={_IN_WORDS})"
    r"|(?(escape)(?P=escape)\\++[\"'`]|(?:\\[\"'`]|\\\\(?![nrt])))|\\++(?![nrt\"'`])[^\n\\]){0,4096}+)"
)
_IN_BRACKETS = r"(?:\[[\w.\[\]|, ]{0,40}\])?\??"  # no comma outside: f(password: str, x="...")
_TYPE = rf"[A-Za-z_][A-Za-z_.]{{0,40}}+{_IN_BRACKETS}"  # without digits: password: hunter2 = "..."
_TEXTS = rf"(?i:(?:secret)?str(?:ing)?|bytes|any|text|optional|union){_IN_BRACKETS}"
_TYPED = (  # password: str = "..."; of Go, C, Rust too; base64 ends in =, so most have a blank before it
    rf"(?:\??[ ]?:[ ]?(?:&?{_TYPE}(?:[ ]?\|[ ]?{_TYPE}){{0,4}}[ ]|{_TEXTS}(?:[ ]?\|[ ]?{_TYPE}){{0,4}})"
    r"|[ ]string[ ]?|\[\w{0,20}\][ ]?)=(?![=>])[ ]?"
)
_ASSIGNED = re.compile(
    rf"{_NAME}{_TAIL}(?:(?P<typed>{_TYPED})|{_ESCAPES}[\"'`]?\]?(?P<colon>{_BLANKS}{_IS}{_BLANKS}))"
    rf"(?:{_QUOTED}|(?(typed)(?!)|(?P<bare>[^\s\"'`,;&<>|(){{}}\\]{{4,4096}}+)))"
)
_DEFINED = re.compile(rf"#[ ]?define[ \t]{{1,8}}\w{{0,64}}?{_NAME}{_TAIL}[ \t]{{1,40}}{_QUOTED}")
_ENCODED = re.compile(  # as in a URL or a form
    rf"{_NAME}{_TAIL}(?:%2[27])?(?:%20|\+){{0,2}}%3[ADad](?:%20|\+){{0,2}}(?:%2[27])?"
    r"(?P<value>(?:[^\s\"'`&;<>,%\\]|%(?!2[267C]|3B|7D|0[AD]|2c|3b|7d|0[ad])[0-9A-Fa-f]{2}){4,512}+)"
)
_FLAG = re.compile(
    rf"(?<![\w-])--?(?i:[a-z0-9]{{0,20}}[_-])?{_NAME}(?:=|[ \t]{{1,4}})(?:\\?[\"'])?"
    r"(?P<value>[^\s\"'`,;|&(){}\[\]<>$\\-][^\s\"'`;|&<>\\]{2,512}+)"
)
_HEADER = re.compile(
    r"(?i:\b(?:proxy-)?authorization[\"']?[ \t]{0,4}[:=,][ \t]{0,4}[\"'`]?"
    r"(?:(?:bearer|basic|token|digest|apikey)[ \t]{1,4})?)"
    r"(?P<value>[A-Za-z0-9._~+/=-]{6,4096}+)"
)
_BEARER = re.compile(r"(?i:\bbearer[ \t]{1,4})(?P<value>[A-Za-z0-9._~+/=-]{16,4096}+)")
_CURL = re.compile(
    r"(?<![\w-])(?:-u|--user|--proxy-user)[ =]{1,4}[\"']?[^\s:\"'$/]{1,128}:(?P<value>[^\s\"'$]{1,256}+)"
)
_AUTH = re.compile(  # of Docker's config.json and .npmrc: base64 of user:password
    r"(?<![A-Za-z0-9])_?auth\\{0,3}[\"']?[ \t]{0,4}[:=][ \t]{0,4}(?:\\{0,3}[\"'])?"
    r"(?P<value>[A-Za-z0-9+/]{8,1024}+={0,2})(?![A-Za-z0-9+/=_.(-])"
)
_USER = r"://(?P<user>[^\s/?#:@\[\]\"'`<>{}]{0,256}+)"
_PAST_AT = r"(?:@[^\s/?#@\"'`<>\\:,]{1,64}+(?=@)){0,3}"  # a password with @ in it ends at the last one
_URLS = (
    re.compile(rf"{_USER}(?::(?P<value>[^\s/?#@\"'`<>]{{1,256}}+{_PAST_AT}))?@"),
    re.compile(  # a password that holds what should have been escaped; not a port and a path with an @
        rf"{_USER}:(?!/|\d{{1,5}}(?:[/?#;,]|\Z)|(?i:port)\b)(?P<value>[^\s/?#@\"'`<>\\]{{0,128}}+[/?#]"
        rf"[^\s@\"'`<>\\]{{0,128}}+{_PAST_AT})(?=@(?!sha256:)[\w.-]{{1,253}}+(?:[:/?,;)\s\"'`<>\\]|\Z))"
    ),
)

_GAP = r"(?:\s|\\{1,2}[nrt]){1,8}"
_PLACE = (
    r"(?:server|data source|host|address|uid|user(?: id)?|database|initial catalog|port|accountname|driver)"
)
_PART = r"[ ]?[\w ]{1,40}=[^;\n\"'\\]{0,128}"
_COMMAND = r"[^\n|;&\"`\\]{0,160}?[ \t]"
_KNOWN_PLACES = tuple(  # where a password stands without a name right before it; a word that is always there
    (word, re.compile(f"(?i:{before})(?P<value>{value}){after}"))
    for word, before, value, after in (
        (
            "machine",
            rf"\bmachine{_GAP}\S{{1,128}}{_GAP}login{_GAP}\S{{1,128}}{_GAP}password{_GAP}",
            r"[^\s\\\"']{1,256}+",
            "",
        ),
        (
            "=",
            rf"\b{_PLACE}=[^;\n\"'\\]{{1,128}};(?:{_PART};){{0,8}}[ ]?(?:pwd|password)=",
            r"[^;\s\"'\\]{1,128}+",
            "",
        ),
        ("=", r"\b(?:pwd|password)=", r"[^;\s\"'\\]{1,128}+", rf"(?=;[ ]?(?i:{_PLACE})=)"),
        (  # of Kubernetes and the like: a name and its value, each by itself
            "value",
            rf"\bname{_ESCAPES}[\"']?[ ]?:[ ]?{_ESCAPES}[\"']?[\w.-]{{0,64}}?(?:{_STRONG}){_TAIL}"
            rf"{_ESCAPES}[\"']?,?(?:\s|\\{{1,7}}[nrt]){{0,20}}{_ESCAPES}[\"']?value{_ESCAPES}[\"']?[ ]?:[ ]?"
            rf"{_ESCAPES}[\"']",
            r"[^\s\"'\\]{4,256}+",
            "",
        ),
        (
            "value:",
            rf"\bname:[ ]{{1,4}}[\w.-]{{0,64}}?(?:{_STRONG}){_TAIL}(?:\s|\\{{1,7}}[nrt]){{1,20}}value:[ ]",
            r"[^\s\"'\\]{4,256}+",
            "",
        ),
        (
            "value=",
            rf"\b(?:key|name)=[\"'][\w.:-]{{0,64}}?(?:{_STRONG}){_TAIL}[\"']\s{{1,8}}value=[\"']",
            r"[^\s\"'<>]{4,256}+",
            "",
        ),
        (
            "define(",
            rf"\bdefine\([ ]?[\"']\w{{0,64}}?(?:{_STRONG}){_TAIL}[\"'],[ ]{{0,4}}[\"']",
            r"[^\"'\n]{4,256}+",
            "",
        ),
        (
            "identified",
            r"\bidentified[ ]{1,4}(?:with[ ]{1,4}\w{1,64}[ ]{1,4})?by[ ]{1,4}[\"']",
            r"[^\"'\n]{3,128}+",
            "",
        ),
        ("password", r"\b(?:with|role|user)[ ][^\n;'\"]{0,80}?\bpassword[ ]{1,4}'", r"[^'\n]{3,128}+", ""),
        (
            "securestring",
            r"\bConvertTo-SecureString[ ]{1,4}(?:-String[ ]{1,4})?[\"']",
            r"[^\"'\n$]{3,128}+",
            "",
        ),
        ("pass:", r"(?<![\w-])-pass(?:in|out)?[ ]{1,4}[\"']?pass:", r"[^\s\"'$]{3,128}+", ""),
        (
            "pass",
            r"(?<![\w-])-(?:store|key|src|dest|dst)pass[ ]{1,4}[\"']?",
            r"[^\s\"'\\$-][^\s\"'\\]{2,128}+",
            "",
        ),
        ("</", rf"<[\w:.-]{{0,40}}(?:{_STRONG}|{_WEAK})>", r"[^<>\s]{4,512}+", "(?=</)"),
        ("sshpass", r"\bsshpass[ \t]{1,4}-p[ \t]{0,4}[\"']?", r"[^\s\"'\\$]{3,128}+", ""),
        (
            "-p",
            rf"\b(?:mysql(?:dump|admin|import|show)?|mariadb(?:-dump)?)\b{_COMMAND}-p[\"']?",
            r"[^\s\"'\\$=]{3,128}+",
            "",
        ),
        (
            "docker",
            rf"\bdocker[ ]login\b{_COMMAND}-p[ \t]{{1,4}}[\"']?",
            r"[^\s\"'\\$-][^\s\"'\\]{2,128}+",
            "",
        ),
        ("redis-cli", rf"\bredis-cli\b{_COMMAND}-a[ \t]{{1,4}}[\"']?", r"[^\s\"'\\$-][^\s\"'\\]{2,128}+", ""),
        (
            "",
            r"(?:^|[\n\r]|\\n)[ \t]{0,8}(?:requirepass|masterauth)[ \t]{1,4}[\"']?",
            r"[^\s\"'\\]{3,128}+",
            "",
        ),
        (
            "",
            r"\bX-Amz-(?:Signature|Security-Token)(?:=|%3D)|[?&;]sig(?:nature)?=",
            r"[A-Za-z0-9%+/_=-]{20,4096}+",
            "",
        ),
        (
            "cookie",
            r"\b(?:set-)?cookie[\"']?[ \t]{0,4}[:,][ \t]{0,4}[\"'`]?",
            r"[\w.%-]{1,64}=[^\n\r\"'`\\]{8,4096}+",
            "",
        ),
    )
)

_REFERENCE = re.compile(
    r"[$<{%*\[#&]|\.{3}|x{3,}|(?:your|my|the|some|an?)[ _-]"
    r"|(?:insert|replace|change|enter|put)[ _-]?(?:me|your|the)?"
    r"|(?:process|os|env|sys|self|this|ctx|config|settings|secrets|vars|params|request|args|options|import)\b[.\[(]"
    r"|(?:none|null|nil|true|false|undefined|optional|required|string|str|int|bool|any|number|object|bytes)\b",
    re.IGNORECASE,
)
_EXPRESSION = re.compile(r"[A-Za-z_][\w.]*(?:[(\[].*)?\Z|[=.*/-]|\d{1,7}\Z", re.DOTALL)
_UNQUOTED = re.compile(r"[^\"'`\\]*")
_SHELL_NAME = re.compile(r"(?:^|[\s\"'])(?:export |set |ENV |ARG |-e ?)?[A-Z0-9_]{0,60}\Z")
_TEMPLATE = re.compile(r"[${<%]")


def credentials(text: str) -> Iterator[Span]:
    """All of them, as spans of the secret alone. Linear time: each pattern is bounded or possessive."""
    yield from _assigned(text)
    for pattern in (_FLAG, _HEADER, _BEARER, _CURL):
        for match in pattern.finditer(text):
            value = match["value"]
            words = pattern is _FLAG and not match["strong"] and not _mixed(value)
            if not _REFERENCE.match(value) and not words and (pattern is not _HEADER or _mixed(value)):
                yield _span(match, "value")
    lowered = text.lower()
    for word, pattern in _KNOWN_PLACES:
        for match in pattern.finditer(text) if word in lowered else ():
            if not _REFERENCE.match(match["value"]):
                yield _span(match, "value")
    for match in _AUTH.finditer(text):
        if _user_and_password(match["value"]):
            yield _span(match, "value")
    yield from _in_urls(text)


def _assigned(text: str) -> Iterator[Span]:
    for match in _ASSIGNED.finditer(text):
        if match["quoted"] is not None:
            yield from _in_quotes(match)
        elif _bare_is_secret(match, text):
            yield _span(match, "bare")
    for match in _DEFINED.finditer(text):
        if _quoted_is_secret(match["quoted"], strong=bool(match["strong"])):
            yield _span(match, "quoted")
    for match in _ENCODED.finditer(text) if "%3" in text else ():
        value = match["value"]
        if not _REFERENCE.match(value) and (match["strong"] or (len(value) >= 8 and _mixed(value))):
            yield _span(match, "value")


def _in_quotes(match: re.Match[str]) -> Iterator[Span]:
    """All of it, or what is before the next quote of any kind: in broken text that is the end."""
    span, strong = _span(match, "quoted"), bool(match["strong"])
    for value in (match["quoted"], _UNQUOTED.match(match["quoted"])[0]):  # type: ignore[index]  # may be empty
        if _quoted_is_secret(value, strong=strong):
            yield span._replace(end=span.start + len(value))
            return


def _quoted_is_secret(value: str, *, strong: bool) -> bool:
    if len(value) < 4 or _REFERENCE.match(value):
        return False
    if strong:
        return not re.fullmatch(rf"(?i:(?:{_STRONG})[ :*]*)|[ \W]*", value) and value.count(" ") <= 6
    return len(value) >= 8 and " " not in value and _mixed(value)


def _bare_is_secret(match: re.Match[str], text: str) -> bool:
    """`PASSWORD=hunter2`, `token: 9fK...`, `?token=...`; not `password=password` or `token: Token`."""
    value = match["bare"].rstrip(".)]")
    if len(value) < 4 or _REFERENCE.match(value):
        return False
    if not _EXPRESSION.match(value):
        return bool(match["strong"]) or (len(value) >= 8 and _mixed(value))
    if re.search(r"[.(\[]", value):
        return False
    if _mixed(value):
        return bool(match["strong"]) or len(value) >= 12
    tight = not match["colon"].strip("=")
    return bool(match["strong"]) and tight and _shell(match, text)


def _shell(match: re.Match[str], text: str) -> bool:
    """Whether the name is one of an environment: capitals from the beginning of a word on."""
    name = text[max(0, match.start() - 64) : match.end("strong")]
    return bool(_SHELL_NAME.search(name))


def _in_urls(text: str) -> Iterator[Span]:
    """`scheme://user:PASSWORD@host`, and `scheme://TOKEN@host` where the user looks like a key."""
    for pattern in _URLS:
        for match in pattern.finditer(text):
            value = match["value"]
            if value is not None:
                if not _TEMPLATE.match(value):
                    yield _span(match, "value")
            elif len(match["user"]) >= 16 and _mixed(match["user"]):
                yield _span(match, "user")


def _user_and_password(value: str) -> bool:
    """Whether it is base64 of `user:password`."""
    try:
        plain = base64.b64decode(value + "=" * (-len(value) % 4)).decode("utf-8")
    except ValueError:
        return False
    user, colon, password = plain.partition(":")
    return bool(user and colon and password) and plain.isprintable()


def _mixed(value: str) -> bool:
    """Letters and digits both: what keys are and words are not."""
    return any(c.isdigit() for c in value) and any(c.isalpha() for c in value)


def _span(match: re.Match[str], group: str) -> Span:
    return Span(match.start(group), match.end(group), "credential", match.start())
