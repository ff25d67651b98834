"""Meta from outside: its webhooks as recorded, and its API as a server that refuses as the real one does."""

import json
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import httpx2
import msgspec

from harness.platforms.server import FakeAnswer, FakeRequest, Platform
from turntake.platforms.channel import ChatEvent
from turntake.platforms.replies import ApiCall, ApiResponse
from turntake.testing.recording import Recording, recordings_in

RECORDINGS = Path(__file__).parents[2] / "tests" / "recordings"
TOKEN = "the-access-token"


def recorded(channel: str) -> list[Recording]:
    return recordings_in(RECORDINGS / channel)


def strictly(recording: Recording) -> tuple[ChatEvent, ...]:
    """The recording's events whole: what it does not mention is not there."""
    return msgspec.convert(recording.events, tuple[ChatEvent, ...])


class Graph(Platform):
    """Any of Meta's APIs. `closed` are chats whose window is over, `unknown` those that nobody has."""

    longest: ClassVar[int]
    window: ClassVar[dict[str, Any]]

    def __init__(self) -> None:
        super().__init__()
        self.closed: set[str] = set()
        self.unknown: set[str] = set()

    def answer(self, asked: FakeRequest) -> FakeAnswer:
        if asked.headers.get("authorization") != f"Bearer {TOKEN}":
            return refused(190, "Error validating access token: Session has expired", 401, type="OAuthException")
        if asked.method != "POST" or not asked.path.endswith("/messages") or "?" in asked.path:
            return refused(100, "Unsupported post request", 400, error_subcode=33)
        return self.asked_to(asked.path.split("/")[1], asked.json)

    def asked_to(self, whose: str, body: dict[str, Any]) -> FakeAnswer:
        raise NotImplementedError

    def unreachable(self, chat: str) -> FakeAnswer | None:
        if chat in self.closed:
            return refused(**self.window)
        if chat in self.unknown:
            return refused(100, "No matching user found", error_subcode=2018001)
        return None


class WhatsAppApi(Graph):
    """Takes `burst` messages a pair, then none before the test says so."""

    longest = 4096
    window: ClassVar = {"code": 131047, "words": "Re-engagement message", "details": "More than 24 hours have passed."}

    def __init__(self, burst: int = 45) -> None:
        super().__init__()
        self.burst = burst
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.read: list[str] = []

    def asked_to(self, whose: str, body: dict[str, Any]) -> FakeAnswer:
        if body.pop("messaging_product", None) != "whatsapp":
            return refused(100, "(#100) The parameter messaging_product is required.")
        return self._read(body) if body.get("status") == "read" else self._sent(whose, body)

    def _read(self, body: dict[str, Any]) -> FakeAnswer:
        if not str(body["message_id"]).startswith("wamid."):
            return refused(131009, "Parameter value is not valid", details="message_id")
        assert body["typing_indicator"] == {"type": "text"}
        self.read.append(body["message_id"])
        return FakeAnswer(body={"success": True})

    def _sent(self, whose: str, body: dict[str, Any]) -> FakeAnswer:
        assert body["type"] == "text"
        assert ("to" in body) != ("recipient" in body)
        chat, text = body.get("to") or body["recipient"], body["text"]["body"]
        if len(text) > self.longest:
            return refused(100, "(#100) Param text['body'] must be at most 4096 characters long.")
        if wrong := self.unreachable(chat):
            return wrong
        self.pairs[whose, chat] += 1
        if self.pairs[whose, chat] > self.burst:
            return refused(131056, "(#131056) (Business Account, Consumer Account) pair rate limit hit")
        self.took(chat, text)
        contact = {"input": chat, "wa_id": chat}
        return FakeAnswer(body={"contacts": [contact], "messages": [{"id": f"wamid.OUT{len(self.sent)}"}]})


class MessengerApi(Graph):
    """Takes texts for people, and the signs that go before them, each alone in its call."""

    longest = 2000
    window: ClassVar = {
        "code": 10,
        "words": "(#10) This message is sent outside of allowed window.",
        "error_subcode": 2018278,
    }

    def __init__(self) -> None:
        super().__init__()
        self.signs: list[tuple[str, str]] = []

    def asked_to(self, whose: str, body: dict[str, Any]) -> FakeAnswer:
        chat = body.pop("recipient")["id"]
        if "sender_action" in body:
            assert list(body) == ["sender_action"]
            self.signs.append((chat, body["sender_action"]))
            return FakeAnswer(body={"recipient_id": chat})
        assert body["messaging_type"] == "RESPONSE"
        text = body["message"]["text"]
        if self.size(text) > self.longest:
            return refused(100, f"(#100) Length of param message[text] must be less than or equal to {self.longest}")
        if wrong := self.unreachable(chat):
            return wrong
        self.took(chat, text)
        return FakeAnswer(body={"recipient_id": chat, "message_id": f"m_out{len(self.sent)}"})

    def size(self, text: str) -> int:
        return len(text)


class InstagramApi(MessengerApi):
    longest = 1000

    def size(self, text: str) -> int:
        return len(text.encode())


def refused(code: int, words: str, status: int = 400, *, details: str = "", **more: Any) -> FakeAnswer:
    """A refusal in Meta's form."""
    error = {"message": words, "type": "OAuthException", "code": code, "fbtrace_id": "Az8or2yhqkZfEZ-_4Qn_Bam"} | more
    return FakeAnswer(status, {"error": error | ({"error_data": {"details": details}} if details else {})})


def made(call: ApiCall) -> ApiResponse:
    """What the API answers to the call."""
    answer = httpx2.request(call.method, call.url, content=call.body, headers=dict(call.headers))
    return ApiResponse(
        answer.status_code, {name.lower(): value for name, value in answer.headers.items()}, answer.content
    )


def said(body: Any, status: int = 200, **headers: str) -> ApiResponse:
    """A response as if it had come."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ApiResponse(status, named, body if isinstance(body, bytes) else json.dumps(body).encode())
