"""What would be done with a message now, without doing it."""

from turntake.rules import transitions
from turntake.rules.conversation import Conversation
from turntake.rules.records import Append, Appended, Snapshot, appended


def preview(snapshot: Snapshot | None, arrival: Append, now: int) -> Appended:
    """What an append would answer. An id is known here while its message waits or is being answered; a store knows
    those of settled messages too."""
    conversation = Conversation() if snapshot is None else snapshot.conversation
    if snapshot is not None and any(message.id == arrival.message.id for message in snapshot.messages):
        return appended(conversation, "duplicate")
    change = None if arrival.message.is_blank else transitions.arrive(conversation, arrival, now)
    if change is None:
        return appended(conversation, "ignored")
    return appended(change.conversation, "buffered", change.closed)
