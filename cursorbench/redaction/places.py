"""Places where a password or key stands without its name right before it, or behind a command of its own.

Not for: plain assignments, flags, headers and URLs (`credentials.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cursorbench.redaction.spans import Span
from cursorbench.redaction.words import ESCAPES, NAME, STRONG, TAIL, WEAK, is_reference, quoted_is_secret

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
            rf"\bname{ESCAPES}[\"']?[ ]?:[ ]?{ESCAPES}[\"']?[\w.-]{{0,64}}?(?:{STRONG}){TAIL}"
            rf"{ESCAPES}[\"']?,?(?:\s|\\{{1,7}}[nrt]){{0,20}}{ESCAPES}[\"']?value{ESCAPES}[\"']?[ ]?:[ ]?"
            rf"{ESCAPES}[\"']",
            r"[^\s\"'\\]{4,256}+",
            "",
        ),
        (
            "value:",
            rf"\bname:[ ]{{1,4}}[\w.-]{{0,64}}?(?:{STRONG}){TAIL}(?:\s|\\{{1,7}}[nrt]){{1,20}}value:[ ]",
            r"[^\s\"'\\]{4,256}+",
            "",
        ),
        (
            "value=",
            rf"\b(?:key|name)=[\"'][\w.:-]{{0,64}}?(?:{STRONG}){TAIL}[\"']\s{{1,8}}value=[\"']",
            r"[^\s\"'<>]{4,256}+",
            "",
        ),
        (
            "define(",
            rf"\bdefine\([ ]?[\"']\w{{0,64}}?(?:{STRONG}){TAIL}[\"'],[ ]{{0,4}}[\"']",
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
        ("</", rf"<[\w:.-]{{0,40}}(?:{STRONG}|{WEAK})>", r"[^<>\s]{4,512}+", "(?=</)"),
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
        (  # Go's and Oracle's, which have no scheme
            "@",
            r"(?<![\w:/.@-])[\w.-]{1,64}:",
            r"[^\s\"'`<>:@]{1,128}+",
            r"(?=@(?:tcp|unix)\()",
        ),
        (
            "oracle",
            r"\bjdbc:oracle:\w{1,8}:[\w.$-]{1,64}/",
            r"[^\s\"'`@/]{1,128}+",
            "(?=@)",
        ),
        (
            "sqlplus",
            r"\bsqlplus[ ](?:-\w{1,8}[ ]){0,4}[\w.$-]{1,64}/",
            r"[^\s\"'`@/]{1,128}+",
            "(?=@|\\s|\\Z)",
        ),
        (  # into what reads a password
            "echo",
            r"\becho[ ]{1,4}(?:-\w{1,3}[ ]{1,4})?[\"']?",
            r"[^\s\"'$|\\]{3,128}+",
            r"[\"']?[ ]{0,4}\|[ ]{0,4}(?:sudo[ ][^\n|;&]{0,80}?-[A-Za-z]{0,4}S\b"
            r"|[^\n|;&]{0,160}?--password-stdin"
            r"|(?:sudo[ ])?(?:chpasswd|passwd|smbpasswd)\b)",
        ),
        (
            "auth",
            r"(?:\bauth[ ]?=[ ]?|\b(?:HTTP)?(?:Basic|Digest)Auth)\([ ]?[\"'][^\"'\n]{1,128}[\"'],[ ]?[\"']",
            r"[^\"'\n\\]{5,128}+",
            "",
        ),
        (  # a verb of tests, too: a value of letters alone is none
            "pass",
            rf"(?<![a-z0-9_])pass{ESCAPES}[\"']?[ ]?(?:=>|[:=])[ ]?{ESCAPES}[\"']",
            r"(?=[^\s\d\"\'\\]{0,64}\d)(?=[^\sA-Za-z\"\'\\]{0,64}[A-Za-z])[^\s\"'\\]{6,256}+",
            "",
        ),
        (
            "pw",
            rf"(?<![a-z0-9_])pw{ESCAPES}[\"']?[ ]?[:=][ ]?{ESCAPES}[\"']?",
            r"(?=[^\s\d\"\'\\]{0,64}\d)(?=[^\sA-Za-z\"\'\\]{0,64}[A-Za-z])[^\s\"'\\]{6,256}+",
            "",
        ),
        (
            "pass=",
            r"(?<![a-z0-9_.-])pass=",
            r"(?=[^\s\d\"\'\\]{0,64}\d)(?=[^\sA-Za-z\"\'\\]{0,64}[A-Za-z])[^\s\"'\\]{8,256}+",
            "",
        ),
        (
            "password(",
            r"(?:set_?|with_?|\.)password\([ ]?@?[\"']",
            r"(?=[^\s\d\"\'\\]{0,64}\d)(?=[^\sA-Za-z\"\'\\]{0,64}[A-Za-z])[^\s\"'\\]{4,256}+",
            "",
        ),
        (
            "kty",
            rf"\"(?:d|p|q|dp|dq|qi|k){ESCAPES}\"\s{{0,4}}:\s{{0,4}}{ESCAPES}\"",
            r"[A-Za-z0-9_-]{20,2048}+",
            "",
        ),
    )
)

_SPACE = r"[ \t]{1,4}"
_TO_QUOTE = r"[^\"'`\n\\]{4,256}+"
_TO_BLANK = r"[^\s\"'$\\][^\s\"'\\]{3,512}+"
_ENTITY = r"(?:&quot;|&apos;|&#0?3[49];|&#x2[27];)"
_NAMED_PLACES = tuple(  # behind a name that says how secret it is
    (word, re.compile(f"(?i:{before})(?P<value>{value})"))
    for word, before, value in (
        (
            "set",
            rf"\b(?:setx|setenv|set[ ]{{1,4}}-[a-z]{{1,4}}){_SPACE}\w{{0,64}}?{NAME}{TAIL}{_SPACE}[\"']?",
            _TO_BLANK,
        ),
        (
            "env",
            rf"env(?:iron)?(?:\.\w{{1,12}})?\([ ]?[\"']\w{{0,64}}?{NAME}{TAIL}[\"'],\s{{0,4}}[\"']",
            _TO_QUOTE,
        ),
        (
            "env",
            rf"env[.\[][\"']?\w{{0,64}}?{NAME}{TAIL}[\"']?\]?[ ]{{0,2}}(?:\|\||\?\?|or)[ ]{{0,2}}[\"'`]",
            _TO_QUOTE,
        ),
        ("<key>", rf"<key>[\w .-]{{0,40}}?{NAME}{TAIL}</key>\s{{0,40}}<string>", r"[^<>\n]{4,512}+"),
    )
)
_BEHIND_NAME = re.compile(  # what is rarer than names: it is looked for, and then for a name before it
    rf"[ ]{{0,4}}(?::|=(?:&gt;)?)[ ]{{0,4}}{_ENTITY}(?P<entities>[^\s&\"'<>]{{4,512}}+)"
    r"|:[ ]{1,4}[|>][+-]?[ ]{0,4}(?:\n|\\{1,4}n)[ ]{1,40}"  # a block of YAML
    r"(?P<block>(?=[^\s\d]{0,64}\d)(?=[^\sA-Za-z]{0,64}[A-Za-z])[^\s\"'\\:]{4,512}+)(?!:)"
)
_ENDS_IN_NAME = re.compile(rf"{NAME}{TAIL}(?:{_ENTITY}|{ESCAPES}[\"']?)\Z")
_LONGEST_NAME = 80


def known_places(text: str) -> Iterator[Span]:
    """What stands there, as spans of the secret alone."""
    lowered = text.lower()
    for word, pattern in _KNOWN_PLACES:
        for match in pattern.finditer(text) if word in lowered else ():
            if not is_reference(match["value"]):
                yield _span(match)
    for word, pattern in _NAMED_PLACES:
        for match in pattern.finditer(text) if word in lowered else ():
            if quoted_is_secret(match["value"], strong=bool(match["strong"])):
                yield _span(match)
    for match in _BEHIND_NAME.finditer(text):
        name = _ENDS_IN_NAME.search(text[max(0, match.start() - _LONGEST_NAME) : match.start()])
        group = match.lastgroup or ""
        if name and quoted_is_secret(match[group], strong=bool(name["strong"])):
            start, end = match.span(group)
            yield Span(start, end, "credential", match.start() - len(name[0]))


def _span(match: re.Match[str]) -> Span:
    return Span(match.start("value"), match.end("value"), "credential", match.start())
