"""What a message does while its conversation is being answered: it waits, interrupts the answer, is absorbed by it, is
rejected, or makes it stale.

How this works: a message that comes during an answer waits, unless the rules say more.

    on_busy = "interrupt"    the answer stops at once: its messages wait again, in front of the new one
    on_busy = "steer"        whoever answers is shown what waits, and may absorb it: it then belongs to the turn, is
                             settled with it, and comes again with it if the turn is tried again
    on_busy = "reject"       the message is kept as rejected, and nobody answers it; the person is told once per turn
    on_stale                 what becomes of an answer that is ready while something newer waits. The rules are known
                             when a message comes in, so it is noted with the turn then, and looked at when the answer
                             is saved, just before its first reply leaves

Interruptions and stale answers count together towards `max_interrupts`, so that a person who never stops writing still
gets an answer. Neither touches a turn after `turn.commit()` or after its first reply was saved.
"""

from msgspec.structs import replace

from turntake.rules.buffer import DECISIONS_KEPT, after_first_portion, first_portion, portions_with
from turntake.rules.conversation import Buffer, Change, Closed, Conversation, Progress, SealedTurn
from turntake.rules.deadline import Deadline
from turntake.rules.rules import Rules

BUSY = "busy"
"""The reason of a message that was rejected while the one before was being answered."""
STALE = "stale"
"""The reason of a turn that ended because something newer waited when its answer was ready."""


def may_interrupt(conversation: Conversation, rules: Rules) -> bool:
    """Whether the next message stops the answer. A turn can only merge with what follows it directly: messages cleared
    in between stay out of it."""
    turn = conversation.turn
    return (
        turn is not None
        and rules.on_busy == "interrupt"
        and _may_begin_anew(turn, rules)
        and not turn.is_committed
        and _is_next_behind(conversation)
    )


def interrupted(conversation: Conversation, now: int) -> Change:
    """The sealed range waits again, in front of what came since; the person's silence and max wait start anew."""
    turn, buffer = conversation.turn, conversation.buffer
    assert turn is not None
    due = Deadline(now, "silence")
    last_at = buffer.last_at if buffer else turn.last_at
    behind = replace(buffer, first_at=now, due=due, due_by_messages=due) if buffer else None
    waiting = behind or Buffer(turn.tail + 1, now, last_at, due, due, ())
    return _withdrawn(conversation, turn, _in_front(turn, waiting), "interrupted", now)


def is_offered(conversation: Conversation, rules: Rules) -> bool:
    """Whether whoever answers may absorb what waits."""
    turn = conversation.turn
    is_answering = turn is not None and turn.is_leased and not turn.progress.is_final
    return is_answering and rules.enabled and rules.on_busy == "steer"


def with_absorbed(conversation: Conversation, rules: Rules, now: int) -> Conversation:
    """The turn with what waits behind it, or with the first portion of that. All of it stays where it is if the turn
    would become larger than the rules allow, and for as long as somebody put it on hold."""
    turn, buffer = conversation.turn, conversation.buffer
    if turn is None or buffer is None or buffer.held_until > now or not _is_next_behind(conversation):
        return conversation
    portion = first_portion(conversation, buffer)
    grown = replace(
        turn,
        tail=portion.end - 1,
        last_at=buffer.last_at,
        decisions=(*turn.decisions, *buffer.decisions)[-DECISIONS_KEPT:],
        amendments=turn.amendments + portion.amendments,
        size=turn.size + portion.size,
        sealed_tail=turn.first_tail,
    )
    count = grown.tail - grown.head + 1 - grown.amendments
    is_too_large = count > rules.capacity or grown.size > rules.max_turn_bytes
    if is_too_large or not is_offered(conversation, rules):
        return conversation
    return replace(conversation, turn=grown, buffer=after_first_portion(conversation, buffer, portion))


def is_to_be_rejected(conversation: Conversation, rules: Rules) -> bool:
    """Whether the next message is rejected. It joins what waits already, if anything does: that has no holes."""
    is_busy = conversation.turn is not None and conversation.buffer is None
    return is_busy and rules.enabled and rules.on_busy == "reject"


def rejected(conversation: Conversation, id: str, now: int) -> Change:
    """The next message is over as soon as it is stored, under this id."""
    turn, seq = conversation.turn, conversation.next_seq
    assert turn is not None
    noted = replace(turn, rejections=turn.rejections + 1)
    closed = Closed(id, seq, seq, "rejected", conversation.epoch, now, None, BUSY)
    return Change(replace(conversation, next_seq=seq + 1, turn=noted), closed)


def noted_stale(turn: SealedTurn, rules: Rules) -> SealedTurn:
    """The turn after a message came that waits for the next one. What the latest message says counts."""
    on_stale = rules.on_stale if _may_begin_anew(turn, rules) else "send"
    return turn if on_stale == turn.on_stale else replace(turn, on_stale=on_stale)


def is_stale(conversation: Conversation, progress: Progress) -> bool:
    """Whether this answer, of which nothing left yet, is not to be sent since something newer waits. To say nothing is
    never stale."""
    turn = conversation.turn
    return (
        turn is not None
        and turn.on_stale != "send"
        and not turn.is_committed
        and bool(progress.replies)
        and conversation.waiting > 0
        and _is_next_behind(conversation)
    )


def was_stale(closed: Closed | None, epoch: int) -> bool:
    """Whether a turn ended so when the claim with this epoch brought its answer."""
    return closed is not None and closed.reason == STALE and closed.epoch == epoch + 1


def without_stale_answer(conversation: Conversation, progress: Progress, now: int) -> Change:
    """The answer is dropped, and kept with its turn for whoever reads the history. Its messages are answered together
    with the newer ones, whose timer runs on; or, if it is to be discarded, the newer ones are answered alone."""
    turn, buffer = conversation.turn, conversation.buffer
    assert turn is not None
    assert buffer is not None
    ended = replace(turn, progress=progress)
    if turn.on_stale == "regenerate":
        return _withdrawn(conversation, ended, _in_front(turn, buffer), "interrupted", now, STALE)
    return _withdrawn(conversation, ended, replace(buffer, interrupts=turn.interrupts + 1), "discarded", now, STALE)


def _may_begin_anew(turn: SealedTurn, rules: Rules) -> bool:
    return rules.enabled and turn.interrupts < rules.max_interrupts


def _is_next_behind(conversation: Conversation) -> bool:
    """Whether what waits, or else the next message, follows the turn directly."""
    turn, buffer = conversation.turn, conversation.buffer
    return turn is not None and turn.tail + 1 == (conversation.next_seq if buffer is None else buffer.head)


def _in_front(turn: SealedTurn, buffer: Buffer) -> Buffer:
    """The buffer with the turn's messages in front. Its first portion grows by them, whatever its size."""
    return replace(
        buffer,
        head=turn.head,
        decisions=(*turn.decisions, *buffer.decisions)[-DECISIONS_KEPT:],
        interrupts=turn.interrupts + 1,
        amendments=turn.amendments + buffer.amendments,
        portions=portions_with(turn, buffer),
        size=buffer.size + (0 if buffer.portions else turn.size),
    )


def _withdrawn(
    conversation: Conversation, turn: SealedTurn, buffer: Buffer, status: str, now: int, reason: str = ""
) -> Change:
    epoch = conversation.epoch + 1
    closed = Closed(turn.id, turn.head, turn.tail, status, epoch, now, turn, reason)
    return Change(replace(conversation, epoch=epoch, turn=None, buffer=buffer), closed)
