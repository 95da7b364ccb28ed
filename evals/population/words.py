"""The words simulated engineers and their code are made of. Data only.

Kept small on purpose: a model of a million parameters has to know every word. What is new in a
held-out request is the combination, not the vocabulary.
"""

from __future__ import annotations

# kind of software -> (nouns for parameters and names, verbs for function names)
DOMAINS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "shop": (
        ("price", "count", "tax", "fee", "cost", "stock", "order", "item", "cart", "sale"),
        ("add", "apply", "get", "charge", "refund", "pack"),
    ),
    "game": (
        ("score", "level", "speed", "damage", "armor", "coin", "power", "life", "bonus", "shield"),
        ("add", "move", "hit", "spawn", "grant", "drain"),
    ),
    "bank": (
        ("amount", "balance", "loan", "rent", "saving", "credit", "debt", "share", "fund", "interest"),
        ("pay", "move", "book", "charge", "lend", "split"),
    ),
    "lab": (
        ("mass", "force", "volume", "heat", "energy", "dose", "sample", "angle", "depth", "charge"),
        ("measure", "scale", "mix", "cool", "test", "split"),
    ),
    "page": (
        ("width", "height", "margin", "indent", "column", "row", "font", "border", "image", "title"),
        ("fit", "scale", "wrap", "pad", "draw", "trim"),
    ),
    "fleet": (
        ("distance", "fuel", "load", "cargo", "trip", "toll", "weight", "range", "wheel", "route"),
        ("plan", "fill", "move", "book", "track", "park"),
    ),
}
LIST_NAMES = ("items", "rows", "parts", "values")
LOOP_NAMES = ("x", "v", "e")
RESULT_NAMES = ("out", "total", "result", "acc")
CONSTANT_NAMES = ("LIMIT", "RATE", "BASE", "FACTOR", "OFFSET", "STEP")

ARITHMETIC = ("+", "-", "*", "//")
COMPARISON = ("<", "<=", ">", ">=", "==", "!=")
AUGMENTED = ("+=", "-=", "*=")

# how people say an operator: as a noun ("use minus") and as a verb ("should subtract")
OPERATOR_WORDS: dict[str, tuple[str, str]] = {
    "+": ("plus", "add"),
    "-": ("minus", "subtract"),
    "*": ("times", "multiply"),
    "//": ("floor division", "divide"),
    "<": ("less than", "be below"),
    "<=": ("at most", "be at most"),
    ">": ("more than", "be above"),
    ">=": ("at least", "be at least"),
    "==": ("equal", "be equal"),
    "!=": ("not equal", "differ"),
    "+=": ("plus", "add"),
    "-=": ("minus", "subtract"),
    "*=": ("times", "multiply"),
}
