"""Discord's API: channels of a bot, and interactions that wait for their answer."""

from collections import Counter
from typing import Any

from harness.platforms.server import FakeAnswer, FakeRequest, Platform

TOKEN = "recorded-bot-token"


class DiscordApi(Platform):
    """Takes messages for its channels, `burst` in each before it throttles once; a nonce it knows brings no second.

    `interactions` are tokens that still count, `thinking` those of them that show no answer yet.
    `pinged` are texts that might have called somebody.
    """

    def __init__(self, *channels: str, burst: int = 100) -> None:
        super().__init__()
        self.channels = set(channels)
        self.closed: set[str] = set()
        self.burst = burst
        self.interactions: set[str] = set()
        self.thinking: set[str] = set()
        self.typing: list[str] = []
        self.pinged: list[str] = []
        self.originals: dict[str, str] = {}
        self._known: dict[str, dict[str, Any]] = {}
        self._since_throttled: Counter[str] = Counter()

    def answer(self, asked: FakeRequest) -> FakeAnswer:
        assert asked.headers.get("user-agent", "").startswith("DiscordBot ("), "Discord turns other agents away"
        kind, *rest = asked.path.partition("?")[0].strip("/").split("/")
        if kind == "webhooks":
            return self._interaction(asked, rest[1], rest[2:])
        if asked.headers.get("authorization") != f"Bot {TOKEN}":
            return no(401, 0, "401: Unauthorized")
        if rest[0] in self.closed:
            return no(403, 50001, "Missing Access")
        if rest[0] not in self.channels:
            return no(404, 10003, "Unknown Channel")
        return self._typed(rest[0]) if rest[1] == "typing" else self._posted(rest[0], asked.json)

    def _typed(self, channel: str) -> FakeAnswer:
        self.typing.append(channel)
        return FakeAnswer(204, b"")

    def _posted(self, channel: str, body: dict[str, Any]) -> FakeAnswer:
        nonce = body["nonce"]
        if len(nonce) > 25:
            return misfit("nonce", "Must be 25 or fewer in length.")
        if body["enforce_nonce"] is True and nonce in self._known:
            return FakeAnswer(body=self._known[nonce])
        said = self._message(channel, body)
        if said.status == 200:
            self._known[nonce] = said.body
        return said

    def _interaction(self, asked: FakeRequest, token: str, rest: list[str]) -> FakeAnswer:
        if token not in self.interactions:
            return no(404, 10015, "Unknown Webhook")
        if asked.method == "POST" and not rest:
            return self._message(token, asked.json)
        if asked.method != "PATCH" or rest != ["messages", "@original"]:
            return no(405, 0, "405: Method Not Allowed")
        self.thinking.discard(token)
        if token in self.originals:
            self.originals[token] = asked.json["content"]
            return FakeAnswer(body={"id": "original"})
        self.originals[token] = asked.json["content"]
        return self._message(token, asked.json)

    def _message(self, chat: str, body: dict[str, Any]) -> FakeAnswer:
        text = body["content"]
        if not text.strip():
            return no(400, 50006, "Cannot send an empty message")
        if len(text) > 2000:
            return misfit("content", "Must be 2000 or fewer in length.")
        self._since_throttled[chat] += 1
        if self._since_throttled[chat] > self.burst:
            self._since_throttled[chat] = 0
            return FakeAnswer(429, {"message": "You are being rate limited.", "retry_after": 0.25, "global": False})
        if body.get("allowed_mentions") != {"parse": []}:
            self.pinged.append(text)
        self.took(chat, text)
        return FakeAnswer(body={"id": f"m{len(self.sent)}", "channel_id": chat, "content": text})


def no(status: int, code: int, words: str, **more: Any) -> FakeAnswer:
    return FakeAnswer(status, {"message": words, "code": code, **more})


def misfit(field: str, words: str) -> FakeAnswer:
    """How Discord says that one field is wrong."""
    errors = {field: {"_errors": [{"code": "BASE_TYPE_MAX_LENGTH", "message": words}]}}
    return no(400, 50035, "Invalid Form Body", errors=errors)
