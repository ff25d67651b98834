"""What waits: how a buffer grows, when it is due, and which of its messages make the next turn."""

from msgspec.structs import replace

from turntake.rules.conversation import Buffer, Conversation, Portion, SealedTurn
from turntake.rules.deadline import Deadline, Decision, after_activity, after_message, after_rules
from turntake.rules.rules import Rules

DECISIONS_KEPT = 100  # enough to see why a long burst waited; the row with them is written at every message
_NOTED_ONCE = ("activity", "held", "max wait", "max messages", "capacity")
"""Reasons that repeat themselves: of several decisions in a row for one of these, the latest says all."""


def arrival_at(conversation: Conversation, now: int) -> int:
    """What is noted as a message's arrival: now, and never before the one it follows, whatever the clock says.

    Messages of a turn are put in order by it. Deadlines count from now, also after a clock was set back.
    """
    if conversation.buffer is not None:
        return max(now, conversation.buffer.last_at)
    return now if conversation.turn is None else max(now, conversation.turn.last_at)


def grown_buffer(conversation: Conversation, rules: Rules, now: int, size: int, cue: str = "") -> Buffer:
    """The buffer with one more message of `size` bytes, and its new deadline, for which the message may give a cue."""
    buffer = conversation.buffer
    if buffer is None:
        due = after_message(rules, 1, now, None, now, cue)
        decisions = (Decision(now, due.at, due.reason),)
        last_at = arrival_at(conversation, now)
        is_single = not rules.enabled
        return Buffer(
            conversation.next_seq, now, last_at, due, due, decisions, one_at_a_time=is_single, size=size, cue=cue
        )
    due_by_messages = after_message(rules, conversation.waiting + 1, buffer.first_at, buffer.last_at, now, cue)
    if buffer.portions:
        due_by_messages = Deadline(now, "capacity")
    due = due_by_messages if due_by_messages.reason == "capacity" else with_hold(buffer, due_by_messages)
    if is_ordered(buffer):
        due = buffer.due
    return replace(
        buffer,
        last_at=max(now, buffer.last_at),
        due=due,
        due_by_messages=due_by_messages,
        decisions=_noted(buffer.decisions, due, now),
        one_at_a_time=not rules.enabled,
        size=buffer.size + size,
        previous_at=buffer.last_at,
        cue=cue,
    )


def reconsidered_buffer(conversation: Conversation, buffer: Buffer, rules: Rules, now: int) -> Buffer:
    """The buffer with the deadline that these rules give it. A hold stays, and so does what activity added to the wait,
    up to the longest wait that there is now."""
    if is_ordered(buffer) or buffer.portions:
        return buffer
    count, previous_at = conversation.waiting, buffer.previous_at or None
    by_messages = after_rules(rules, count, buffer.first_at, previous_at, buffer.last_at, now, buffer.cue)
    due = by_messages
    if buffer.due != buffer.due_by_messages and buffer.due.reason != "held":
        composing_ms = max(0, buffer.due.at - now)
        due = after_activity(rules, count, buffer.first_at, by_messages, composing_ms, now)
    if by_messages.reason != "capacity":
        due = with_hold(buffer, due)
    buffer = replace(buffer, one_at_a_time=not rules.enabled)
    if max(due.at, buffer.due.at) <= now:  # it is due already, and waits for the turn under way
        return buffer
    decisions = buffer.decisions
    if due.at != buffer.due.at:
        decisions = _noted(decisions, Deadline(due.at, "rules changed"), now)
    return replace(buffer, due=due, due_by_messages=by_messages, decisions=decisions)


def with_room(conversation: Conversation, rules: Rules, more: int, size: int) -> Conversation:
    """With room for `more` messages, or an amendment, of `size` bytes. What is too much for the turn that the latest
    would be in begins the next one, so that no turn is larger than the rules allow, however much waits."""
    buffer = conversation.buffer
    if buffer is None:
        return conversation
    numbers = conversation.next_seq - buffer.last_portion_from
    is_small = buffer.size + size <= rules.max_turn_bytes
    if not numbers or (is_small and numbers + more <= rules.capacity):
        return conversation
    amendments = buffer.amendments - sum(portion.amendments for portion in buffer.portions)
    return conversation if is_small and numbers - amendments + more <= rules.capacity else divided(conversation)


def divided(conversation: Conversation) -> Conversation:
    """What waits will be a turn without what comes from here on."""
    buffer = conversation.buffer
    if buffer is None or conversation.next_seq == buffer.last_portion_from:
        return conversation
    amendments = buffer.amendments - sum(portion.amendments for portion in buffer.portions)
    full = Portion(conversation.next_seq, amendments, buffer.size)
    return replace(conversation, buffer=replace(buffer, portions=(*buffer.portions, full), size=0))


def first_portion(conversation: Conversation, buffer: Buffer) -> Portion:
    """What the next turn is made of."""
    # What an interruption merged stays merged: sealed alone again, a message would repeat a turn's id and attempt.
    # An amendment may be of any message that waits, and is not a turn of its own: with one among them, all go together.
    if buffer.one_at_a_time and not buffer.interrupts and not buffer.amendments:
        return Portion(buffer.head + 1, 0, 0)
    return buffer.portions[0] if buffer.portions else Portion(conversation.next_seq, buffer.amendments, buffer.size)


def after_first_portion(conversation: Conversation, buffer: Buffer, portion: Portion) -> Buffer | None:
    """What still waits once the first portion is a turn's; None if nothing does."""
    if portion.end >= conversation.next_seq:
        return None
    return replace(
        buffer,
        head=portion.end,
        decisions=buffer.decisions[-1:],
        interrupts=0,
        amendments=buffer.amendments - portion.amendments,
        portions=tuple(each for each in buffer.portions if each.end > portion.end),
    )


def portions_with(turn: SealedTurn, buffer: Buffer | None) -> tuple[Portion, ...]:
    """The portions of a buffer that a turn is put back in front of: it merges with the first of them."""
    if buffer is None or not buffer.portions:
        return ()
    first, *others = buffer.portions
    return (Portion(first.end, first.amendments + turn.amendments, first.size + turn.size), *others)


def decided(buffer: Buffer, due: Deadline, now: int) -> Buffer:
    """The buffer with another deadline, which is noted among its decisions."""
    return replace(buffer, due=due, decisions=_noted(buffer.decisions, due, now))


def is_ordered(buffer: Buffer) -> bool:
    """Somebody ordered it to go: what comes before it is claimed goes along and does not delay it."""
    return buffer.due.reason in ("flushed", "retried")


def with_hold(buffer: Buffer, due: Deadline) -> Deadline:
    """The deadline, or the end of the hold if that is later."""
    return Deadline(buffer.held_until, "held") if buffer.held_until > due.at else due


def _noted(decisions: tuple[Decision, ...], due: Deadline, now: int) -> tuple[Decision, ...]:
    """The latest decisions, with the new deadline."""
    if decisions and decisions[-1].reason == due.reason and due.reason in _NOTED_ONCE:
        decisions = decisions[:-1]
    return (*decisions[1 - DECISIONS_KEPT :], Decision(now, due.at, due.reason))
