"""How simulated engineers say things: requests, answers, thanks, complaints. Data only.

Terse, as people are with an agent that sees the file. Slots: f function, g new name, old and new what
is replaced by what, verb the new operator as a verb, k module constant.
"""

from __future__ import annotations

OPERATOR = (
    "use {new} not {old} in {f}",
    "{f} should {verb}, not {old}",
    "replace {old} with {new} in {f}",
    "{old} -> {new} in {f}",
    "in {f} i want {new} instead of {old}",
    "{f}: {new} instead of {old}",
    "{f} has {old}, must {verb}",
    "change {old} to {new} in {f}",
    "wrong operator in {f}, {new} please, not {old}",
)
NUMBER = (
    "change {old} to {new} in {f}",
    "{f}: {old} -> {new}",
    "use {new} instead of {old} in {f}",
    "the {old} in {f} should be {new}",
    "{new}, not {old}, in {f}",
    "{f} needs {new} where it has {old}",
    "replace {old} with {new} in {f}",
    "make the {old} in {f} a {new}",
)
CONSTANT = (
    "set {k} to {new}",
    "{k} = {new}",
    "{k} should be {new}",
    "change {k} to {new}",
    "{k}: {old} -> {new}",
    "make {k} {new}",
    "{k} must be {new} now",
)
RENAME = (
    "rename {f} to {g}",
    "{f} -> {g}",
    "call {f} {g}",
    "{f} should be called {g}",
    "{g} is a better name for {f}",
    "new name for {f}: {g}",
)
RENAME_VARIABLE = (
    "in {f} rename {old} to {new}",
    "rename {old} to {new} in {f}",
    "{f}: call {old} {new}",
    "{old} should be called {new} in {f}",
)
VAGUE = (
    "{f} is off",
    "fix {f}",
    "{f} looks wrong",
    "make {f} better",
    "adjust {f}",
    "{f} needs work",
    "tune {f} a bit",
    "something is wrong in {f}",
    "{f} is not what we want",
    "clean up {f}",
)
BEYOND: dict[str, tuple[str, ...]] = {
    "docstring": ("add a docstring to {f}", "document {f}", "{f} needs a docstring"),
    "hints": ("add type hints to {f}", "type hints for {f}", "{f} needs type hints"),
    "none": ("{f} must return None for None", "handle None in {f}", "{f} breaks on None"),
    "async": ("make {f} async", "{f} should be async"),
    "raise": ("{f} should raise on negative input", "raise ValueError in {f} if negative"),
}

THANKS = (
    "thanks",
    "great, thanks",
    "perfect",
    "works now",
    "nice",
    "good",
    "looks good",
    "that is it, thank you",
    "ok thanks",
    "yes, exactly",
)
MOVING_ON = (
    "ok, next one",
    "now the tests",
    "good, let us commit this",
    "next file",
    "ok, moving on",
    "now the docs",
)
COMPLAINTS = (
    "still wrong",
    "no, that is not it",
    "that is wrong",
    "this does not work",
    "you changed the wrong thing",
    "not what i asked for",
    "still broken",
    "nope, undo that",
    "why did you do that?",
    "that broke it",
    "wrong again",
    "no no no",
    "please read what i wrote",
    "that did nothing",
)
ABOUT_JUNK = (
    "what is this?",
    "that is garbage",
    "i see raw json, this is broken",
    "your answer is broken",
    "this makes no sense",
    "that did not do anything",
)
ANNOYED = (
    "i just told you",
    "just do it",
    "stop asking",
    "it is all in my message",
    "why do you ask? do it",
    "you have the file, do it",
)
REPEATS = ("no, {request}", "i said {request}", "again: {request}", "{request}!!", "wrong. {request}")
TRACE = 'Traceback (most recent call last):\n  File "{path}", line {line}, in <module>\n{error}'
SHRUGS = ("never mind", "ok, i will do it myself", "leave it then", "fine, skip it")
