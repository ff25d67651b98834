"""`POST /v1/messages` and `/v1/activity`: plain ASGI, since every message passes here."""

from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from turntake.accept.body import Instant, activity_in, arrivals_in
from turntake.instants import rfc3339
from turntake.rules.key import ConversationKey
from turntake.service import Receipt, TurnTake

_encoder = msgspec.json.Encoder()
_JSON = (b"content-type", b"application/json")


class ReceiptView(msgspec.Struct, frozen=True, rename="camel"):
    """What became of a message: `messages` wait together until `dueAt`, because of `reason`."""

    status: str
    conversation_key: str
    messages: int
    due_at: Instant | None
    reason: str | None


class DueView(msgspec.Struct, frozen=True, rename="camel"):
    """When the conversation's messages are due, and why then; null if none wait."""

    due_at: Instant | None
    reason: str | None


class Messages:
    """Answers once everything is stored. A list is stored as a whole or not at all."""

    def __init__(self, turns: TurnTake) -> None:
        self._turns = turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = arrivals_in(await body_of(receive))
        if isinstance(found, list):
            await accepted(send, list(map(_view, await self._turns.accept(found))))
        else:
            (receipt,) = await self._turns.accept([found])
            await accepted(send, _view(receipt))


class Activity:
    """The person composes, or stopped: moves the deadline of what waits, and never makes a turn."""

    def __init__(self, turns: TurnTake) -> None:
        self._turns = turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key, order = activity_in(await body_of(receive))
        conversation = await self._turns.touch(key, order)
        due = conversation.buffer.due if conversation and conversation.buffer else None
        await accepted(send, DueView(rfc3339(due.at), due.reason) if due else DueView(None, None))


async def body_of(receive: Receive) -> bytes:
    """The body, which the guard hands over in one piece."""
    body: bytes = (await receive()).get("body", b"")
    return body


async def accepted(send: Send, said: Any) -> None:
    body = _encoder.encode(said)
    headers = [_JSON, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 202, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _view(receipt: Receipt) -> ReceiptView:
    due_at = None if receipt.due_at is None else rfc3339(receipt.due_at)
    key: ConversationKey = receipt.key
    return ReceiptView(receipt.status, str(key), receipt.messages, due_at, receipt.reason)
