"""How values are written down: compact bytes that no store looks into.

A later release may add fields at the end of a value; this one then reads it and ignores them.
"""

import msgspec
from msgspec.structs import replace

from turntake.rules.conversation import Closed, Conversation
from turntake.rules.message import Message, unreadable

encode = msgspec.msgpack.Encoder().encode
decode_conversation = msgspec.msgpack.Decoder(Conversation).decode
decode_closed = msgspec.msgpack.Decoder(Closed).decode
decode_message = msgspec.msgpack.Decoder(Message).decode


def read_message(payload: bytes, seq: int, received_at: int) -> Message:
    """The stored message, with what the store knows of it. One that cannot be read is told by `is_unreadable`."""
    try:
        message = decode_message(payload)
    except (msgspec.MsgspecError, ValueError):
        message = unreadable(payload, seq)
    return replace(message, seq=seq, received_at=received_at)
