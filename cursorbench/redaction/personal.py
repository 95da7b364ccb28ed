"""E-mail addresses, and the user's part of home paths. Not for: names of people in running text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cursorbench.redaction.spans import Span

_LETTER = r"\\{1,4}u(?!00[0-7])[0-9A-Fa-f]{4}"  # what is no ASCII, as JSON escapes it
_ESCAPED = rf"{_LETTER}|%[89A-Fa-f][0-9A-Fa-f]"  # and URLs
_DOMAIN = re.compile(
    r"(?:[@＠]|%(?:25)?40|\\{1,4}u0040|&(?:#64|#[xX]40|commat);)"
    rf"(?P<domain>(?:(?:\w|{_ESCAPED})(?:[\w-]|{_ESCAPED}){{0,62}}\.){{1,8}}"
    rf"(?!\d)(?:\w|{_ESCAPED})(?:[\w-]|{_ESCAPED}){{1,62}})(?![\w-])"
)
_LOCAL = re.compile(
    rf"(?:(?<!\w)[DLOdlo]['’](?=\w))?(?:[\w.+%-]|{_ESCAPED}){{1,64}}\Z"
    r"|\\{0,4}\"[^\"\\\n]{1,62}\\{0,4}\"\Z"
)
_END_OF_ESCAPE = re.compile(r"\A(?:[nrt]|u00[0-7][0-9A-Fa-f])")  # of a newline, of what JSON may escape
_NO_BEGIN = ".%+-"  # a line that a diff adds: +@pytest.fixture, +git@github.com
_VERSION = re.compile(r"\d+\.\d|\dx\.(?:avif|gif|jpe?g|png|svg|webp)\Z")  # package@1.2.3-rc.next, logo@2x.png
_CALLED = re.compile(r"(?:\.\w{1,64}){0,8}\(")  # a product of matrices: q@k.transpose(-2, -1)
_HOST = re.compile(  # but not ada@corp.com(work); of two letters some are methods
    r"\.(?:com|org|net|edu|gov|info|biz|dev|app|example|test|(?!to|l[te]|g[te]|eq|ne|mm|mv)[a-z]{2})\Z",
    re.IGNORECASE,
)
_NO_PERSON = frozenset({"git", "hg", "svn", "bzr", "noreply", "no-reply", "donotreply"})  # as git@github.com

_CHARACTER = r"[^\s/\\:*?\"'<>|\[\](){},;`$&]"
_NAME = (
    rf"(?P<name>(?:{_CHARACTER}|\\{{1,2}}[ ](?=\w)|{_LETTER}){{1,64}})"  # with blanks as a shell escapes them
)
# Where a path begins: not within another one; behind \n as JSON has it; behind an option, as -v/home/...
_ALIAS = r"(?<!(?:from|port) [\"']@)(?<!\([\"']@)"  # a folder of the sources: import x from "@/home/x"
_BEGINS = (
    rf"(?:(?<![\w.~\]-]){_ALIAS}|(?<=\\[nrt])|(?<=\\u00[0-7][0-9A-Fa-f])|(?<=^-[A-Za-z])"
    r"|(?<=[\s\"'`=,(\[]-[A-Za-z])|(?<=\\[nrt]-[A-Za-z]))"
)
_DISK = (  # where homes of many people lie on machines that share them
    r"(?:/(?:mnt|media|net|nfs|gpfs|lustre|beegfs|ceph|cephfs|cluster|hpc)\d{0,3}(?:/[\w.-]{1,32})?"
    r"|/(?:data|disk|scratch|work|storage|vol|export|raid|ssd|nvme|hdd|nas|fs)\d{0,3})"
)
_SYSTEMS = r"/System/Volumes/Data|/host(?:fs)?|/rootfs|/proc/\w{1,16}/root|/mnt/wslg/distro"
_ABOVE = rf"(?:/var|/usr|/srv|/private|/(?:cygdrive/)?[a-z]|/Volumes/[^/\n:\"'`]{{1,32}}|{_DISK}|{_SYSTEMS})?"
_BLANK = r"(?:\\{0,2}[ ]|%20)"
_SETTINGS = rf"(?:Documents{_BLANK}and{_BLANK}Settings|DOCUME~1)"  # where Windows had homes before Vista
# between a home and who lives there, where many do: /home/staff/ada, /home/a/ada
_FLOOR = (
    r"(?>(?:(?:users|staff|students|faculty|people|guests)/(?=[\w\[])"
    r"|(?P<initial>[a-z])/(?=(?P=initial)\w|\[redacted))?)"
)
_HOME = rf"{_BEGINS}{_ABOVE}/(?:home\d{{0,2}}|Users|{_SETTINGS})/{{1,2}}{_FLOOR}"
_SLASH = r"\\{1,3}/"
_HOMES = (
    re.compile(_HOME + _NAME),
    re.compile(  # as some JSON has it, a stroke before each slash
        rf"\\(?:(?<![\w.~\]\\-]\\)|(?<=\\[nrt]\\))\\{{0,2}}/(?:(?:mnt|cygdrive){_SLASH})?"
        rf"(?:(?:[a-z]|var|usr|srv|private|data|export){_SLASH})?(?:home\d{{0,2}}|Users){_SLASH}{_NAME}"
    ),
    re.compile(rf"{_BEGINS}/(?:run/media|var/(?:spool/)?mail|var/spool/cron/crontabs)/{_NAME}"),
    re.compile(rf"{_BEGINS}{_DISK}/users/{_NAME}(?=/)"),  # without the end it may be a route of some API
    *(  # between quotes a name with blanks ends where the next folder begins
        re.compile(
            rf"{quote}(?:file://)?{_HOME}(?P<name>{_CHARACTER}{{1,32}}(?: {_CHARACTER}{{1,32}}){{1,3}})"
            rf"/(?=[^{quote}\n]{{0,1024}}{quote})"
        )
        for quote in "\"'`"
    ),
    re.compile(  # of somebody from a directory service: the domain goes too
        rf"{_HOME}(?P<name>(?:[\w-]{{1,32}}\.){{1,4}}(?:local|lan|corp|int(?:ra|ern|ernal)?|ad|domain)/"
        rf"{_CHARACTER}{{1,64}})"
    ),
    re.compile(  # on a server, as Windows names it; half as many strokes follow as it begins with
        r"(?i)(?<![\w.:)\]}\\~-])(?P<half>\\{1,4})(?P=half)(?!\\)[\w.-]{1,64}(?P=half)(?!\\)"
        rf"(?:[\w.-]{{1,32}}\$?(?P=half)(?!\\))?(?:Users|homes?|profiles)\$?(?P=half)(?!\\){_NAME}"
    ),
    re.compile(  # a Linux home as Windows sees it
        rf"(?i)[\\/]{{2}}wsl(?:\$|\.localhost)[\\/]{{1,4}}[^\s\\/]{{1,64}}[\\/]{{1,4}}home[\\/]{{1,4}}{_NAME}"
    ),
    re.compile(
        r"(?i)(?:(?<![a-z0-9])|(?<=\\[nrt]))[a-z](?::|%3A)[\\/]{1,8}"
        rf"(?:Users|{_SETTINGS})"
        rf"[\\/]{{1,8}}(?P<name>(?:[^\s\\/:*?\"<>|]|{_LETTER})"
        rf"(?:(?:[^\n\\/:*?\"<>|]|{_LETTER}){{0,63}}(?=\\)|(?:[^\s\\/:*?\"'<>|]|{_LETTER}){{0,63}}))"
    ),
    re.compile(  # a folder of another machine, as editors name it
        rf"(?:vscode-remote|vscode-vfs|vscode|cursor|windsurf|zed|sftp|ssh|scp|file)://[^\s/\"'`]{{1,128}}"
        rf"/(?:home|Users)/{_NAME}"
    ),
    re.compile(r"(?i)(?:%2F|%5C)(?:home|Users)(?:%2F|%5C)(?P<name>[\w.-]{1,64})"),  # a path in a URL
    re.compile(  # a path made a folder name, as Claude Code's projects are
        r"-(?:(?<![\w-]-)|(?<=\\[nrt]-))(?P<project>(?<=projects[\\/]-)|(?<=projects\\\\-))?"
        r"(?:mnt-[a-z]-|var-|private-|data-|export-)?(?:Users|home)-(?P<name>\w{1,64}+)(?(project)|(?=-))"
    ),
    re.compile(
        r"--(?:(?<=(?<![\w-])[A-Za-z]--)|(?<=\\[nrt][A-Za-z]--))(?:Users|Documents-and-Settings)-"
        r"(?P<name>\w{1,64})"
    ),
)
_NOBODY = frozenset({"shared", "public", "default", "default user", "all users", "...", "..", ".", "*", "~"})


def emails(text: str) -> Iterator[Span]:
    """Addresses. The part before the @ is looked for backwards from it, so that the time is linear."""
    for match in _DOMAIN.finditer(text):
        called = _CALLED.match(text, match.end()) and not _HOST.search(match["domain"])
        if called or _VERSION.match(match["domain"]):
            continue
        start = match.start()
        local = _LOCAL.search(text[max(0, start - 64) : start])
        name = local[0].lstrip(_NO_BEGIN) if local else ""
        if text[max(0, start - len(name) - 1) : start - len(name)] == "\\":
            name = _END_OF_ESCAPE.sub("", name).lstrip(_NO_BEGIN)
        if name and name.lower() not in _NO_PERSON:
            yield Span(start - len(name), match.end(), "email", start - len(name))


def home_paths(text: str) -> Iterator[Span]:
    """The name in /home/NAME, /Users/NAME, C:\\Users\\NAME; also on shared disks, and as JSON has them."""
    for pattern in _HOMES:
        for match in pattern.finditer(text):
            name = match["name"].rstrip(".") or match["name"]
            if name.lower() not in _NOBODY:
                start = match.start("name")
                yield Span(start, start + len(name), "home_path", match.start())
