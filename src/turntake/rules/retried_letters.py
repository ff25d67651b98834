"""How messages come back out of the dead letters: as a turn whose answer only has to leave, or to wait anew. Pure."""

from msgspec.structs import replace

from turntake.rules.buffer import decided, divided, with_room
from turntake.rules.conversation import Buffer, Closed, Conversation, Portion
from turntake.rules.deadline import Deadline
from turntake.rules.rules import Rules
from turntake.rules.transitions import next_resumed

RESENT_KEPT = 100  # as many as an answer has parts; platforms repeat a report within hours


def resume(conversation: Conversation, letter: Closed, now: int) -> Conversation:
    """A dead letter whose answer is complete: its turn is open again under its own id, and what has not left is sent.

    If another turn is under way, it waits for that one, and goes before what is buffered.
    """
    assert letter.turn is not None, "only a turn has an answer"
    reports = tuple(report for report in letter.turn.reports if report.status != "failed")
    failed_ids = (report.message_id for report in letter.turn.undelivered if report.message_id)
    resent = (*letter.turn.resent, *failed_ids)[-RESENT_KEPT:]
    untried = replace(letter.turn, failures=0, lapses=0, waits=0, error="", is_committed=True)
    untried = replace(untried, reports=reports, resent=resent)
    again = replace(untried, is_leased=False, lease="", claimed_at=now, due_at=now)
    return next_resumed(replace(conversation, resumed=(*conversation.resumed, again)))


def requeue(conversation: Conversation, letter: Closed, count: int, amendments: int, now: int) -> Conversation:
    """The `count` messages of a letter, of which some are `amendments`, come back with the next numbers, and are due at
    once. They join what waits if there is room for all of them in a turn as it is by default. What was cleared comes
    back in the portions that it had, if there were several."""
    has_several = len(letter.portions) > 1
    room = divided(conversation) if has_several else with_room(conversation, Rules(), count - amendments, letter.size)
    buffer = room.buffer
    due = Deadline(now, "retried")
    if buffer is None:
        buffer = Buffer(conversation.next_seq, now, now, due, due, ())
    full = _moved(letter, conversation.next_seq, count)
    waiting = replace(
        buffer,
        due_by_messages=due,
        held_until=0,
        amendments=buffer.amendments + amendments,
        portions=buffer.portions + full,
        size=letter.portions[-1].size if full else buffer.size + letter.size,
    )
    return replace(conversation, next_seq=conversation.next_seq + count, buffer=decided(waiting, due, now))


def _moved(letter: Closed, first: int, count: int) -> tuple[Portion, ...]:
    """All portions of a letter but the last, if its messages are numbered from `first` on."""
    ends = (replace(portion, end=portion.end - letter.head + first) for portion in letter.portions[:-1])
    return tuple(portion for portion in ends if portion.end < first + count)
