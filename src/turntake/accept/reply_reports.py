"""What platforms report about replies that left: noted with the turn, and if a reply failed, a dead letter.

Nothing is kept for this but the report itself: each reply leaves with an id that names its turn and its place, and the
platform repeats that id in its reports. So a report finds its turn by name, for as long as the turn is remembered.
"""

import logging

from turntake.accept.options import Delivery
from turntake.observe.observer import Observer
from turntake.platforms import address
from turntake.platforms.channel import ChatEvent
from turntake.rules.conversation import ReplyReport
from turntake.rules.key import ConversationKey
from turntake.service import TurnTake

log = logging.getLogger("turntake")

# That a reply was sent is known from the platform's answer to the call.
NOTED: dict[Delivery, tuple[str, ...]] = {"all": ("delivered", "read", "failed"), "failed": ("failed",), "none": ()}


class ReplyReports:
    """Notes those that are wanted."""

    def __init__(self, turns: TurnTake, delivery: Delivery) -> None:
        self._turns = turns
        self._noted = NOTED[delivery]

    async def note(self, channel: str, account: str, event: ChatEvent) -> None:
        """`account` is our own name for the account through which the platform speaks.

        A report that is no news, or about nothing of ours, is ignored. Raises StoreUnavailable: then it comes again.
        """
        status = event.reply
        reply = address.read_reply(status.reply_id) if status is not None else None
        if status is None or reply is None or status.status not in self._noted:
            return
        at = self._turns.clock.now() if event.sent_at is None else event.sent_at
        report = ReplyReport(reply.place, status.status, at, event.id, status.error)

        def is_ours(key: ConversationKey) -> bool:
            return key.channel == channel and address.read_account(key.account).name == account

        key = await self._turns.store.letters.report(reply.turn_id, report, is_ours)
        if key is None:
            return
        if report.status == "failed":
            facts = {"action": "deliver", "conversation": str(key), "turn": reply.turn_id, "place": reply.place}
            log.warning("A reply was not delivered; its dead letter says why", extra=facts)
        self._turns.observers.tell(Observer.reported, key, reply.turn_id, report)
