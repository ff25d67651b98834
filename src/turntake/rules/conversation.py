"""The values of a conversation: what waits, what is sealed, and how a claim can end.

What turns one into the next is in `rules/transitions.py`.
"""

from typing import Literal, NamedTuple

import msgspec

from turntake.rules.deadline import Deadline, Decision
from turntake.rules.rules import OnStale

State = Literal["idle", "collecting", "answering", "replying"]
Ending = Literal["answered", "failed", "timed_out"]
Status = Literal[State, "failed", "timed_out"]
"""What a product shows of a conversation: its state or, if nothing waits since, that its latest turn was not answered.
"""
AT_REST: tuple[Status, ...] = ("idle", "failed", "timed_out")
"""The statuses in which nothing waits."""
ReportedStatus = Literal["sent", "delivered", "read", "failed"]
TurnStatus = Literal[
    "answering", "replying", "answered", "interrupted", "discarded", "rejected", "dead", "cleared", "stopped"
]
Lease = Literal["", "alone", "promised"]
"""Whose fault it is if a lease ends without a word. "": nobody knows, since other turns ran in the same process.
"alone": the turn's, since nothing else ran there. "promised": the agent's, which said that it would complete the turn.
"""


class Progress(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How far the answer is: the replies saved, how many of them left, and whether there will be more.

    `unknown` are the places of those that were handed to a platform which never said whether it took them.
    While there will be more, `ends` say where in `replies` each that the handler sent by itself ends: a long one leaves
    in several parts.
    """

    replies: tuple[str, ...] = ()
    sent: int = 0
    is_final: bool = False
    unknown: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()


class ReplyReport(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a platform said, at `at`, became of the reply at place `index`: it was delivered, read, or failed.

    `message_id` is the platform's id of the reply: if it is sent again, it gets another.
    """

    index: int
    status: ReportedStatus
    at: int
    message_id: str = ""
    error: str = ""


class Portion(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Messages of a buffer that will be a turn of their own, since all of them are too many for one.

    It ends before the number `end`, has so many `amendments` among its messages, and so many bytes.
    """

    end: int
    amendments: int
    size: int


class Buffer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Messages `head` and later, waiting together. `due_by_messages` is the deadline without activity or hold.

    The latest message arrived at `last_at`, with a `cue` for the wait if it had one, and the one before it at
    `previous_at`, which is 0 if there was none.
    So many of them are `amendments`, which only change the others. `portions` are those at its beginning that are full;
    what follows them has `size` bytes.
    """

    head: int
    first_at: int
    last_at: int
    due: Deadline
    due_by_messages: Deadline
    decisions: tuple[Decision, ...]
    held_until: int = 0
    one_at_a_time: bool = False
    interrupts: int = 0
    amendments: int = 0
    portions: tuple[Portion, ...] = ()
    size: int = 0
    previous_at: int = 0
    cue: str = ""

    @property
    def last_portion_from(self) -> int:
        """The first number of the portion that still grows."""
        return self.portions[-1].end if self.portions else self.head


class SealedTurn(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Messages `head` to `tail`, fixed. `due_at` is the lease's end while leased, else the time of the next attempt.

    `failures` count towards `max_attempts`. `lapses` are leases that ended without a word: the process died, stood
    still, or could not reach the store. They count as failures only if the turn was the only one to blame: see `Lease`.
    `waits` is how often the agent, or since the answer is final the platform, was away.
    `reports` are the latest that platforms made of its replies, one for each place at most.
    `size` is how many bytes its messages have, as they are stored.
    `resent` are the platform's ids of replies that failed and were then sent again out of the dead letters.
    `answered_at` is when its answer was complete; 0 before that, or if an earlier release wrote it.
    `on_stale` is what becomes of its answer if something newer still waits when it is ready.
    `rejections` is how many messages were rejected while it was being answered.
    `sealed_tail` is what `tail` was before the turn absorbed messages; 0 if it absorbed none. Its id is made of that.
    """

    id: str
    head: int
    tail: int
    due: Deadline
    claimed_at: int
    last_at: int
    due_at: int
    decisions: tuple[Decision, ...]
    is_leased: bool = True
    is_committed: bool = False
    attempt: int = 1
    failures: int = 0
    interrupts: int = 0
    progress: Progress = Progress()
    error: str = ""
    agent: str = ""
    amendments: int = 0
    lapses: int = 0
    lease: Lease = ""
    waits: int = 0
    reports: tuple[ReplyReport, ...] = ()
    size: int = 0
    resent: tuple[str, ...] = ()
    answered_at: int = 0
    on_stale: OnStale = "send"
    sealed_tail: int = 0
    rejections: int = 0

    @property
    def first_tail(self) -> int:
        """The last message when it was sealed: a store knows the turn by it, whatever it absorbs."""
        return self.sealed_tail or self.tail

    @property
    def undelivered(self) -> tuple[ReplyReport, ...]:
        """The reports of replies that failed, by place."""
        return tuple(report for report in self.reports if report.status == "failed")

    @property
    def state(self) -> Literal["answering", "replying"]:
        return "replying" if self.progress.is_final else "answering"


class Aside(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is noted of the messages that were set aside since they were over a limit: the `place` of the latest among
    them, and when the person was told so last."""

    place: int
    told_at: int


class LastTurn(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The latest turn of a conversation that is over: how and when it ended, and when its last message had come."""

    ending: Ending
    ended_at: int
    last_at: int


class Conversation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where one conversation stands.

    `began_at` is when its first message came; 0 if an earlier release wrote it. Once nothing of a conversation is left,
    it is forgotten whole; if the person comes back, numbers start again at 1, and `began_at` tells the new turns from
    the old ones.
    `resumed` are turns out of the dead letters whose answers have yet to be sent: each takes the place of `turn` as
    soon as that is free.
    `last` is None before the first turn is over, or if an earlier release wrote it.
    `aside` is None before a message was over a limit: see `rules/over_limit.py`.
    """

    next_seq: int = 1
    epoch: int = 0
    buffer: Buffer | None = None
    turn: SealedTurn | None = None
    agent: str = ""
    began_at: int = 0
    resumed: tuple[SealedTurn, ...] = ()
    last: LastTurn | None = None
    aside: Aside | None = None

    @property
    def open_turns(self) -> tuple[SealedTurn, ...]:
        """All turns that are not over: those that wait for the place of the one under way, and that one."""
        return self.resumed if self.turn is None else (*self.resumed, self.turn)

    @property
    def state(self) -> State:
        if self.turn is not None:
            return self.turn.state
        return "idle" if self.buffer is None else "collecting"

    @property
    def status(self) -> Status:
        """The state for people: a conversation at rest says so if its latest turn was not answered."""
        state = self.state
        if state == "idle" and self.last is not None and self.last.ending != "answered":
            return self.last.ending
        return state

    @property
    def status_at(self) -> int | None:
        """Since when the status is what it is; None if nobody noted it."""
        if self.turn is not None:
            return self.turn.answered_at or self.turn.claimed_at
        if self.buffer is not None:
            return self.buffer.first_at
        return None if self.last is None else self.last.ended_at

    @property
    def last_message_at(self) -> int | None:
        """When the latest message came; None if nobody noted it."""
        if self.buffer is not None:
            return self.buffer.last_at
        if self.turn is not None:
            return self.turn.last_at
        return None if self.last is None else self.last.last_at

    @property
    def due_at(self) -> int | None:
        """The one deadline: when somebody must look at this conversation next."""
        if self.turn is not None:
            return self.turn.due_at
        return None if self.buffer is None else self.buffer.due.at

    @property
    def waiting(self) -> int:
        """How many messages are buffered and not yet sealed into a turn; amendments are none."""
        return 0 if self.buffer is None else self.next_seq - self.buffer.head - self.buffer.amendments


class Answered(msgspec.Struct, frozen=True, tag="answered"):
    """The turn is over: its answer reached the person (or there was nothing to say)."""

    replies: tuple[str, ...] = ()


class Retry(msgspec.Struct, frozen=True, tag="retry"):
    """Again after a pause, with the same messages. Being told to wait, or shutting down, is not a failure.

    With `progress` the answer is saved in the same step, for whoever comes next to send. Unless `is_tried`, the turn
    was only claimed and handed to nobody, so that its attempt number stays as it was before. `is_away` if nobody was
    there to take it.
    """

    after_ms: int
    is_failure: bool = True
    error: str = ""
    progress: Progress | None = None
    is_tried: bool = True
    is_away: bool = False


class Dead(msgspec.Struct, frozen=True, tag="dead"):
    """Given up: the messages move to the dead letters, with the reason, and where the agent's exception came from."""

    reason: str
    error: str = ""
    trace: str = ""


Settlement = Answered | Retry | Dead
EXPIRED, TIMED_OUT = "expired", "timed_out"
"""The reasons of dead letters that took too long: all attempts together, or the last of them."""
_TIMED_OUT = (EXPIRED, TIMED_OUT)


class Closed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What became of a range of messages that is no longer open: answered, interrupted, discarded, rejected, dead,
    cleared or stopped.

    `portions` are those of a buffer that was cleared or stopped, all of it.
    A message that was set aside has the number `tail`, which is below 0; `head` is then that of the message which came
    after it, so that turns are listed in the order in which they came.
    """

    id: str
    head: int
    tail: int
    status: str
    epoch: int
    at: int
    turn: SealedTurn | None
    reason: str = ""
    error: str = ""
    amendments: int = 0
    trace: str = ""
    portions: tuple[Portion, ...] = ()

    @property
    def numbers(self) -> range:
        """Those of its messages."""
        return range(min(self.head, self.tail), self.tail + 1)

    @property
    def is_aside(self) -> bool:
        """Whether it is a message that was set aside, and so never belonged to what waits or to a turn."""
        return self.tail < 0

    @property
    def first_tail(self) -> int:
        """As of a sealed turn."""
        return self.tail if self.turn is None else self.turn.first_tail

    @property
    def size(self) -> int:
        """How many bytes its messages have; 0 if an earlier release wrote it."""
        return sum(portion.size for portion in self.portions) if self.turn is None else self.turn.size

    @property
    def count(self) -> int:
        """How many messages it had; amendments are none."""
        return len(self.numbers) - self.amendments

    @property
    def ending(self) -> Ending:
        """How it ended for the person, if it was a turn."""
        if self.status != "dead":
            return "answered"
        return "timed_out" if self.reason in _TIMED_OUT else "failed"

    @property
    def is_resumable(self) -> bool:
        """Whether its answer is complete, so that all that is left to do is to send it."""
        return self.turn is not None and self.turn.progress.is_final

    @property
    def is_withdrawn(self) -> bool:
        """Whether nothing of its answer may leave, since the person wrote more: another turn follows it."""
        return self.status in ("interrupted", "discarded")

    @property
    def is_letter(self) -> bool:
        """Whether it ended as a dead letter, which stays until somebody retries or discards it."""
        return self.status in ("dead", "cleared")


class Change(NamedTuple):
    """A conversation after a step, and the range of messages that the step closed, if any."""

    conversation: Conversation
    closed: Closed | None = None


class Stop(NamedTuple):
    """A conversation after a stop word, the turn that this word is, and the ranges of messages that it ended."""

    conversation: Conversation
    turn: SealedTurn
    ended: tuple[Closed, ...]


class Touch(msgspec.Struct, frozen=True):
    """A sign or an order without a message: the person composes, somebody flushes, holds or clears, or the rules are
    others than before."""

    kind: Literal["composing", "stopped", "flush", "hold", "clear", "rules"]
    duration_ms: int = 0
