"""How values are written down: compact bytes that no store looks into.

A later release may add fields at the end of a value; this one then reads it and ignores them.
"""

import msgspec

from turntake.rules.conversation import Closed, Conversation
from turntake.rules.message import Message

encode = msgspec.msgpack.Encoder().encode
decode_conversation = msgspec.msgpack.Decoder(Conversation).decode
decode_closed = msgspec.msgpack.Decoder(Closed).decode
decode_message = msgspec.msgpack.Decoder(Message).decode
