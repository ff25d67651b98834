"""What would be done with a message now, without doing it."""

from turntake.rules.arriving import arrive
from turntake.rules.conversation import Conversation, Stop
from turntake.rules.records import Append, Appended, Snapshot, appended, appended_stop, arrived


def preview(snapshot: Snapshot | None, arrival: Append, now: int) -> Appended:
    """What an append would answer. An id is known here while its message waits or is being answered; a store knows
    those of settled messages too."""
    conversation = Conversation() if snapshot is None else snapshot.conversation
    if snapshot is not None and any(message.id == arrival.message.id for message in snapshot.messages):
        return appended(conversation, "duplicate")
    change = None if arrival.message.is_blank else arrive(conversation, arrival, now)
    if change is None:
        return appended(conversation, "ignored")
    if isinstance(change, Stop):
        return appended_stop(change)
    return arrived(arrival, conversation, change)
