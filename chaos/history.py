"""What an outsider saw in one run. Nothing here knows how the servers work inside."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Sending:
    """One try to send a message. `status` is the receipt's, or what came instead of one."""

    message: str
    at: float
    ended_at: float = math.inf
    status: str = "no answer"
    is_acknowledged: bool = False


@dataclass(slots=True)
class HandOver:
    """The agent was called: with which turn, which attempt, which messages; and what it answered in the end."""

    at: float
    call: int
    turn_id: str
    attempt: int
    conversation: str
    message_ids: tuple[str, ...]
    seqs: tuple[int, ...]
    digest: str
    ended_at: float = math.inf
    answer: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """The person was sent something; `key` is what a channel would know a repetition by."""

    at: float
    turn_id: str
    index: int
    text: str
    key: str


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The servers gave a turn up, and say why."""

    turn_id: str
    message_ids: tuple[str, ...]
    reason: str


@dataclass(slots=True)
class Fault:
    """We did something to somebody, and it is over at `ended_at`."""

    kind: str
    target: str
    at: float
    ended_at: float = math.inf


@dataclass(slots=True)
class History:
    """Everything recorded in one run, in monotonic seconds.

    Message ids read `conversation/number`. A conversation's messages are numbered and sent one after the other, each
    only once the one before was acknowledged or given up. `poisonous` are those that kill whoever answers them.
    """

    sendings: list[Sending] = field(default_factory=list)
    hand_overs: list[HandOver] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    letters: list[DeadLetter] = field(default_factory=list)
    poisonous: set[str] = field(default_factory=set)

    @contextmanager
    def fault(self, kind: str, target: str) -> Iterator[Fault]:
        fault = Fault(kind, target, time.monotonic())
        self.faults.append(fault)
        try:
            yield fault
        finally:
            fault.ended_at = time.monotonic()


@dataclass(frozen=True, slots=True)
class Limits:
    """The rules of the run, in seconds. `slack` is allowed once no fault disturbs, `longest` whatever happens."""

    silence: float
    typing: float
    max_wait: float
    max_messages: int
    lease: float
    slack: float
    longest: float
    capacity: int = 50  # of messages in a turn, unless a setting says otherwise


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise, in words, and the ids of the messages and turns that show it."""

    promise: str
    conversation: str
    says: str
    about: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.promise}: {self.says}"


def conversation_of(message: str) -> str:
    return message.rpartition("/")[0]


def number_of(message: str) -> int:
    return int(message.rpartition("/")[2])
