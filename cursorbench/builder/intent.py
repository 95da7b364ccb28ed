"""What kind of work a task is: feature, refactor, debug or investigate; by plain rules, no model.

In this order, the first that says something decides:

1. A conventional prefix of the commit: `feat` is feature, `fix` debug, `refactor` and `perf` refactor.
2. The first word that is in one of the lists below: in the instruction's first line, then in its first 300
   characters, then in the commit's subject. Names of code do not count: `rename=` renames nothing.
3. A question is `investigate`.
4. The change: twice as many lines added as deleted say feature, else debug.

The lists are English verbs and nouns of the trade; other languages come out by rules 1 and 4.
"""

from __future__ import annotations

import re
from typing import Final

from cursorbench.tasks.task import Intent

_PREFIX: Final = re.compile(
    r"^\s*(feat|feature|fix|bugfix|hotfix|refactor|refact|perf)(\([^)]*\))?!?:", re.IGNORECASE
)
_BY_PREFIX: Final[dict[str, Intent]] = {
    "feat": "feature",
    "feature": "feature",
    "perf": "refactor",
    "fix": "debug",
    "bugfix": "debug",
    "hotfix": "debug",
    "refactor": "refactor",
    "refact": "refactor",
}
_WORDS: Final[dict[Intent, str]] = {
    "investigate": (
        "investigate|look into|find out|figure out|why (?:does|do|is|are|did)|what causes|diagnose|track down"
    ),
    "refactor": (
        r"refactor\w*|renam\w+|clean(?:ed|s)? ?up|simplif\w+|extract\w*|dedup\w*|reorgani[sz]\w+"
        r"|restructur\w+|split\w*|mov(?:e|es|ed|ing)|consolidat\w+|moderni[sz]\w+"
        r"|rewrit\w+|flatten\w*|isolat\w+|unif(?:y|ies|ied)"
    ),
    "debug": (
        r"fix\w*|bugs?|crash\w*|broken|wrong\w*|fail(?:s|ed|ing|ure|ures)?|error\w*|exceptions?|regressions?"
        r"|incorrect\w*|don'?t|doesn'?t|does not|can'?t|cannot|no longer|avoid\w*|prevent\w*|guard\w*"
        r"|correct(?:s|ed|ly)?|leak\w*|race|deadlock\w*|handl(?:e|es|ed|ing)|preserv\w+|reject\w*|accept\w*|ensur\w+|escap\w+"
        r"|respect\w*|instead of|keep\w*"
    ),
    "feature": (
        r"add(?:s|ed|ing)?|implement\w*|support\w*|introduc\w+|allow\w*|creat\w+|new|enabl\w+|mak(?:e|es|ing)|provid\w+"
        r"|expos\w+|deprecat\w+|improv\w+|optimi[sz]\w+|build|write|extend\w*|updat\w+|change\w*|drop\w*|remov\w+"
    ),
}
_ANY: Final = re.compile(
    "|".join(rf"(?P<{name}>\b(?:{words})\b)" for name, words in _WORDS.items()), re.IGNORECASE
)
_CODE: Final = re.compile(r"`[^`]*`|\S*[_(=./][\w(=./]\S*")
_HEAD = 300  # characters of an instruction in which it says what it wants


def intent(instruction: str, subject: str, *, added: int, deleted: int) -> Intent:
    """The kind of a task.

    Args:
        instruction: what the user said; subject: of the kept commit; added, deleted: lines of its source.
    """
    if prefix := _PREFIX.match(subject):
        return _BY_PREFIX[prefix[1].lower()]
    for raw in (instruction.partition("\n")[0], instruction[:_HEAD], subject):
        text = _CODE.sub(" ", raw[:_HEAD])
        if found := _ANY.search(text):
            return _named(found)
    if "?" in instruction:
        return "investigate"
    return "feature" if added > 2 * deleted else "debug"


def _named(found: re.Match[str]) -> Intent:
    name = found.lastgroup
    for one in _WORDS:
        if one == name:
            return one
    raise AssertionError(name)
