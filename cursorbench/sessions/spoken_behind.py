"""Where what a client put behind a person's words begins. For `spoken`.

Kilo of 2026 tells the state of the editor there, and Aider repeats the rules of its edit format at the end
of each request's last message. Not for: what stands around a tag with the words.

Source: requests of Kilo 7.7 and Aider 0.86 (`coders/*_prompts.py`, `system_reminder`).
"""

from __future__ import annotations

_EDITOR = "<environment_details>"
_EDITOR_END = "</environment_details>"
_RULES = tuple(
    f"\n\n{words}"
    for words in (
        "# *SEARCH/REPLACE block* Rules:\n\nEvery *SEARCH/REPLACE block* must use this format:\n",
        "# V4A Diff Format Rules:\n\nYour entire response containing the patch MUST start with ",
        "# File editing rules:\n\nReturn edits similar to unified diffs that `diff -U0` would produce.\n",
        "To suggest changes to a file you MUST return the entire content of the updated file.\n",
    )
)


def behind(text: str) -> int:
    """The place in the text; its length where there is nothing of a client's behind it."""
    if text.rstrip().endswith(_EDITOR_END):
        place = text.rfind(_EDITOR)
        return place if place > 0 and text[:place].endswith("\n") else len(text)
    return max((place for place in map(text.rfind, _RULES) if place >= 0), default=len(text))
