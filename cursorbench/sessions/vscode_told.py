"""What VS Code's chat puts under the role `user` itself, and its buttons. For `automatic`.

Sources: published chats; microsoft/vscode-copilot-chat (`l10n.t` of its buttons, `planAgentProvider.ts`).
Not for: what a chat's fields tell (`vscode_chat.py`).
"""

from __future__ import annotations

from cursorbench.sessions.items import Automatic

WHOLES: tuple[tuple[Automatic, str], ...] = (
    ("meta", r"\[Terminal [0-9a-f-]{8,40} notification: .*"),  # a command in the background ended
    # after an error, and under a question of the client
    ("continuation", r"@agent (?:Try Again|Switch to Auto(?: \(always\))?|重试)"),
    ("continuation", r'@agent (?:Continue|Pause|Cancel|Enable|Allow|继续|暂停): "[^"\n]{1,200}"'),
    ("continuation", r'@workspace /\w+ [\w ]{1,30}: "[^"\n]{1,200}"'),
    ("command", r"(?:@workspace )?/(?:fix|explain) .*"),  # also sent by the editor's buttons
    # under a plan
    ("plan", r"Start implementation"),
    (
        "command",
        r"#createFile the plan as is into an untitled file \([^\n]{1,200}\) for further refinement\.",
    ),
)
