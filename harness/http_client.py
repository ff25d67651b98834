"""The smallest channel: a word in a header, and JSON that is an event already."""

from typing import ClassVar

import msgspec

from turntake.errors import Forged, Unreadable
from turntake.platforms.channel import Answer, Channel, Event, Option, Request


class Knocking(Channel):
    options: ClassVar = (Option("word", "The word that lets in.", use="verify"),)

    def verify(self, request: Request, now: int) -> None:
        if not self._given["word"] or request.headers.get("x-word") != self._given["word"]:
            raise Forged("This is not the word.")

    def events_in(self, request: Request) -> list[Event]:
        try:
            return msgspec.json.decode(request.body, type=list[Event])
        except msgspec.DecodeError:
            raise Unreadable("These are no events.") from None

    def answer(self, request: Request) -> Answer:
        return Answer(request.url.encode(), "text/x-url")

    def sample(self, text: str, *, sender: str, id: str, url: str, now: int) -> Request:
        said = Event(kind="message", conversation=sender, sender=sender, id=id, text=text)
        return Request("POST", url, {"x-word": self._given["word"]}, msgspec.json.encode([said]))


def said(text: str = "hi", **parts: object) -> Event:
    whole = {"kind": "message", "account": "us", "conversation": "ann", "sender": "ann", "id": text, "text": text}
    return msgspec.convert(whole | parts, Event)


def body(*events: Event) -> bytes:
    return msgspec.json.encode(events)
