"""Episodes of a window with a no-train request from before it: what a client names may go on for days.

Such a request settles its episode, so the window of a later collect begins after it. Derived episodes are not
of both kinds (`stages/gateway/episodes.py`). Not for: no-train requests in the window (`plan.py`).
"""

from __future__ import annotations

from stages.collect.scan import Scan
from stages.errors import InputMissingError, IntegrityError
from stages.owners import is_own_name
from stages.spool import Spool


def no_train_before(spool: Spool, scan: Scan, first: int) -> list[str]:
    """Their ids, as far back as the spool goes. Only users who named a readable episode are looked at."""
    pairs = {*zip(scan.g_user.tolist(), scan.g_episode.tolist(), scan.g_no_train.tolist(), strict=True)}
    named = {e: u for u, e, no_train in pairs if not no_train and is_own_name(scan.episodes[e])}
    users = {scan.users[code] for code in named.values()}
    asked = {scan.episodes[code] for code in named}
    found = set()
    for generation_id, user in spool.no_train(first):
        if user in users:
            try:
                found.add(spool.record(generation_id)[0].episode)
            except (InputMissingError, IntegrityError):  # deleted meanwhile, or damaged: `rtrl verify` tells
                continue
    return sorted(found & asked)
