"""Places where a password or key stands without its name right before it: formats, calls of source code.

Not for: plain assignments, flags, headers and URLs (`credentials.py`), command lines (`commands.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cursorbench.redaction.commands import on_command_lines
from cursorbench.redaction.spans import Span
from cursorbench.redaction.words import ESCAPES, NAME, STRONG, TAIL, WEAK, is_reference, quoted_is_secret

_GAP = r"(?:\s|\\{1,2}[nrt]){1,8}"
_PLACE = (
    r"(?:server|data source|host|address|uid|user(?: id)?|database|initial catalog|port|accountname|driver)"
)
_PART = r"[ ]?[\w ]{1,40}=[^;\n\"'\\]{0,128}"
_ARGUMENT = r"[^\s\"'\\$-][^\s\"'\\]{2,128}+"
_MIXED = r"(?=[^\s\d\"\'\\]{0,64}\d)(?=[^\sA-Za-z\"\'\\]{0,64}[A-Za-z])"  # letters and digits both
_QUOTE = rf"{ESCAPES}[\"'`]"
_TEXT = rf"(?:[^\n\"',]{{1,64}}|{ESCAPES}[\"'][^\"'\n]{{0,256}}[\"'])"  # an argument of a call
_KNOWN_PLACES = tuple(  # where a password stands without a name right before it; a word that is always there
    (word, re.compile(f"(?i:{before})(?P<value>{value}){after}"))
    for word, before, value, after in (
        (
            "login",
            rf"\b(?:machine{_GAP}\S{{1,128}}|default){_GAP}login{_GAP}\S{{1,128}}{_GAP}password{_GAP}",
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
        (  # of ODBC and JDBC: anything but a name in braces
            "={",
            r"\b(?:pwd|password)=\{",
            r"(?=[\w.-]{0,64}[^\w.{}\s-])(?>(?:[^{}\n\"\\]|\}\}){3,128})",
            r"(?=\}(?:[;\"'\s]|\Z))",
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
        (  # of Gradle
            "password",
            r"(?:^|[\n\r]|\\n)[ \t]{0,40}(?:\w{0,40}\.)?\w{0,20}password[ ]\\{0,3}[\"']",
            _MIXED + r"[^\s\"'\\]{4,128}+",
            r"(?=\\{0,3}[\"'][ \t]{0,4}(?:[\n\r]|\\n|\Z))",
        ),
        (  # of Terraform's outputs and states
            "value",
            rf"\"[\w.-]{{0,64}}?(?:{STRONG}){TAIL}{ESCAPES}\"\s{{0,4}}:\s{{0,4}}\{{[^{{}}]{{0,200}}?{ESCAPES}\"value{ESCAPES}\""
            rf"\s{{0,4}}:\s{{0,4}}{ESCAPES}\"",
            r"[^\n\"\\]{4,512}+",
            "",
        ),
        ("</", rf"<[\w:.-]{{0,40}}(?:{STRONG}|{WEAK})>", r"[^<>\s]{4,512}+", "(?=</)"),
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
            "auth",
            r"(?:\bauth[ ]?=[ ]?|\b(?:HTTP)?(?:Basic|Digest)Auth)\([ ]?[\"'][^\"'\n]{1,128}[\"'],[ ]?[\"']",
            r"[^\"'\n\\]{5,128}+",
            "",
        ),
        *(  # calls that take a name and a password
            (word, rf"{call}\([ ]?{before}{_QUOTE}[^\"'\n]{{1,128}}[\"'],\s?{_QUOTE}", _MIXED + _ARGUMENT, "")
            for word, call, before in (
                ("credential", r"\bNetworkCredential", ""),
                ("login", r"\.login", ""),
                ("auth", r"\bdb\.auth", ""),
                ("connect", r"(?:\bgetConnection|\bmysqli?_connect|\bDBI->connect)", rf"{_TEXT},\s?"),
                ("pdo", r"\bnew[ ]PDO", rf"{_TEXT},\s?"),
                ("mysqli", r"\bnew[ ]mysqli", rf"{_TEXT},\s?"),
            )
        ),
        (  # of expect and pexpect, behind what the other side asks
            "send",
            r"assword[^\"'{}\n\\]{0,16}\\{0,3}[\"'}]\)?(?:[;{}\s]|\\{1,4}[rnt]){1,40}"
            r"(?:\w{1,20}\.)?send(?:line)?(?:[ ](?:--[ ])?|\()\\{0,3}[\"'{]",
            r"[^\s\"'{}$\\]{3,128}+",
            "",
        ),
        ("secretstr", rf"\bSecretStr\([ ]?{_QUOTE}", r"[^\s\"'\\]{4,256}+", ""),
        (
            "value=",
            r"\btype=\\{0,3}[\"']password\\{0,3}[\"'][^<>\n]{0,200}?\bvalue=\\{0,3}[\"']",
            r"[^\s\"'<>\\]{4,256}+",
            "",
        ),
        (
            "form-data",
            rf"\bname={ESCAPES}\"[\w.\[-]{{0,64}}?(?:{STRONG}){TAIL}\]?{ESCAPES}\""
            r"(?:\r?\n|(?:\\{1,4}r)?\\{1,4}n){2}",
            r"[^\s\\]{3,256}+",
            "",
        ),
        (  # of Terraform
            "variable",
            rf"\bvariable[ ]{ESCAPES}\"[\w-]{{0,64}}?(?:{STRONG}){TAIL}{ESCAPES}\"\s{{0,4}}"
            rf"\{{[^{{}}]{{0,400}}?\bdefault\s{{0,8}}=\s{{0,4}}{ESCAPES}\"",
            r"[^\"\n\\]{4,256}+",
            "",
        ),
        ("psk", rf"(?<![\w-])psk[ ]?[=:][ ]?{ESCAPES}[\"']?", _MIXED + r"[^\s\"'\\]{8,64}+", ""),
        (  # .pgpass
            ":5432:",
            r"(?<![\w:.-])[\w.*-]{1,128}:5432:[\w.*-]{1,64}:[\w.*-]{1,64}:",
            r"[^\s\"'\\:]{3,128}+",
            "",
        ),
        *(
            (
                word,
                rf"{word}{ESCAPES}[\"']?[ ]{{0,4}}[:=][ ]{{0,4}}{ESCAPES}[\"'`]?",
                r"(?:[a-z]{3,8}[ ]){11,23}[a-z]{3,8}(?![\w ])",
                "",
            )
            for word in ("mnemonic", "phrase")  # of a wallet
        ),
        (  # a verb of tests, too: a value of letters alone is none
            "pass",
            rf"(?<![a-z0-9_])pass{ESCAPES}[\"']?[ ]?(?:=>|[:=])[ ]?{ESCAPES}[\"']",
            _MIXED + r"[^\s\"'\\]{6,256}+",
            "",
        ),
        (
            "pw",
            rf"(?<![a-z0-9_])pw{ESCAPES}[\"']?[ ]?[:=][ ]?{ESCAPES}[\"']?",
            _MIXED + r"[^\s\"'\\]{6,256}+",
            "",
        ),
        (
            "pass",
            r"(?:(?<![a-z0-9_.-])pass=|(?:^|\n)[ \t]{0,8}pass[ ]=[ ])",
            _MIXED + r"[^\s\"'\\]{8,256}+",
            "",
        ),
        (
            "password(",
            r"(?:set_?|with_?|\.|=[ ]?)password\([ ]?@?[\"']",
            _MIXED + r"[^\s\"'\\]{4,256}+",
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
_ENTITY = r"(?:&quot;|&apos;|&#0?3[49];|&#x2[27];|\\{1,4}u002[27])"  # of XML; of JSON, as .NET writes it
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
        ("define(", rf"\bdefine\([ ]?{_QUOTE}\w{{0,64}}?{NAME}{TAIL}{_QUOTE},[ ]{{0,4}}{_QUOTE}", _TO_QUOTE),
        (  # of a Dockerfile, as it was written once
            "env",
            rf"(?:^|\n|\\n)(?-i:ENV|ARG)[ ]{{1,4}}\w{{0,64}}?{NAME}{TAIL}[ ]{{1,4}}[\"']?",
            _TO_BLANK,
        ),
        (  # props.put("password", "..."), page.fill("#password", "...")
            "",
            rf"\.(?:put|set\w{{0,24}}|add\w{{0,16}}|append|fill|type|header)\([ ]?{_QUOTE}[^\"'\n]{{0,40}}?"
            rf"{NAME}{TAIL}{ESCAPES}[\]\"']{{1,3}},\s{{0,4}}{_QUOTE}",
            _MIXED + r"[^\s\"'`\\]{6,256}+",
        ),
        (  # of Kubernetes and the like: a name and its value, each by itself
            "value",
            rf"\bname{ESCAPES}[\"']?[ ]?:[ ]{{0,4}}{ESCAPES}[\"']?[\w.-]{{0,64}}?{NAME}{TAIL}"
            rf"{ESCAPES}[\"']?,?(?:\s|\\{{1,7}}[nrt]){{0,20}}{ESCAPES}[\"']?value{ESCAPES}[\"']?[ ]?:[ ]?"
            rf"{_QUOTE}",
            _TO_QUOTE,
        ),
        (
            "value:",
            rf"\bname:[ ]{{1,4}}[\w.-]{{0,64}}?{NAME}{TAIL}(?:\s|\\{{1,7}}[nrt]){{1,20}}value:[ ]",
            r"[^\s\"'\\]{4,256}+",
        ),
        (
            "value=",
            rf"\b(?:key|name)=[\"'][\w.:-]{{0,64}}?{NAME}{TAIL}[\"']\s{{1,8}}value=[\"']",
            r"[^\s\"'<>]{4,256}+",
        ),
        ("<key>", rf"<key>[\w .-]{{0,40}}?{NAME}{TAIL}</key>\s{{0,40}}<string>", r"[^<>\n]{4,512}+"),
    )
)
_BEHIND_NAME = re.compile(  # what is rarer than names: it is looked for, and then for a name before it
    rf"[ ]{{0,4}}(?::|=(?:&gt;)?)[ ]{{0,4}}{_ENTITY}(?P<entities>(?>(?:(?!{_ENTITY})[^\s&\"'<>]){{4,512}}))"
    r"|:[ ]{1,4}[|>][+-]?[ ]{0,4}(?:\n|\\{1,4}n)[ ]{1,40}"  # a block of YAML
    r"(?P<block>(?=[^\s\d]{0,64}\d)(?=[^\sA-Za-z]{0,64}[A-Za-z])[^\s\"'\\:]{4,512}+)(?!:)"
    rf"|\|[ ]{{0,20}}`?(?P<cell>{_MIXED}[^\s|`()\"'\\]{{8,256}}+)`?[ ]{{0,40}}\|"  # the next cell of a table
    rf"|\.(?i:fill|type|send_?keys|set_?value|press_?sequentially)\([ ]?{_QUOTE}"  # typed into a field
    rf"(?P<typed>{_MIXED}[^\s\"'`\\]{{6,256}}+)"
)
_ENDS_IN_NAME = re.compile(rf"{NAME}{TAIL}(?:{_ENTITY}|{ESCAPES}[\"'`*\]]{{0,3}}\){{0,2}}[ ]{{0,20}})\Z")
_LONGEST_NAME = 80


def known_places(text: str) -> Iterator[Span]:
    """What stands there, as spans of the secret alone."""
    lowered = text.lower()
    yield from on_command_lines(text, lowered)
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
