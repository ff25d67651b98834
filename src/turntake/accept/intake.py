"""What platforms report becomes messages in the buffer, whichever way it came in."""

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from turntake.accept.homes import NOBODYS, Homes
from turntake.accept.options import Delivery, WebhookOptions
from turntake.accept.reply_reports import ReplyReports
from turntake.arrival import Arrival
from turntake.observe.observer import Observer
from turntake.platforms import address
from turntake.platforms.channel import SAID, ChatEvent
from turntake.platforms.text_limit import NO_LIMIT, TextLimit
from turntake.rules.conversation import Touch
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.message_check import LONGEST_ID, sound
from turntake.rules.message_limits import LATEST_AT
from turntake.service import TurnTake

log = logging.getLogger("turntake")

_OPTIONS = WebhookOptions()

CHANGES = frozenset({"edit", "delete"})
ACTIVITY = frozenset({"typing", "stopped"})
MEANT = SAID | CHANGES | ACTIVITY


class Intake:
    """Takes the events of one request together. In a group, each person has a buffer, or the whole group has one."""

    def __init__(
        self,
        turns: TurnTake,
        *,
        by_person: bool = True,
        oldest_ms: int = _OPTIONS.oldest_ms,
        delivery: Delivery = _OPTIONS.delivery,
        homes: Homes | None = None,
        text_limits: Mapping[str, TextLimit] = MappingProxyType({}),
    ) -> None:
        """What was said longer than `oldest_ms` ago is ignored, unless that is 0. `delivery` says which reports about
        our replies are noted, and `homes` which accounts have a tenant or an agent. `text_limits` are those of the
        channels, by name."""
        self._homes = homes or {}
        self._reports = ReplyReports(turns, delivery)
        self._turns = turns
        self._by_person = by_person
        self._oldest_ms = oldest_ms
        self._text_limits = text_limits

    async def take(self, channel: str, account: str, events: Sequence[ChatEvent]) -> None:
        """Everything is stored, or StoreUnavailable: then the same events again repeat nothing.

        `account` is our own name for the account if there are several. Every key holds it, together with the
        platform's id of the account.
        """
        keyed = self._recent(list(self._keyed(channel, account, events)))
        # Messages come first: a change can only change what is there.
        messages = sorted(
            (pair for pair in keyed if pair[1].kind not in ACTIVITY), key=lambda pair: pair[1].kind in CHANGES
        )
        if messages:
            agent = self._homes.get((channel, account), NOBODYS).agent
            limit = self._text_limits.get(channel, NO_LIMIT)
            await self._turns.accept_reported(list(_arrivals(messages, agent, limit)))
        for key, event in keyed:
            if event.kind in ACTIVITY:
                touch = Touch("composing", event.ttl_ms) if event.kind == "typing" else Touch("stopped")
                await self._turns.touch(key, touch)
        for event in events:
            await self._reports.note(channel, account, event)

    def _recent(self, keyed: list[tuple[ConversationKey, ChatEvent]]) -> list[tuple[ConversationKey, ChatEvent]]:
        """Without the messages that are too old: ids are forgotten after a while, and what a stranger kept of a
        platform's webhooks until then would be believed."""
        since = self._turns.clock.wall() - self._oldest_ms if self._oldest_ms else 0
        recent = [pair for pair in keyed if not _is_before(since, pair[1])]
        if len(recent) < len(keyed):
            for key, event in keyed:
                if _is_before(since, event):
                    self._turns.observers.tell(Observer.ignored, key, message_of(event), "too old")
            facts = {"action": "accept", "channel": keyed[0][0].channel, "messages": len(keyed) - len(recent)}
            log.warning("Messages are ignored, since their platform dates them too far back", extra=facts)
        return recent

    def _keyed(
        self, channel: str, account: str, events: Sequence[ChatEvent]
    ) -> Iterator[tuple[ConversationKey, ChatEvent]]:
        """Those that mean something, each with its conversation."""
        tenant = self._homes.get((channel, account), NOBODYS).tenant
        for event in events:
            if event.kind not in MEANT:
                continue
            try:
                yield key_of(channel, account, event, by_person=self._by_person, tenant=tenant), event
            except ValueError as error:
                # It is authentic, so a refusal would only make the platform send it again for days.
                facts = {"action": "accept", "channel": channel, "kind": event.kind, "reason": str(error)}
                log.warning("An event names no conversation that could be kept", extra=facts)


def _arrivals(events: Sequence[tuple[ConversationKey, ChatEvent]], agent: str, limit: TextLimit) -> Iterator[Arrival]:
    """The events as messages. Of one that no store could keep whole, the words are kept.

    It is authentic: refusing it would have the platform send all of them again, for days.
    """
    for key, event in events:
        message = message_of(event)
        try:
            message = sound(message)
        except ValueError as error:
            facts = {"action": "accept", "conversation": str(key), "kind": event.kind, "reason": str(error)}
            log.warning("Only the words of an event could be kept", extra=facts)
            message = replace(message, attachments=(), metadata={}, reply_to=None)
        yield Arrival(key, message, agent, is_cut=limit.is_filled_by(message.text))


def _is_before(since: int, event: ChatEvent) -> bool:
    return event.kind in SAID and event.sent_at is not None and 0 <= event.sent_at < since


def key_of(
    channel: str, account: str, event: ChatEvent, *, by_person: bool = True, tenant: str = ""
) -> ConversationKey:
    """The conversation of an event. Raises ValueError if its parts cannot make a key."""
    return ConversationKey.of(
        event.conversation,
        tenant=tenant,
        channel=channel,
        account=address.write_account(account, event.account),
        topic=address.write_topic(event.thread, event.sender if event.is_group and by_person else ""),
    )


def message_of(event: ChatEvent) -> Message:
    is_change = event.kind in CHANGES
    return Message(
        id=_short(event.message_id),
        text=_whole(event.text),
        sender=_whole(event.sender),
        sent_at=event.sent_at if event.sent_at is not None and 0 <= event.sent_at <= LATEST_AT else None,
        attachments=event.attachments,
        reply_to=None if event.reply_to is None else _whole(event.reply_to),
        metadata=event.metadata,
        amends=_short(event.target) if is_change else None,
        is_deletion=event.kind == "delete",
    )


def _short(id: str) -> str:
    """The id, or if it is too long for a store, its hash."""
    raw = id.encode("utf-8", "replace")
    return raw.decode() if len(raw) <= LONGEST_ID else f"hash:{hashlib.blake2s(raw).hexdigest()}"


def _whole(text: str) -> str:
    """The text without halves of characters, which no store takes."""
    return text.encode("utf-8", "replace").decode()
