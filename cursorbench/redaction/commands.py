"""Passwords on command lines: what stands behind an option of a program that takes one there.

Not for: options whose names say it, as `--password` (`credentials.py`); other places (`places.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cursorbench.redaction.spans import Span, to_quote
from cursorbench.redaction.words import is_reference

_BETWEEN = r"[^\n|;&\"`\\]{0,160}?[ \t]"  # from the program to the option
_QUOTE = r"(?P<quote>[\"']?)"
_ARGUMENT = r"[^\s\"'\\-][^\s\"'\\]{2,128}+"
_PART = r"[^\s\"'`@/]{1,128}+"  # of an address
_COMMANDS = tuple(  # a word that is always there, what comes before the password, it, what comes after
    (word, re.compile(f"(?i:{before})(?P<value>{value}){after}"))
    for word, before, value, after in (
        ("pass:", rf"(?<![\w-])-pass(?:in|out)?[ ]{{1,4}}{_QUOTE}pass:", r"[^\s\"']{3,128}+", ""),
        ("pass", rf"(?<![\w-])-(?:store|key|src|dest|dst)pass[ ]{{1,4}}{_QUOTE}", _ARGUMENT, ""),
        ("sshpass", rf"\bsshpass[ \t]{{1,4}}-p[ \t]{{0,4}}{_QUOTE}", r"[^\s\"'\\]{3,128}+", ""),
        (
            "-p",
            rf"\b(?:mysql(?:dump|admin|import|show)?|mariadb(?:-dump)?)\b{_BETWEEN}-p{_QUOTE}",
            r"[^\s\"'\\=][^\s\"'\\]{2,128}+",
            "",
        ),
        (
            "login",
            r"\b(?:docker|podman|nerdctl|buildah|skopeo|oras|helm[ ]registry|az|oc)[ ]login\b"
            rf"{_BETWEEN}-p[ \t]{{1,4}}{_QUOTE}",
            _ARGUMENT,
            "",
        ),
        (
            "mongo",
            rf"\bmongo(?:sh|dump|restore|export|import)?\b{_BETWEEN}-p[ \t]{{1,4}}{_QUOTE}",
            _ARGUMENT,
            "",
        ),
        ("redis-cli", rf"\bredis-cli\b{_BETWEEN}-a[ \t]{{1,4}}{_QUOTE}", _ARGUMENT, ""),
        ("zip", rf"\b(?:un)?zip\b{_BETWEEN}(?-i:-P)[ \t]{{1,4}}{_QUOTE}", _ARGUMENT, ""),
        ("7z", rf"\b7z[az]?\b{_BETWEEN}(?-i:-p){_QUOTE}", _ARGUMENT, ""),
        ("openssl", rf"\bopenssl\b{_BETWEEN}-k[ \t]{{1,4}}{_QUOTE}", _ARGUMENT, ""),
        (
            "smb",
            rf"\b(?:smbclient|smbget|rpcclient)\b{_BETWEEN}-U[ \t]{{0,4}}{_QUOTE}[\w.@-]{{1,64}}%",
            _ARGUMENT,
            "",
        ),
        ("net use", r"\bnet[ ]use\b[^\n|;&\"`]{0,160}?/user:\S{1,64}[ ]", _ARGUMENT, ""),
        ("gh secret", rf"\bgh[ ]secret[ ]set\b{_BETWEEN}(?:-b|--body)[ =]{_QUOTE}", _ARGUMENT, ""),
        (  # of httpie
            "http",
            r"(?<![\w/.-])(?:https?|xh)[ ](?:[^\n|;&\"`\\]{0,80}?[ ])?(?:-a|--auth)[ =][^\s:\"'$]{1,64}:",
            _ARGUMENT,
            "",
        ),
        ("sqlplus", r"\bsqlplus[ ](?:-\w{1,8}[ ]){0,4}[\w.$-]{1,64}/", _PART, "(?=@|\\s|\\Z)"),
        ("-p", rf"\b(?:sqlcmd|bcp)\b{_BETWEEN}(?-i:-P)[ \t]{{0,4}}{_QUOTE}", _ARGUMENT, ""),
        (
            "htpasswd",  # with -n there is no file
            r"\bhtpasswd[ ]-(?:(?=\w{0,7}n)\w{0,7}b\w{0,7}|(?!\w{0,7}n)\w{0,7}b\w{0,7}[ ]\S{1,128})"
            rf"[ ][\w.@-]{{1,64}}[ ]{_QUOTE}",
            _ARGUMENT,
            "",
        ),
        ("nmcli", rf"\bnmcli\b{_BETWEEN}password[ ]{_QUOTE}", _ARGUMENT, ""),
        (  # into what reads a password, or keeps it
            "echo",
            rf"\becho[ ]{{1,4}}(?:-\w{{1,3}}[ ]{{1,4}})?{_QUOTE}",
            r"[^\s\"'|\\]{3,128}+",
            r"[\"']?[ ]{0,4}\|[ ]{0,4}(?:sudo[ ][^\n|;&]{0,80}?-[A-Za-z]{0,4}S\b"
            r"|[^\n|;&]{0,160}?--(?:password-stdin|with-token)"
            r"|(?:(?:npx|pnpm|yarn|bunx)[ ])?(?:wrangler|gh|docker|podman|gcloud|fly(?:ctl)?)[ ]"
            r"[^\n|;&]{0,40}?\bsecrets?[ ]"
            r"|vercel[ ]env[ ]add\b|(?:sudo[ ])?(?:chpasswd|passwd|smbpasswd)\b)",
        ),
    )
)


def on_command_lines(text: str, lowered: str) -> Iterator[Span]:
    """Spans of the passwords alone. `lowered` is the text in small letters."""
    for word, pattern in _COMMANDS:
        for match in pattern.finditer(text) if word in lowered else ():
            if not is_reference(match["value"]):
                start, end = match.span("value")
                quote = match.groupdict().get("quote") or ""
                yield Span(start, to_quote(text, quote, start, end), "credential", match.start())
