"""What an outsider saw, and whether it keeps the promises. Nothing here knows how the server works inside."""

from collections import defaultdict
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class HandOver:
    """The agent was called: when, with which turn, which attempt, and which messages, in order."""

    at: float
    turn_id: str
    attempt: int
    conversation: str
    message_ids: tuple[str, ...]
    digest: str


@dataclass(frozen=True, slots=True)
class Reply:
    """The person was sent something."""

    at: float
    turn_id: str
    index: int
    text: str


@dataclass(slots=True)
class History:
    """Everything recorded in one run. Message ids read `conversation/number`, numbered as the person sent them."""

    acknowledged: dict[str, float] = field(default_factory=dict)
    sent: set[str] = field(default_factory=set)
    hand_overs: list[HandOver] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    restarts: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Limits:
    """In seconds: how long a turn may wait, how long a dead worker's claim holds, and what is allowed on top."""

    max_wait: float
    lease: float
    slack: float


def violations(history: History, limits: Limits) -> list[str]:
    """Every broken promise, in words; none is what we want."""
    return [
        *_lost(history),
        *_phantoms(history),
        *_in_two_turns(history),
        *_disordered(history),
        *_changed_turns(history),
        *_stuck_attempts(history),
        *_unanswered(history),
        *_different_replies(history),
        *_late(history, limits),
    ]


def _lost(history: History) -> list[str]:
    handed_over = {message for call in history.hand_overs for message in call.message_ids}
    return [f"lost: {m} was acknowledged and never handed over" for m in history.acknowledged if m not in handed_over]


def _phantoms(history: History) -> list[str]:
    return [
        f"phantom: {message} in {call.turn_id} of {call.conversation}"
        for call in history.hand_overs
        for message in call.message_ids
        if message not in history.sent or not message.startswith(f"{call.conversation}/")
    ]


def _in_two_turns(history: History) -> list[str]:
    turns: dict[str, set[str]] = defaultdict(set)
    for call in history.hand_overs:
        for message in call.message_ids:
            turns[message].add(call.turn_id)
    twice = [
        f"twice in one turn: {c.turn_id}" for c in history.hand_overs if len(set(c.message_ids)) < len(c.message_ids)
    ]
    return twice + [f"two turns: {message} in {sorted(ids)}" for message, ids in turns.items() if len(ids) > 1]


def _disordered(history: History) -> list[str]:
    """First hand-overs of a conversation's turns, joined, must count up without a gap."""
    found: list[str] = []
    seen: set[str] = set()
    last: defaultdict[str, int] = defaultdict(int)
    for call in history.hand_overs:
        if call.turn_id in seen:
            continue
        seen.add(call.turn_id)
        for message in call.message_ids:
            number = int(message.rpartition("/")[2])
            if number != last[call.conversation] + 1:
                found.append(f"order: {message} follows number {last[call.conversation]} in {call.turn_id}")
            last[call.conversation] = number
    return found


def _changed_turns(history: History) -> list[str]:
    digests: dict[str, set[str]] = defaultdict(set)
    for call in history.hand_overs:
        digests[call.turn_id].add(call.digest)
    return [f"changed: {turn_id} was handed over with different bytes" for turn_id, d in digests.items() if len(d) > 1]


def _stuck_attempts(history: History) -> list[str]:
    found: list[str] = []
    latest: defaultdict[str, int] = defaultdict(int)
    for call in history.hand_overs:
        if call.attempt <= latest[call.turn_id]:
            found.append(f"attempt: {call.turn_id} attempt {call.attempt} after {latest[call.turn_id]}")
        latest[call.turn_id] = call.attempt
    return found


def _unanswered(history: History) -> list[str]:
    answered = {reply.turn_id for reply in history.replies}
    return [f"unanswered: {turn_id}" for turn_id in {c.turn_id for c in history.hand_overs} if turn_id not in answered]


def _different_replies(history: History) -> list[str]:
    texts: dict[tuple[str, int], set[str]] = defaultdict(set)
    for reply in history.replies:
        texts[reply.turn_id, reply.index].add(reply.text)
    return [f"replies: {place} was answered in {len(t)} different ways" for place, t in texts.items() if len(t) > 1]


def _late(history: History, limits: Limits) -> list[str]:
    """Due `max_wait` after the acknowledgement, or recovered a lease after the latest restart before the hand-over."""
    first: dict[str, float] = {}
    for call in history.hand_overs:
        for message in call.message_ids:
            first.setdefault(message, call.at)
    found = []
    for message, acknowledged_at in history.acknowledged.items():
        handed_over_at = first.get(message)
        if handed_over_at is None:
            continue
        restart = max((at for at in history.restarts if at <= handed_over_at), default=0.0)
        lateness = handed_over_at - max(acknowledged_at + limits.max_wait, restart + limits.lease)
        if lateness > limits.slack:
            found.append(f"late: {message} was handed over {lateness:.1f} s after it should have been")
    return found
