"""What Gemini CLI and its kin put under the role `user` themselves. For `automatic`.

Since May 2026 its chats have these as messages, too. Sources: google-gemini/gemini-cli (core/client.ts,
utils/environmentContext.ts, utils/fastAckHelper.ts, utils/approvalModeUtils.ts; useExecutionLifecycle.ts of
its terminal). Not for: what a person tells it while it works (`steered.py`).
"""

from __future__ import annotations

from cursorbench.sessions.items import Automatic

CONTEXT = (
    "Here is the user's editor context as a JSON object. This is for your information only.",
    "Here is a summary of changes in the user's editor context, in JSON format. This is for your information",
    "- **Workspace Directories:**\n  - ",
    "System: Potential loop detected. Details: ",
    "Background execution update:\n<background_output>",
)
RAN = "I ran the following shell command:\n```sh\n"  # a person, by `!COMMAND`: with what it gave
WHOLES: tuple[tuple[Automatic, str], ...] = (
    (  # before a person's first
        "meta",
        r"(?:<session_context>\s*)?This is the [\w .-]{1,40}\. We are setting up the context for our chat\."
        r".*",
    ),
    ("meta", r"User has manually exited Plan Mode\. Switching to [^\n]{1,100}\."),
    ("continuation", r"System: Please continue\."),
)
