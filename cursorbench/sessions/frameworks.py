"""What slash commands of BMAD, spec-kit and cc-sdd became under the role `user`. For `automatic`.

Sources: published sessions; github/spec-kit (`templates/commands`). Not for: a person's words in them
(`spoken.py`).
"""

from __future__ import annotations

BEGINNINGS = (
    "You must fully embody this agent's persona and follow all activation instructions exactly",
    "IT IS CRITICAL THAT YOU FOLLOW THIS COMMAND: LOAD the FULL ",
    "IT IS CRITICAL THAT YOU FOLLOW THESE STEPS - while staying in character as the ",
    "<meta>\ndescription: ",
    "The user input to you can be provided directly by the agent or as a command argument",
)
TASK = (
    r"# [^\n]{1,100}\n+Read the entire task file at: [^\n]{1,500}\n+"
    r"Follow all instructions in the task file exactly as written\."
)
