"""A message that a platform reports and that is over a limit: it is set aside, kept as rejected, and changes nothing.

How this works: what waits is a range of numbers without a hole, and a flood comes while something waits. So a message
over a limit gets no number among the others, but one below 0, which no range ever holds: no deadline moves, nothing
that waits or is answered knows of it, and whoever claims a turn does not read it. It is stored and closed in the same
write, as one that was rejected while its conversation was being answered is, so that a redelivery is known, the history
has it, and it is forgotten as turns are.

The person is told about it once a minute at most. When they were told last is kept with the conversation, so that this
is so however many processes take messages.
"""

from msgspec.structs import replace

from turntake.rules.conversation import Aside, Change, Closed, Conversation
from turntake.rules.key import ConversationKey
from turntake.rules.transitions import turn_id

NOTICE_EVERY_MS = 60_000  # after a minute a bucket is full again, so that there may be something new to say
# Numbers count up to 0 from here, and start from the time in seconds: eleven digits last until the year 5138.
_LOWEST = -(10**11)


def set_aside(conversation: Conversation, key: ConversationKey, reason: str, now: int) -> Change:
    """One more message, which is over as soon as it is stored. `reason` is the rule that limits it."""
    before, head = conversation.aside, conversation.next_seq
    # A conversation that was forgotten and begins anew, or whose row an earlier release wrote, repeats no number.
    place = max(now // 1_000, before.place + 1 if before else 0)
    tail = _LOWEST + place
    closed = Closed(
        turn_id(key, head, tail, conversation.began_at), head, tail, "rejected", conversation.epoch, now, None, reason
    )
    told_at = now if before is None or _is_long_ago(before.told_at, now) else before.told_at
    return Change(replace(conversation, aside=Aside(place, told_at)), closed)


def _is_long_ago(told_at: int, now: int) -> bool:
    """Also if it lies ahead: then the clock was wrong, and nobody should wait for it to come there."""
    return not told_at <= now < told_at + NOTICE_EVERY_MS
