"""Values as the server keeps them: conversations, their messages, and turns."""

from collections.abc import Iterable

from turntake.buffer.codec import decode_closed, read_message
from turntake.buffer.engine.archive import TurnRow
from turntake.buffer.engine.backend import Messages
from turntake.rules.key import ConversationKey


def messages_of(rows: Iterable[tuple[int, int, bytes]]) -> Messages:
    """Messages by their numbers, from number, time of arrival and payload of each."""
    return {seq: read_message(payload, seq, at) for seq, at, payload in rows}


def turn_of(key: str, turn_id: str, body: bytes | None, letter_at: int | None) -> TurnRow:
    closed = None if body is None else decode_closed(body)
    return TurnRow(ConversationKey.parse(key), turn_id, closed, letter_at is not None)
