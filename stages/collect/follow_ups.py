"""The user's next message where no client tells it: the session's next request. Pure, on columns.

Not for: the events that tell one, nor what a message says of the answer before.

    E  episodes, G  generations of the window (see `scan.Scan`)
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.collect.scan import EVENT_CODE, Bools, Ints, Scan
from stages.collect.steady import set_back
from stages.parts import CUT, LOST
from stages.records import ANOTHER_ANSWER


def follow_ups(scan: Scan, first_row: Ints, last_row: Ints, readable: Bools) -> Ints:
    """The session's next request, as its row; -1 for none, or where an event tells the message, [E].

    Of an episode that begins once this one has made its last request, and not while another of the session
    is under way: what an agent asks of its sub-agents is no message to it, nor to the sub-agent before. Plain
    completions have no requests of people, and take no part. Nor is one a message that came before the answer
    was complete (several answers to one request, asked for side by side), or the same that its client sent
    again by itself, or that was asked once more as the engine was lost.
    """
    n = len(scan.episodes)
    found = np.full(n, -1)
    if not n:
        return found
    chat = np.asarray(pc.equal(scan.generations["api"], "chat"), dtype=np.bool_)[first_row]
    early, wall = set_back(scan), np.asarray(scan.generations["wall"], dtype=np.int64)
    came = np.where(scan.g_at == wall, scan.g_at + early, scan.g_at)
    order = np.lexsort((came, scan.g_session))  # of one time in capture order
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    last = np.full(n, -1)
    np.maximum.at(last, scan.g_episode, place)
    begins = np.sort(place[first_row[chat & ~_meanwhile(scan, place, chat)[place[first_row]]]])
    following = np.searchsorted(begins, last, side="right")
    here = np.flatnonzero(chat & (following < len(begins)))
    rows = order[begins[following[here]]]
    same = scan.g_session[first_row[here]] == scan.g_session[rows]
    found[here[same]] = rows[same]
    found = _gone_back(scan, order[begins], found)
    messages = (scan.v_type == EVENT_CODE["user_message"]) & scan.v_own_key & (scan.v_generation >= 0)
    told = np.zeros(n, dtype=np.bool_)
    told[scan.g_episode[scan.v_generation[messages]]] = True
    none = (
        told
        | (found < 0)
        | ~readable[found]
        | _again(scan, last_row, found)
        | _early(scan, wall + early, order[last], found)
    )
    return np.where(none, -1, found)


def _gone_back(scan: Scan, rows: Ints, found: Ints) -> Ints:
    """`found` [E] where people went back to an earlier answer: what they asked there follows that answer, and
    none that was asked for in its place. `rows` are the first requests of episodes, in order by session.
    """
    rows = rows[scan.g_goes_on[rows] >= 0][::-1]
    if not len(rows):
        return found
    history = pc.replace_substring_regex(pa.array(scan.episodes), ANOTHER_ANSWER, "").dictionary_encode()
    same = np.asarray(history.indices, dtype=np.int64)
    to = np.where(found < 0, -1, scan.g_goes_on[found])
    elsewhere = (to >= 0) & (to != np.arange(len(to))) & (same[to] == same)
    result = np.where(elsewhere, -1, found)
    result[scan.g_goes_on[rows]] = rows  # of several the first
    return result


def _early(scan: Scan, came: Ints, asked: Ints, follow_up: Ints) -> Bools:
    """Whether `follow_up` [E] came before the answer to what was `asked` last [E] was there to be read.

    Who stops an answer and asks anew has read what there was of it: its end is told some instants later.
    `came` is when each request did, in whole ms, [G].
    """
    complete = came + np.asarray(scan.generations["duration_ms"], dtype=np.float64)
    early: Bools = (came[follow_up] + 1 < complete[asked]) & ~_cut(scan)[asked]
    return early


def _cut(scan: Scan) -> Bools:
    """Answers that somebody else ended, [G]."""
    return np.asarray(pc.is_in(scan.generations["finish_reason"], value_set=pa.array(CUT)), dtype=np.bool_)


def _again(scan: Scan, asked: Ints, follow_up: Ints) -> Bools:
    """Whether `follow_up` [E] is what was `asked` before [E], and no word about the answer.

    A client sent it by itself, or the engine was lost in the middle of the answer. The prompt is as long, or
    not known of an answer that was cut before it began. Else it sent again what was refused at first (by a
    gateway that was full) and is nowhere recorded: a person's new message.
    """
    tokens = np.asarray(scan.generations["prompt_tokens"], dtype=np.int64)
    same = (tokens[asked] == tokens[follow_up]) | (_cut(scan) & (tokens == 0))[asked]
    lost = np.asarray(pc.equal(scan.generations["finish_reason"], LOST), dtype=np.bool_)
    again: Bools = (scan.g_retried[follow_up] | lost[asked]) & same
    return again


def _meanwhile(scan: Scan, place: Ints, chat: Bools) -> Bools:
    """Of each place in time, whether an episode has requests of its session before and after it, [G].

    Args:
        place: of each generation, by session and in it by time, [G].
        chat: whether an episode is a conversation, [E].
    """
    rows = np.lexsort((place, scan.g_session, scan.g_episode))
    here, following = rows[:-1], rows[1:]
    same = (scan.g_episode[here] == scan.g_episode[following]) & chat[scan.g_episode[here]]
    same &= scan.g_session[here] == scan.g_session[following]
    under_way = np.zeros(len(place) + 1, dtype=np.int64)
    np.add.at(under_way, place[here[same]] + 1, 1)
    np.add.at(under_way, place[following[same]], -1)
    return np.cumsum(under_way[:-1]) > 0
