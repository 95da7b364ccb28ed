"""Secrets that their surroundings give away: assignments, command-line flags, headers, URLs.

Quoted values are taken nearly always; bare ones only where they can hardly be an expression of source
code. References (`$TOKEN`, `{{ token }}`, `<your-token>`, `os.environ[...]`) are no secrets.
Not for: forms of known vendors (`vendors.py`).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

from cursorbench.redaction.places import known_places
from cursorbench.redaction.spans import Span, to_quote
from cursorbench.redaction.words import (
    BLANKS,
    ESCAPES,
    NAME,
    STRONG,
    TAIL,
    is_mixed,
    is_reference,
    quoted_is_secret,
)

_IS = r"(?:=>|:=|=(?!=)|:(?!:)|[：＝])"
_IN_WORDS = r"[\w@#!%^*?~-]"  # on both sides of a quote that ends nothing
_QUOTED = (  # up to the quote that began it, over those that are escaped or of another kind
    r"(?:(?:String::from\(|[bruf]{0,2}#{0,2}|N|[@$]{1,2})(?P<escape>\\{1,7})?(?P<quote>[\"'`]{3}|[\"'`]))(?P<quoted>(?>(?:[^\"'`\n\\]"
    rf"|(?<={_IN_WORDS})(?:(?!(?P=quote))[\"'`]|(?P=quote){{2}})(?={_IN_WORDS})"
    r"|(?(escape)(?P=escape)\\++[\"'`]|(?:\\[\"'`]|\\\\(?![nrt])))|\\++(?![nrt\"'`])[^\n\\]){0,4096}))"
)
_IN_BRACKETS = r"(?:\[[\w.\[\]|, ]{0,40}\])?\??"  # no comma outside: f(password: str, x="...")
_TYPE = rf"[A-Za-z_][A-Za-z_.]{{0,40}}+{_IN_BRACKETS}"  # without digits: password: hunter2 = "..."
_TEXTS = rf"(?i:(?:secret)?str(?:ing)?|bytes|any|text|optional|union){_IN_BRACKETS}"
_TYPED = (  # password: str = "..."; of Go, C, Rust too; base64 ends in =, so most have a blank before it
    rf"(?:\??[ ]?:[ ]?(?:&?{_TYPE}(?:[ ]?\|[ ]?{_TYPE}){{0,4}}[ ]|{_TEXTS}(?:[ ]?\|[ ]?{_TYPE}){{0,4}})"
    r"|[ ]string[ ]?|\[\w{0,20}\][ ]?)=(?![=>])[ ]?"
)
_OF_FOUR = (  # as Google makes passwords of apps
    r"(?:[a-z]{4}[ ]){3}[a-z]{4}(?=[\"'`]|[ ]{0,8}(?:\r?\n|\Z)|\\{1,4}[nr])"
)
_ASSIGNED = re.compile(
    rf"{NAME}{TAIL}(?:(?P<typed>{_TYPED})|{ESCAPES}[\"'`]?\]?(?:\*\*)?(?P<colon>{BLANKS}{_IS}(?:\*\*)?{BLANKS}))"
    rf"(?:{_QUOTED}|(?(typed)(?!)|(?P<bare>{_OF_FOUR}|[^\s\"'`,;&<>|(){{}}\\]{{4,4096}}+)))"
)
_DEFINED = re.compile(rf"#[ ]?define[ \t]{{1,8}}\w{{0,64}}?{NAME}{TAIL}[ \t]{{1,40}}{_QUOTED}")
_ENCODED = re.compile(r"(?<!%3[ADad])%3[ADad](?:%20|\+){0,2}(?:%2[27])?")  # as in a URL or a form
_VALUE_ENCODED = re.compile(
    r"(?P<value>(?>(?:[^\s\"'`&;<>,%\\]|%(?!2[267C]|3B|7D|0[AD]|2c|3b|7d|0[ad])[0-9A-Fa-f]{2}){4,512}))"
)
_BEFORE_ENCODED = re.compile(rf"{NAME}{TAIL}(?:%2[27])?(?:%20|\+){{0,2}}\Z")
_FLAG = re.compile(
    rf"(?<![\w-])--?(?i:[a-z0-9]{{0,20}}[_-])?{NAME}(?:=|[ \t]{{1,4}})(?P<quote>\\?[\"']|)"
    r"(?P<value>(?<=[\"'])[^\s\"'`\\]{3,512}+|[^\s\"'`,;|&(){}\[\]<>$\\-][^\s\"'`;|&<>\\]{2,512}+)"
)
_HEADER = re.compile(
    rf"(?i:\b(?:proxy-)?authorization(?:{ESCAPES}[\"']?[ \t]{{0,4}}[:=,][ \t]{{0,4}}|[ \t](?=[\"'\\]))"
    rf"{ESCAPES}[\"'`]?"
    r"(?:(?:bearer|(?P<basic>basic)|token|digest|apikey)[ \t]{1,4})?)"
    r"(?P<value>[A-Za-z0-9._~+/=-]{6,4096}+)"
)
_BEARER = re.compile(r"(?i:\bbearer[ \t]{1,4})(?P<value>[A-Za-z0-9._~+/=-]{16,4096}+)")
_CURL = re.compile(
    r"(?<![\w-])(?:-u|--user|--proxy-user)[ =]{1,4}(?P<quote>[\"']?)[^\s:\"'$/]{1,128}:"
    r"(?P<value>[^\s\"']{1,256}+)"
)
_AUTH = re.compile(  # of Docker's config.json and .npmrc: base64 of user:password
    r"(?<![A-Za-z0-9])_?auth\\{0,3}[\"']?[ \t]{0,4}[:=][ \t]{0,4}(?:\\{0,3}[\"'])?"
    r"(?P<value>[A-Za-z0-9+/]{8,1024}+={0,2})(?![A-Za-z0-9+/=_.(-])"
)
_USER = r"://(?P<user>[^\s/?#:@\[\]\"'`<>{}]{0,256}+)"
_PAST_AT = r"(?:@[^\s/?#@\"'`<>\\:,]{1,64}+(?=@)){0,3}"  # a password with @ in it ends at the last one
_URLS = (
    re.compile(rf"{_USER}(?::(?P<value>[^\s/?#@\"'`<>]{{0,256}}+{_PAST_AT}))?@"),
    re.compile(  # a password that holds what should have been escaped; not a port and a path with an @
        rf"{_USER}:(?!/|\d{{1,5}}(?:[/?#;,]|\Z)|(?i:port)\b)(?P<value>[^\s/?#@\"'`<>\\]{{0,128}}+[/?#]"
        rf"[^\s@\"'`<>\\]{{0,128}}+{_PAST_AT})(?=@(?!sha256:)[\w.-]{{1,253}}+(?:[:/?,;)\s\"'`<>\\]|\Z))"
    ),
)

_VALUE = re.compile(  # rarer than names: it goes first
    r"[:=][ ]?(?=(?P<value>[^\s\"'`\\,]{8,256}+)(?:\s|\\[nr]|\Z))"
)
_NAMED = re.compile(  # by a line of settings, or by a word of a sentence
    rf"(?:(?:^|[\n\r]|\\n)[ \t+-]{{0,20}}(?:export[ ]|set[ ])?[\w.-]{{0,64}}?(?i:{STRONG}){TAIL}[ ]?[:=][ ]?"
    rf"|(?i:{STRONG})(?:[ ](?:for|of|to|on|in)[ ](?:'[^'\n]{{1,80}}'|[^\n:']{{1,60}}))?[ ]?:[ ])\Z"
)
_LONGEST_NAME, _LONGEST_NAMED = 80, 160
_CODE = re.compile(r"=>|&&|\|\||[\w\]]\(|&[\w.%-]{1,64}=|://")  # or a form, an address
_EXPRESSION = re.compile(
    r"[A-Za-z_][\w.]*(?:[(\[].*)?\Z|[=/]|\*\w|-(?:\W|[\d.]+\Z|[a-z-]+\Z|\Z)|\.(?:\.?/|\w[\w.]*\Z|\Z)|\d{1,7}\Z",
    re.DOTALL,
)
_UNQUOTED = re.compile(r"[^\"'`\\]*")
_SHELL_NAME = re.compile(r"(?:^|[\s\"'])(?:export |set |ENV |ARG |-e ?)?[A-Z0-9_]{0,60}\Z")
_BEGINS_LINE = re.compile(r"(?:^|\n|\\n)[ \t+-]{0,20}(?:export[ ]|set[ ])?[\w.-]{0,64}\Z")
_REST = re.compile(r"(?!&[\w.%-]{1,64}=)[^\s\"'`\\]{0,256}?[A-Za-z0-9][^\s\"'`\\]{0,256}+(?=\s|\\[nr]|\Z)")
_NO_PASSWORD = (None, "", "x", "api", "x-oauth-basic")  # the user is a token
_TEMPLATE = re.compile(r"[${<%]")


def credentials(text: str) -> Iterator[Span]:
    """All of them, as spans of the secret alone. Linear time: each pattern is bounded or possessive."""
    yield from _assigned(text)
    for pattern in (_FLAG, _HEADER, _BEARER, _CURL):
        for match in pattern.finditer(text):
            value = match["value"]
            words = pattern is _FLAG and not match["strong"] and not is_mixed(value)
            if pattern is _HEADER and not is_mixed(value):
                words = not (match["basic"] and _user_and_password(value))
            if not is_reference(value) and not words:
                span = _span(match, "value")
                if pattern in (_FLAG, _CURL):
                    span = span._replace(end=to_quote(text, match["quote"], span.start, span.end))
                yield span
    yield from known_places(text)
    for match in _AUTH.finditer(text):
        if _user_and_password(match["value"]):
            yield _span(match, "value")
    yield from _in_urls(text)


def _assigned(text: str) -> Iterator[Span]:
    for match in _ASSIGNED.finditer(text):
        if match["quoted"] is not None:
            yield from _in_quotes(match)
        elif _bare_is_secret(match, text):
            span = _span(match, "bare")
            yield span._replace(end=_end_of_line(match, text)) if match["strong"] else span
    for match in _VALUE.finditer(text):
        value, at = match["value"], match.start("value")
        if not _of_all_kinds(value):
            continue
        plain = is_reference(value) or _EXPRESSION.match(value) or _CODE.search(value)
        named = None if plain else _NAMED.search(text, max(0, at - _LONGEST_NAMED), at)
        if named:
            yield Span(at, match.end("value"), "credential", named.start())
    for match in _DEFINED.finditer(text):
        if quoted_is_secret(match["quoted"], strong=bool(match["strong"])):
            yield _span(match, "quoted")
    for sign in _ENCODED.finditer(text):
        named = _BEFORE_ENCODED.search(text, max(0, sign.start() - _LONGEST_NAME), sign.start())
        found = _VALUE_ENCODED.match(text, sign.end()) if named else None
        if named is None or found is None:
            continue
        value = found["value"]
        if not is_reference(value) and (named["strong"] or (len(value) >= 8 and is_mixed(value))):
            yield _span(found, "value")._replace(anchor=named.start())


def _in_quotes(match: re.Match[str]) -> Iterator[Span]:
    """All of it, or what is before the next quote of any kind: in broken text that is the end."""
    span, strong = _span(match, "quoted"), bool(match["strong"])
    for value in (match["quoted"], _UNQUOTED.match(match["quoted"])[0]):  # type: ignore[index]  # may be empty
        if quoted_is_secret(value, strong=strong):
            yield span._replace(end=span.start + len(value))
            return


def _bare_is_secret(match: re.Match[str], text: str) -> bool:
    """`PASSWORD=hunter2`, `token: 9fK...`, `?token=...`; not `password=password` or `token: Token`."""
    value = match["bare"].rstrip(".)]")
    if len(value) < 4 or is_reference(value):
        return False
    if not _EXPRESSION.match(value):
        return bool(match["strong"]) or (len(value) >= 8 and is_mixed(value))
    if re.search(r"[.(\[]", value):
        key = len(value) >= 20 and is_mixed(value) and not re.search(r"[(\[]", value)
        return key and not match["colon"].strip("=") and _shell(match, text)
    if is_mixed(value):
        return bool(match["strong"]) or len(value) >= 12
    tight = not match["colon"].strip("=")
    return bool(match["strong"]) and tight and _shell(match, text)


def _end_of_line(match: re.Match[str], text: str) -> int:
    """Where a line of settings ends, all of which is the value: `DB_PASSWORD=a&b;c`. Not one of a URL."""
    end = match.end("bare")
    rest = _REST.match(text, end)
    return (
        rest.end() if rest and _BEGINS_LINE.search(text, max(0, match.start() - 96), match.start()) else end
    )


def _shell(match: re.Match[str], text: str) -> bool:
    """Whether the name is one of an environment: capitals from the beginning of a word on."""
    name = text[max(0, match.start() - 64) : match.end("strong" if match["strong"] else "weak")]
    return bool(_SHELL_NAME.search(name))


def _in_urls(text: str) -> Iterator[Span]:
    """`scheme://user:PASSWORD@host`, and `scheme://TOKEN@host` where the user looks like a key."""
    for pattern in _URLS:
        for match in pattern.finditer(text):
            value = match["value"]
            if value is not None and not (_TEMPLATE.match(value) and is_reference(value)):
                yield _span(match, "value")
            if value in _NO_PASSWORD and len(match["user"]) >= 16 and is_mixed(match["user"]):
                yield _span(match, "user")


def _of_all_kinds(value: str) -> bool:
    """Small letters, capitals and digits: what a password is that a program made."""
    return is_mixed(value) and value != value.lower() and value != value.upper()


def _user_and_password(value: str) -> bool:
    """Whether it is base64 of `user:password`."""
    try:
        plain = base64.b64decode(value + "=" * (-len(value) % 4)).decode("utf-8")
    except ValueError:
        return False
    user, colon, password = plain.partition(":")
    return bool(user and colon and password) and plain.isprintable()


def _span(match: re.Match[str], group: str) -> Span:
    return Span(match.start(group), match.end(group), "credential", match.start())
