"""Values as bytes: what one release writes, the one before and the one after can read."""

from typing import Any

import msgspec
import pytest

from turntake.buffer.codec import decode_closed, decode_conversation, decode_message, encode
from turntake.rules.conversation import Buffer, Closed, Conversation, SealedTurn
from turntake.rules.deadline import Deadline, Decision
from turntake.rules.message import Attachment, Message

DUE = Deadline(5, "silence")
BUFFER = Buffer(2, 3, 4, DUE, DUE, (Decision(3, 5, "silence"),))
TURN = SealedTurn("turn_1", 1, 1, DUE, 1, 1, 9, ())
CONVERSATION = Conversation(3, 1, BUFFER, TURN, "sales")
CLOSED = Closed("turn_1", 1, 1, "dead", 1, 7, TURN, "given up", "no such order")
AMENDMENT = Message("a1", amends="m1", is_deletion=True)
MESSAGE = Message("m1", "hé\u0000 👩‍🍳", "ann", 5, (Attachment("image", "https://x.test/1"),), "m0", {"n": 2**60})


def test_values_come_back_as_they_were() -> None:
    """Every field, also those that look odd."""
    assert decode_conversation(encode(CONVERSATION)) == CONVERSATION
    assert decode_closed(encode(CLOSED)) == CLOSED
    assert decode_message(encode(MESSAGE)) == MESSAGE
    assert decode_message(encode(AMENDMENT)) == AMENDMENT


@pytest.mark.parametrize(("value", "decode"), [(CONVERSATION, decode_conversation), (CLOSED, decode_closed)])
def test_fields_of_a_later_release_are_left_out(value: Any, decode: Any) -> None:
    """While two releases run side by side, the older one reads what the newer one wrote."""
    later = [*msgspec.msgpack.decode(encode(value)), "new"]
    assert decode(msgspec.msgpack.encode(later)) == value


def test_what_an_older_release_does_not_know_it_loses_and_nothing_else() -> None:
    """It writes the row again without the new fields, also those inside; the later release then finds the defaults."""
    later = msgspec.msgpack.decode(encode(CONVERSATION))
    later[2].append("new of the buffer")
    later[3].append("new of the turn")
    written = encode(decode_conversation(msgspec.msgpack.encode([*later, "new"])))
    assert msgspec.msgpack.decode(written) == msgspec.msgpack.decode(encode(CONVERSATION))


def test_a_message_of_a_later_release_is_read() -> None:
    """Messages are written by name, so a new name is nothing to us."""
    later = msgspec.msgpack.decode(encode(MESSAGE)) | {"mood": "curious"}
    assert decode_message(msgspec.msgpack.encode(later)) == MESSAGE


def test_fields_that_an_earlier_release_did_not_write_get_their_defaults() -> None:
    """A value without its last fields is one from before they existed."""
    earlier = msgspec.msgpack.decode(encode(Conversation(3, 1)))[:2]
    assert decode_conversation(msgspec.msgpack.encode(earlier)) == Conversation(3, 1)


def test_values_from_before_there_were_amendments_have_none() -> None:
    """Buffers, turns and closed ranges without the number, and messages without the names."""
    buffer, turn = (msgspec.msgpack.decode(encode(value))[:-1] for value in (BUFFER, TURN))
    conversation = [3, 1, buffer, turn, "sales"]
    assert decode_conversation(msgspec.msgpack.encode(conversation)) == CONVERSATION
    assert decode_closed(msgspec.msgpack.encode(msgspec.msgpack.decode(encode(CLOSED))[:-1])) == CLOSED
    assert not decode_message(msgspec.msgpack.encode({"id": "m1", "text": "hi"})).is_amendment
