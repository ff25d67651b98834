"""The smallest channel: a word in a header, and JSON that is an event already."""

from typing import ClassVar

import msgspec

from turntake.errors import Forged, Unreadable
from turntake.platforms.channel import Channel, ChatEvent, Delivery, Option, Request, WebhookAnswer


class WordChannel(Channel):
    options: ClassVar = (Option("word", "The word that lets in.", use="verify"),)

    def verify(self, request: Request, now: int) -> None:
        if not self._values["word"] or request.headers.get("x-word") != self._values["word"]:
            raise Forged("This is not the word.")

    def read(self, request: Request) -> Delivery:
        try:
            events = msgspec.json.decode(request.body, type=tuple[ChatEvent, ...])
        except msgspec.DecodeError:
            raise Unreadable("These are no events.") from None
        return Delivery(events, WebhookAnswer(request.url.encode(), "text/x-url"))

    def sample(self, text: str, *, sender: str, id: str, url: str, now: int) -> Request:
        said = ChatEvent(kind="message", conversation=sender, sender=sender, id=id, text=text)
        return Request("POST", url, {"x-word": self._values["word"]}, msgspec.json.encode([said]))


def said(text: str = "hi", **parts: object) -> ChatEvent:
    whole = {"kind": "message", "account": "us", "conversation": "ann", "sender": "ann", "id": text, "text": text}
    return msgspec.convert(whole | parts, ChatEvent)


def body(*events: ChatEvent) -> bytes:
    return msgspec.json.encode(events)
