"""`POST /v1/activity`: a sign that the person is still writing or recording, or stopped."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.types import Receive, Scope, Send

from turntake.accept.body import ConversationBody, Instant, checked, decode, read_body, send_accepted
from turntake.accept.caller import caller_of, permitted_key
from turntake.accept.homes import Homes
from turntake.accept.repeated_names import FieldNames
from turntake.instants import rfc3339
from turntake.rules.conversation import Touch
from turntake.rules.key import ConversationKey
from turntake.service import TurnTake

LONGEST_TTL_MS = 3_600_000  # a voice note of an hour; whoever composes for longer sends another sign


class ActivityBody(ConversationBody, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """A sign that the person composes, or stopped to."""

    kind: Literal["typing", "recording", "stopped"]
    ttl_ms: Annotated[int, Meta(ge=1, le=LONGEST_TTL_MS)] | None = None


class DueView(msgspec.Struct, frozen=True, rename="camel"):
    """When the conversation's messages are due, and why then; null if none wait."""

    due_at: Instant | None
    reason: str | None


_decoder = msgspec.json.Decoder(ActivityBody)
_fields = FieldNames(ActivityBody)


class Activity:
    """Moves the deadline of the messages that wait. It never makes a turn by itself."""

    def __init__(self, turns: TurnTake, homes: Homes) -> None:
        self._turns = turns
        self._homes = homes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key, touch = activity_in(await read_body(receive))
        conversation = await self._turns.touch(permitted_key(caller_of(scope), key, self._homes), touch)
        due = conversation.buffer.due if conversation and conversation.buffer else None
        await send_accepted(send, DueView(rfc3339(due.at), due.reason) if due else DueView(None, None))


def activity_in(body: bytes) -> tuple[ConversationKey, Touch]:
    """The conversation that a body names, and the sign for it."""
    payload = decode(_decoder, body)
    _fields.refuse_repeated(body)
    kind: Literal["stopped", "composing"] = "stopped" if payload.kind == "stopped" else "composing"
    return checked(ActivityBody.key, payload), Touch(kind, payload.ttl_ms or 0)
