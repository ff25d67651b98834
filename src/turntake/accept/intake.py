"""What platforms say becomes messages in the buffer, whichever way it came in."""

import hashlib
import logging
from collections.abc import Iterator, Sequence

from turntake.accept.body import LATEST_AT
from turntake.platforms.channel import SAID, ChatEvent
from turntake.rules.conversation import Touch
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.service import Arrival, TurnTake

log = logging.getLogger("turntake")

CHANGES = frozenset({"edit", "delete"})
SIGNS = frozenset({"typing", "stopped"})
LONGEST_ID = 1_024
"""In bytes. Real ids are far shorter, and an index does not take any length."""


class Intake:
    """Takes the events of one request together. In a group chat each person has a buffer, or only the group has."""

    def __init__(self, turns: TurnTake, *, by_person: bool = True) -> None:
        self._turns = turns
        self._by_person = by_person

    async def take(self, channel: str, account: str, events: Sequence[ChatEvent]) -> None:
        """Everything is stored, or StoreUnavailable: then the same events again repeat nothing.

        `account` names ours if there are several; it is part of every key, and so is the platform's own id of it.
        """
        keyed = list(self._keyed(channel, account, events))
        # What was said comes first: a change can only change what is there.
        told = sorted((pair for pair in keyed if pair[1].kind not in SIGNS), key=lambda pair: pair[1].kind in CHANGES)
        arrivals = [Arrival(key, message_of(event)) for key, event in told]
        if arrivals:
            await self._turns.accept(arrivals)
        for key, event in keyed:
            if event.kind in SIGNS:
                order = Touch("composing", event.ttl_ms) if event.kind == "typing" else Touch("stopped")
                await self._turns.touch(key, order)

    def _keyed(
        self, channel: str, account: str, events: Sequence[ChatEvent]
    ) -> Iterator[tuple[ConversationKey, ChatEvent]]:
        """Those that mean something, each with its conversation."""
        for event in events:
            if event.kind not in SAID | CHANGES | SIGNS:
                continue
            try:
                yield key_of(channel, account, event, by_person=self._by_person), event
            except ValueError as error:
                # Authentic, so a refusal would only have it sent again for days.
                facts = {"action": "accept", "channel": channel, "kind": event.kind, "reason": str(error)}
                log.warning("An event names no conversation that could be kept", extra=facts)


def key_of(channel: str, account: str, event: ChatEvent, *, by_person: bool = True) -> ConversationKey:
    """The conversation of an event. Raises ValueError if its parts cannot make a key."""
    own = event.account or "default"
    person = f"@{event.sender}" if event.is_group and by_person and event.sender else ""
    # The first slash ends our account's name, which has none, so that no id at the platform can pass for it.
    return ConversationKey.of(
        event.conversation,
        channel=channel,
        account=f"{account}/{own}" if account or "/" in own else own,
        topic=event.thread + person,
    )


def message_of(event: ChatEvent) -> Message:
    is_change = event.kind in CHANGES
    return Message(
        id=_short(event.message_id),
        text=_whole(event.text),
        sender=event.sender,
        sent_at=event.sent_at if event.sent_at is not None and 0 <= event.sent_at <= LATEST_AT else None,
        attachments=event.attachments,
        reply_to=event.reply_to,
        metadata=event.metadata,
        amends=_short(event.target) if is_change else None,
        is_deletion=event.kind == "delete",
    )


def _short(id: str) -> str:
    """The id, or if it is too long for a store, what it is known by instead."""
    raw = id.encode("utf-8", "replace")
    return id if len(raw) <= LONGEST_ID else f"hash:{hashlib.blake2s(raw).hexdigest()}"


def _whole(text: str) -> str:
    """The text without halves of characters, which no store takes."""
    return text.encode("utf-8", "replace").decode()
