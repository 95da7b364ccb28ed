"""Places where a password or key stands without its name right before it, or behind a command of its own.

Not for: plain assignments, flags, headers and URLs (`credentials.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cursorbench.redaction.spans import Span
from cursorbench.redaction.words import ESCAPES, STRONG, TAIL, WEAK, is_reference

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
    )
)


def known_places(text: str) -> Iterator[Span]:
    """What stands there, as spans of the secret alone."""
    lowered = text.lower()
    for word, pattern in _KNOWN_PLACES:
        for match in pattern.finditer(text) if word in lowered else ():
            if not is_reference(match["value"]):
                yield Span(match.start("value"), match.end("value"), "credential", match.start())
