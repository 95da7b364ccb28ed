"""From a log's items to the records of a live line: generations and events, in episodes.

An episode is one request of a person and everything the agent does until the next one; a generation is
what the agent says and asks for between two results of tools. Logs have texts only: a generation made here
has no tokens and the defect `text_only`, so that it gives metrics and never a gradient. Pure.

Not for: reading files (`cursorbench/sessions`), sealing (`write.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from cursorbench.sessions import items as said
from stages import reactions
from stages.collect.logs.answers import OPEN, Answer, Answers
from stages.collect.logs.approvals import Approvals
from stages.collect.logs.clock import Clock
from stages.collect.logs.early import Early
from stages.collect.logs.edits import KeptEdits, repository_of
from stages.collect.logs.faults import call_of, fault_of_end
from stages.collect.logs.names import session_name
from stages.collect.logs.state import Episode, Happened, Record, Session, Turn, owner_of, sampled, says
from stages.inbox.records import NOBODY, Sender
from stages.records import Event, EventType
from stages.verdicts import Verdicts, name_of


class Turns:
    """Takes the items of any number of logs, in their order; gives records as soon as they are complete.

    Args:
        user: whose sessions these are; "" makes every session its own user, and a sub-agent's its parent's.
        pseudonym: names what is no id: some logs make a session's name of the request.
        verdicts: says what feedback is; thumbs alone without it.
        clock: tells the zone of times without one; UTC without it.
        edits: keeps the edits, for who follows them through a repository.
        repository: what they worked on; "" takes the name of the folder a session was begun in.

    Attributes:
        counts: items by what became of them, those that no signal reads among them.
        unused: feedback that is no verdict, by its metric.
    """

    def __init__(
        self,
        line: str,
        user: str = "",
        repository: str = "",
        *,
        pseudonym: Callable[[bytes], str],
        edits: KeptEdits | None = None,
        clock: Clock | None = None,
        verdicts: Verdicts | None = None,
    ) -> None:
        self._line, self._user, self._repository = line, user, repository
        self._pseudonym = pseudonym
        self._edits, self._clock, self._verdicts = edits, clock, verdicts or Verdicts()
        self._sessions: dict[str, Session] = {}
        self._early, self._approvals = Early(), Approvals()
        self._all_read = False
        self._answers = Answers()
        self.counts: Counter[str] = Counter()
        self.unused: Counter[str] = Counter()

    def add(self, kind: str, item: said.Read, sender: Sender = NOBODY) -> Iterator[Record]:
        """What this item completes; two senders' sessions are two. `Quarantined` items are the caller's."""
        if isinstance(item, said.Quarantined):
            return
        if isinstance(item, said.Feedback) and self._aside(kind, item, sender):
            return
        if self._clock is not None:
            item = self._clock.item(kind, item)
        if isinstance(item, said.Feedback) and item.target:
            yield from self._about_an_answer(kind, item, sender.mark)
            return
        session = self._session(kind, item, sender)
        match item:
            case said.UserTurn():
                yield from self._user_turn(session, item)
            case said.AgentTurn() | said.ToolUse():
                yield from self._agent(session, item)
            case said.Edit():
                yield from self._edit(session, item)
            case said.ToolEnd():
                yield from self._tool_end(session, item)
            case said.Interrupt():
                yield from self._event(session, "interrupted", {"during": item.during})
            case said.Feedback():
                yield from self._feedback(session, item)
            case said.Completion():
                yield from self._completion(session, item)
            case _:
                self._note(session, item)

    def _note(self, session: Session, item: said.SessionStart | said.Commit | said.Attribution) -> None:
        """What is no turn and no reaction."""
        if isinstance(item, said.SessionStart):
            session.agent, session.version = item.agent or session.agent, item.version or session.version
            if item.parent:
                session.parent = self._name(session.kind, item.parent, session.mark)
            session.cwd = item.cwd or session.cwd
            session.repository = self._repository or repository_of(session.cwd, item.repository)
        elif isinstance(item, said.Attribution):
            self.counts["attributions"] += 1
        else:
            self.counts["commits"] += 1
            if self._edits is not None:
                self._edits.commit(session.name, item)

    def done(self) -> Iterator[Record]:
        """What is still open at the end of all logs."""
        self._all_read = True
        for kind, item, sender in self._early.take():
            yield from self.add(kind, item, sender)
        for session in self._sessions.values():
            yield from self._close(session)

    def _name(self, kind: str, session: str, mark: str) -> str:
        name = session_name(kind, session, self._pseudonym)
        return f"{name}@{mark}" if mark else name

    def _session(self, kind: str, item: said.Item, sender: Sender) -> Session:
        name = self._name(kind, item.session, sender.mark)
        session = self._sessions.get(name)
        if session is None:
            session = Session(kind, item.session, name, repository=self._repository)
            session.user, session.mark = sender
            self._sessions[name] = session
            self.counts["sessions"] += 1
        if not session.episodes:
            session.kind = kind  # feedback that came first is of another kind than what it is about
        if item.at is not None:
            session.at = item.at
        return session

    def _user_turn(self, session: Session, item: said.UserTurn) -> Iterator[Record]:
        task = item.automatic == "sub_agent" and session.parent
        if item.automatic and not task:
            self.counts[f"automatic:{item.automatic}"] += 1
            self._approvals.sent(item)
            if item.automatic == "command":
                if not item.text.lstrip().startswith("<local-command-"):
                    session.command = item.text
            elif session.open:
                session.open.went_on(approved=item.automatic == "plan")
            return
        self.counts["sub_agent_tasks" if task else "user_turns"] += 1
        session.command = ""
        if session.open and not session.open.turns:  # said more before there was an answer
            session.open.request = f"{session.open.request}\n\n{item.text}".strip()
            return
        if session.open and not task:
            yield from self._event(session, "user_message", {"text": item.text}, derived=True)
        yield from self._begin(session, item.text)

    def _begin(self, session: Session, request: str) -> Iterator[Record]:
        yield from self._close(session)
        session.open = Episode(f"{session.name}:{session.episodes}", request)
        session.episodes += 1

    def _agent(self, session: Session, item: said.AgentTurn | said.ToolUse) -> Iterator[Record]:
        if session.open is None or (session.command and says(item)):
            yield from self._begin(session, session.command)
            session.command = ""
        episode = session.open
        assert episode is not None
        if episode.turn is None or episode.turn.answered:
            yield from self._end_turn(session)
            episode.turn = Turn(episode.turns, session.at)
            episode.last = f"{episode.id}#{episode.turns}"
            episode.turns += 1
        turn = episode.turn
        turn.at = session.at
        turn.model = session.model = item.model or turn.model or session.model
        if isinstance(item, said.ToolUse):
            self.counts["tool_calls"] += 1
            turn.calls.append(call_of(session, item))
            if item.id:
                session.calls[item.id] = (item.name, episode.last, episode.id)
            return
        turn.log_id = turn.log_id or item.id
        turn.add(item.text, item.thinking)
        turn.first_token_ms = item.first_token_ms if turn.first_token_ms is None else turn.first_token_ms
        turn.duration_ms = item.duration_ms if turn.duration_ms is None else turn.duration_ms
        self._answers.add(session, (item.id, item.span), Answer(session.name, episode.last, episode.id))

    def _tool_end(self, session: Session, item: said.ToolEnd) -> Iterator[Record]:
        self.counts[f"tool_{item.outcome}"] += 1
        name, generation, episode = session.calls.get(item.id, ("", "", ""))
        if session.open and episode == session.open.id:
            session.command = ""
        if fault := fault_of_end(session, item, name):
            self.counts[fault] += 1
        yield from self._event(session, *reactions.of_tool(item, name), generation, episode)
        if session.open and session.open.turn:
            session.open.turn.answered = True

    def _edit(self, session: Session, item: said.Edit) -> Iterator[Record]:
        self.counts[f"edits_{item.status}"] += 1
        if (told := reactions.of_edit(item)) is None:
            return
        if (answer := self._answers.of_edit(session, item)) is None:
            self.counts[f"unanswered:{told[0]}"] += 1
            return
        at, session = session.at, self._sessions.get(answer.session, session)  # it may be another one's
        before, (_, generation, episode) = session.events, answer
        yield from self._event(session, *told, generation, episode, at=at)
        if self._edits is not None and session.events > before:
            event = f"{session.name}!{session.events}"
            self._edits.add(session, item, event, episode or (session.open.id if session.open else ""))

    def _aside(self, kind: str, item: said.Feedback, sender: Sender) -> bool:
        """Whether it is no verdict, or waits: a later file may have what it is about."""
        if self._verdicts.of(item) is None:
            self.counts["feedback_of_other_kinds"] += 1
            self.unused[name_of(item.name)] += 1
            return True
        session = self._sessions.get(self._name(kind, item.session, sender.mark))
        known = session is not None and session.episodes > 0
        if item.target:
            known = self._answers.knows(item.target, sender.mark, session)
        if not known and not self._all_read:
            self._early.add(kind, item, sender)
        return not known and not self._all_read

    def _about_an_answer(self, kind: str, item: said.Feedback, mark: str) -> Iterator[Record]:
        """Feedback that names its answer, in whatever log that was, or a call of its session."""
        session = self._sessions.get(self._name(kind, item.session, mark))
        if (answer := self._answers.of(item.target, mark, session)) is None:
            self.counts["feedback_without_its_answer"] += 1
            return
        yield from self._feedback(self._sessions[answer.session], item, answer)

    def _feedback(self, session: Session, item: said.Feedback, answer: Answer = OPEN) -> Iterator[Record]:
        if verdict := self._verdicts.of(item):  # `_aside` has left out what is none
            self.counts["outcomes" if verdict[0] == "outcome" else verdict[0]] += 1
            yield from self._event(session, *verdict, answer.generation, answer.episode, at=item.at)

    def _completion(self, session: Session, item: said.Completion) -> Iterator[Record]:
        self.counts["completions"] += 1
        yield from self._begin(session, item.prompt)
        turn = said.AgentTurn(
            session=item.session, id=item.id, at=item.at, place=item.place, text=item.text, model=item.model
        )
        yield from self._agent(session, turn)
        if item.shown:
            yield from self._event(session, "completion_shown", {})
        if item.accepted is not None:
            ended: EventType = "completion_accepted" if item.accepted else "completion_rejected"
            yield from self._event(session, ended, {})
        yield from self._close(session)

    def _event(
        self,
        session: Session,
        kind: str,
        data: dict[str, Any],
        generation: str = "",
        episode: str = "",
        *,
        at: int | None = None,
        derived: bool = False,
    ) -> Iterator[Record]:
        """An event about that generation, or the last one; none without one. `at`: not the session's time."""
        at = session.at if at is None else at
        if not generation and session.open:
            generation, episode = session.open.last, session.open.id
        if not generation:
            self.counts[f"unanswered:{kind}"] += 1
            return
        session.events += 1
        event = Event(
            id=f"{session.name}!{session.events}", key_id=f"log:{session.kind}", generation_id=generation,
            type=kind, at=at, wall=at, data=data,  # type: ignore[arg-type]
        )  # fmt: skip
        happened = Happened(event, episode, owner_of(session, self._sessions, self._user), derived)
        if session.open and session.open.turn and session.open.id == episode:  # in the log's order
            session.open.waiting.append(happened)
        else:
            yield happened

    def _end_turn(self, session: Session) -> Iterator[Record]:
        if (episode := session.open) is None or episode.turn is None:
            return
        turn, episode.turn = episode.turn, None
        self.counts["generations"] += 1
        yield sampled(self._line, owner_of(session, self._sessions, self._user), session, episode, turn)
        yield from self._approvals.settled(episode.waiting, self.counts)
        episode.waiting = []

    def _close(self, session: Session) -> Iterator[Record]:
        if (episode := session.open) is None:
            return
        yield from self._end_turn(session)
        self.counts["episodes" if episode.turns else "unanswered_requests"] += 1
        session.open = None
