"""Replies through Messenger's Send API. Pure."""

from collections.abc import Mapping
from typing import Any

from turntake.platforms.meta.replies import MetaReplies
from turntake.platforms.replies import ApiCall, Recipient, Unit


class MessengerReplies(MetaReplies):
    """The token is a page's, so `me` is that page."""

    name = "Messenger"
    longest = 2000
    # Meta does not say in what it counts; by UTF-16 nothing is ever too long.
    unit: Unit = "utf-16"
    typing_ms = 15_000

    def reply_call(self, to: Recipient, text: str, reply_id: str) -> ApiCall:
        return self._to(to, {"messaging_type": "RESPONSE", "message": {"text": text}})

    def typing_call(self, to: Recipient) -> ApiCall | None:
        return self._to(to, {"sender_action": "typing_on"})

    def typing_stopped_call(self, to: Recipient) -> ApiCall | None:
        return self._to(to, {"sender_action": "typing_off"})

    def _to(self, to: Recipient, body: Mapping[str, Any]) -> ApiCall:
        return self._call(f"{self._whose(to)}/messages", {"recipient": {"id": to.key.conversation}, **body})

    def _whose(self, to: Recipient) -> str:
        return "me"

    def _id_in(self, said: Mapping[str, Any]) -> str:
        taken = said.get("message_id")
        return taken if isinstance(taken, str) else ""
