"""The agent `echo`: answers with what it received, so that the wait can be seen before there is a real agent."""

from turntake.deliver.turn import Turn
from turntake.rules.message import Message


async def echo(turn: Turn) -> str:
    """Says how many messages there were, how long they waited and why that ended, then repeats them."""
    count = len(turn.messages)
    messages = "1 message" if count == 1 else f"{count} messages"
    header = f"You sent {messages} (waited {turn.waited_ms / 1000:.1f} s, then: {turn.reason}):"
    return "\n".join([header, *(_line(message) for message in turn.messages)])


def _line(message: Message) -> str:
    return " ".join(filter(None, [message.text, *(f"[{attachment.kind}]" for attachment in message.attachments)]))
