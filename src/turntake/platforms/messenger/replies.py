"""Replies through Messenger's Send API. Pure."""

from collections.abc import Mapping
from typing import Any

from turntake.platforms.meta.replies import MetaReplies
from turntake.platforms.replies import ApiCall, Recipient, Unit


class MessengerReplies(MetaReplies):
    """The token is a page's, so `me` is that page."""

    title = "Messenger"
    longest = 2000
    # Meta does not say in what it counts; by UTF-16 nothing is ever too long.
    unit: Unit = "utf-16"
    # An indicator is shown for 20 seconds, so this renews it in time.
    typing_ms = 15_000

    def reply_call(self, to: Recipient, text: str, reply_id: str) -> ApiCall:
        return self._call_to(to, {"messaging_type": "RESPONSE", "message": {"text": text}})

    def typing_call(self, to: Recipient) -> ApiCall | None:
        return self._call_to(to, {"sender_action": "typing_on"})

    def typing_stopped_call(self, to: Recipient) -> ApiCall | None:
        return self._call_to(to, {"sender_action": "typing_off"})

    def _call_to(self, to: Recipient, body: Mapping[str, Any]) -> ApiCall:
        return self._call(f"{self._own_id(to)}/messages", {"recipient": {"id": to.key.conversation}, **body})

    def _own_id(self, to: Recipient) -> str:
        return "me"

    def _id_in(self, payload: Mapping[str, Any]) -> str:
        id = payload.get("message_id")
        return id if isinstance(id, str) else ""
